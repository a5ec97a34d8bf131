"""Pages on disk: they come back as they went, or not at all."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.disk_pages import Stored
from runtime.cache.layout import Encoder
from runtime.cache.page_files import read_facts
from runtime.cache.page_folder import key_digests, list_pages
from runtime.cache.snapshot import Checkpoint
from tests.support.disk_pages import KEYS, LAYOUT, found, opened, pages, same, saved


@pytest.mark.parametrize(
    ("dtype", "kept_format"),
    [(mx.float32, None), (mx.bfloat16, None), (mx.float16, None), (mx.float32, "q8"), (mx.bfloat16, "q4")],
)
def test_pages_come_back_as_they_went(tmp_path: Path, dtype: mx.Dtype, kept_format: str | None) -> None:
    stored = pages(10, 25, 31, dtype=dtype, kept_format=kept_format)
    disk = saved(tmp_path, KEYS[:31], stored, dtype=dtype, kept_format=kept_format)
    back = found(disk, KEYS)
    assert [same(*pair) for pair in zip(stored, back, strict=True)] == [True] * 3
    disk.close()


def test_what_is_not_known_of_a_fold_is_not_known_afterwards(tmp_path: Path) -> None:
    (stored,) = pages(10)
    full, rotating, *_, pooled = stored.page
    unknown = Stored(0, 10, (full, rotating, None, None, pooled))
    empty = Stored(0, 10, (full, rotating, stored.page[2], Checkpoint(0, 10, ()), pooled))
    for number, page in enumerate((unknown, empty)):
        disk = saved(tmp_path / str(number), KEYS[:10], [page])
        assert same(found(disk, KEYS)[0], page)
        disk.close()


def test_the_deepest_stop_below_the_prompt_is_found(tmp_path: Path) -> None:
    disk = saved(tmp_path, KEYS[:31], pages(10, 25, 31))

    def stops(*args: Any, **options: int) -> list[int]:
        return [stored.stop for stored in found(disk, *args, **options)]

    assert stops(KEYS) == [10, 25, 31]
    assert stops(KEYS[:31]) == [10, 25]
    assert stops((*KEYS[:26], 1, 2, 3, 4, 5, 6, 7)) == [10, 25]
    assert stops((*KEYS[:9], 1, 2, 3)) == []
    assert stops(KEYS, above=31) == []
    assert stops(KEYS, above=10) == [25, 31]
    assert stops(KEYS, above=12) == [25, 31]
    disk.close()


def test_a_chain_with_a_link_missing_ends_before_it(tmp_path: Path) -> None:
    disk = saved(tmp_path, KEYS[:31], pages(10, 25, 31))
    next(file.path for file in list_pages(tmp_path) if file.stop == 25).unlink()
    assert [stored.stop for stored in found(disk, KEYS)] == [10]
    assert [stored.stop for stored in found(disk, KEYS, above=25)] == [31]
    disk.close()


def test_no_more_is_read_than_fits(tmp_path: Path) -> None:
    stored = pages(10, 25, 31)
    disk = saved(tmp_path, KEYS[:31], stored)
    limit = sum(file.nbytes for file in list_pages(tmp_path) if file.stop <= 25)
    assert [page.stop for page in found(disk, KEYS, limit_bytes=limit)] == [10, 25]
    disk.close()


@pytest.mark.parametrize(
    "other",
    [
        {"model": "sha256:bb"},
        {"dtype": mx.float16},
        {"kept_format": "q8"},
        {"layout": LAYOUT[:3]},
        {"numbers": "MLX"},
    ],
)
def test_pages_of_other_models_and_other_numbers_are_not_ours(
    tmp_path: Path, other: dict[str, object]
) -> None:
    """The last bits of what was computed without kernels, say, may be others."""
    saved(tmp_path, KEYS[:10], pages(10)).close()
    disk = opened(tmp_path, **other)
    assert found(disk, KEYS) == []
    disk.close()
    disk = opened(tmp_path)
    assert [page.stop for page in found(disk, KEYS)] == [10]
    disk.close()


def test_a_page_is_written_once_and_again_when_it_knows_more(tmp_path: Path) -> None:
    (stored,) = pages(10)
    full, rotating, *_, pooled = stored.page
    less = Stored(0, 10, (full, rotating, None, None, pooled))
    for page, wanted in ((less, less), (stored, stored), (less, stored)):
        disk = saved(tmp_path, KEYS[:10], [page])
        assert same(found(disk, KEYS)[0], wanted)
        disk.close()


def test_digests_tell_sequences_apart() -> None:
    def digest(namespace: str, *keys: object) -> str:
        return next(iter(key_digests(namespace, keys, [len(keys)])))[1]

    different = [
        digest("a", 1, 23),
        digest("a", 12, 3),
        digest("b", 1, 23),
        digest("a", 1, 2, 3),
        digest("a", "1", 23),
    ]
    assert len({*different}) == len(different)
    assert list(key_digests("a", [1, 2, 3], [1, 3])) == [(1, digest("a", 1)), (3, digest("a", 1, 2, 3))]


def test_arrays_that_are_not_in_row_order_are_written_in_it(tmp_path: Path) -> None:
    disk = opened(tmp_path, (Encoder(2, 8),))
    keys = mx.array(np.arange(48.0, dtype=np.float32).reshape(1, 3, 2, 8)).swapaxes(1, 2)
    mx.eval(keys)
    disk.save((1, 2), [Stored(0, 2, (Checkpoint(0, 2, (keys, keys)),))])
    disk.close()
    disk = opened(tmp_path, (Encoder(2, 8),))
    (back,) = found(disk, (1, 2, 3))
    assert mx.array_equal(back.page[0].arrays[0], keys).item()
    disk.close()


def test_a_page_tells_its_keys_its_layers_and_what_it_follows(tmp_path: Path) -> None:
    saved(tmp_path, KEYS[:25], pages(10, 25)).close()
    first, second = sorted(list_pages(tmp_path), key=lambda file: file.start)
    top, below = read_facts(first.path), read_facts(second.path)
    assert (top.before, top.kept, top.ids, top.layers) == ("", "f32", KEYS[:10], (0, 1, 2, 3, 4))
    assert (below.before, below.ids) == (first.key, KEYS[10:25])


def test_keys_that_are_no_token_ids_are_left_out(tmp_path: Path) -> None:
    keys = ("image", *KEYS[:9])
    disk = saved(tmp_path, keys, pages(10))
    assert read_facts(list_pages(tmp_path)[0].path).ids == KEYS[:9]
    assert [stored.stop for stored in found(disk, (*keys, 1))] == [10]
    disk.close()


def test_listing_pages_needs_no_mlx() -> None:
    rooms = "runtime.cache.page_files, runtime.cache.page_folder"
    code = f"import sys, {rooms}; sys.exit('mlx' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
