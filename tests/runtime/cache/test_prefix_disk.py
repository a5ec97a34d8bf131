"""Pages on disk: they come back as they went, or not at all."""

import json
import os
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.build import build_memory
from runtime.cache.disk import DiskPages, Stored
from runtime.cache.layout import Encoder, Full, LayerSpec, Recurrent, Rotating, State
from runtime.cache.page_files import (
    BadPage,
    PageFile,
    PrefixFolder,
    clear_pages,
    key_digests,
    list_pages,
    model_mark,
    read_facts,
    read_page,
    trim_pages,
    write_page,
)
from runtime.cache.pages import page_arrays, page_bytes, take_page
from runtime.cache.snapshot import Checkpoint, Span
from runtime.step import Step

LAYOUT: tuple[LayerSpec, ...] = (
    Full(2, 64),
    Rotating(2, 64, window=6, value_dim=0),
    Recurrent({"conv": State((3, 4)), "state": State((2, 2), "float32")}),
    Encoder(2, 8),
)


def opened(
    folder: Path, layout: Sequence[LayerSpec] = LAYOUT, model: str = "sha256:aa", **more: object
) -> DiskPages:
    limit = int(str(more.pop("limit", 1 << 30)))
    settings = {"dtype": mx.float32, "kept_format": None, **more}
    return DiskPages(PrefixFolder(folder, model, limit), layout, **settings)


def pages(*stops: int, dtype: mx.Dtype = mx.float32, kept_format: str | None = None) -> list[Stored]:
    """What layers of LAYOUT hold of made-up sequences, cut at `stops`."""
    memory = build_memory(LAYOUT, dtype=dtype, kept_format=kept_format)
    mx.random.seed(7)
    out, start = [], 0
    for stop in stops:
        step = Step((start,), (stop - start,))
        full, rotating, recurrent, encoder = memory
        full.append(step, *(mx.random.normal((1, 2, step.width, 64), dtype=dtype) for _ in range(2)))
        rotating.append(step, mx.random.normal((1, 2, step.width, 64), dtype=dtype), None)
        recurrent.scan(
            step,
            lambda states, counts: (None, {n: mx.random.normal(s.shape, s.dtype) for n, s in states.items()}),
        )
        if start == 0:
            encoder.append(step, *(mx.random.normal((1, 2, 3, 8), dtype=dtype) for _ in range(2)))
        memory.commit(step, step.counts)
        page = take_page(memory, 0, start)
        mx.eval(page_arrays(page))
        out.append(Stored(start, stop, page))
        start = stop
    return out


def saved(folder: Path, keys: Sequence[int], stored: Sequence[Stored], **more: object) -> DiskPages:
    disk = opened(folder, **more)
    disk.save(keys, stored)
    disk.close()
    return opened(folder, **more)


def found(disk: DiskPages, keys: Sequence[int], above: int = 0, limit_bytes: int = 1 << 30) -> list[Stored]:
    return disk.find(keys, above=above, limit_bytes=limit_bytes)


def same(a: Stored, b: Stored) -> bool:
    if (a.start, a.stop) != (b.start, b.stop):
        return False
    return all(
        type(x) is type(y)
        and (
            x is None
            or (x.start, x.stop, [z.dtype for z in x.arrays])
            == (y.start, y.stop, [z.dtype for z in y.arrays])
        )
        and (x is None or all(mx.array_equal(p, q).item() for p, q in zip(x.arrays, y.arrays, strict=True)))
        for x, y in zip(a.page, b.page, strict=True)
    )


KEYS = tuple(range(100, 140))


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
    full, rotating, *_ = stored.page
    unknown = Stored(0, 10, (full, rotating, None, None))
    empty = Stored(0, 10, (full, rotating, stored.page[2], Checkpoint(0, 10, ())))
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
    "other", [{"model": "sha256:bb"}, {"dtype": mx.float16}, {"kept_format": "q8"}, {"layout": LAYOUT[:3]}]
)
def test_pages_of_other_models_are_not_ours(tmp_path: Path, other: dict[str, object]) -> None:
    saved(tmp_path, KEYS[:10], pages(10)).close()
    disk = opened(tmp_path, **other)
    assert found(disk, KEYS) == []
    assert len(list_pages(tmp_path)) == 1
    disk.close()


def one_file(folder: Path) -> Path:
    saved(folder, KEYS[:10], pages(10)).close()
    (file,) = list_pages(folder)
    return file.path


def rejected(folder: Path) -> bool:
    """A page that is not believed is removed, and nothing is found."""
    disk = opened(folder)
    nothing = found(disk, KEYS) == []
    disk.close()
    return nothing and list_pages(folder) == []


def test_a_page_cut_anywhere_is_removed(tmp_path: Path) -> None:
    path = one_file(tmp_path)
    whole = path.read_bytes()
    for length in [*range(40), *range(40, len(whole), len(whole) // 25), len(whole) - 1]:
        path.write_bytes(whole[:length])
        assert rejected(tmp_path), length
    path.write_bytes(whole + b"\0")
    assert rejected(tmp_path)


def test_a_damaged_page_is_removed(tmp_path: Path) -> None:
    path = one_file(tmp_path)
    whole = path.read_bytes()
    for place in range(0, len(whole), len(whole) // 60):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        assert rejected(tmp_path), place


def test_a_page_under_another_name_is_removed(tmp_path: Path) -> None:
    path = one_file(tmp_path)
    saved(tmp_path / "other", (*KEYS[:9], 1), pages(10)).close()
    (other,) = list_pages(tmp_path / "other")
    other.path.replace(path)
    assert rejected(tmp_path)


def rewritten(path: Path, change: Callable[[dict[str, object], bytes], tuple[object, bytes]]) -> None:
    """The file with another header or body and a checksum that fits."""
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    header, body = change(json.loads(content[8 : 8 + length]), content[8 + length :])
    if isinstance(header, dict) and isinstance(header.get("__metadata__"), dict):
        header["__metadata__"]["crc32"] = f"{zlib.crc32(body):08x}"
    blob = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(blob)) + blob + body)


def entry(name: str, **changes: object) -> Callable[[dict[str, object], bytes], tuple[object, bytes]]:
    return lambda header, body: ({**header, name: {**header.get(name, {}), **changes}}, body)


HOSTILE = {
    "a shape that does not fit its bytes": entry("0.0", shape=[1, 2, 11, 64]),
    "a negative size": entry("0.0", shape=[1, -2, -10, 64]),
    "a size that is no number": entry("0.0", shape=[1, 2, 10, True]),
    "a size beyond all memory": entry("0.0", shape=[2**62, 2**62]),
    "too many sizes": entry("0.0", shape=[1] * 99),
    "another dtype": entry("0.0", dtype="U32"),
    "an unknown dtype": entry("0.0", dtype="I128"),
    "overlapping tensors": entry("1.0", data_offsets=[0, 5120]),
    "offsets beyond the end": entry("0.0", data_offsets=[0, 10**12]),
    "offsets that are no pair": entry("0.0", data_offsets=[0]),
    "a layer that is not there": lambda h, b: ({**{k.replace("3.", "9."): v for k, v in h.items()}}, b),
    "a part that is missing": lambda h, b: ({k: v for k, v in h.items() if k != "3.1"}, b[: -2 * 3 * 8 * 4]),
    "no metadata": lambda h, b: ({k: v for k, v in h.items() if k != "__metadata__"}, b),
    "other metadata": entry("__metadata__", format="somebody-else-1"),
    "a header that is no object": lambda h, b: ([1, 2], b),
    "a header that is no JSON": lambda h, b: (b"{" * 50, b),
    "a header nested beyond reason": lambda h, b: (b"[" * 100_000, b),
    "a name twice": lambda h, b: (b'{"a": 1, "a": 2}', b),
    "more than all tensors": lambda h, b: (h, b + b"\0" * 8),
}


SOUND_BUT_NOT_OURS = {"another dtype", "a part that is missing", "a layer that is not there"}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_page_is_removed(tmp_path: Path, kind: str) -> None:
    path = one_file(tmp_path)
    rewritten(path, HOSTILE[kind])
    if kind not in SOUND_BUT_NOT_OURS:
        with pytest.raises(BadPage):
            read_page(path)
    assert rejected(tmp_path)


def test_a_full_layer_must_hold_every_token(tmp_path: Path) -> None:
    (stored,) = pages(10)
    span = stored.page[0]
    assert isinstance(span, Span)
    short = Span(0, 10, tuple(mx.contiguous(part) for part in span.cut(2, 10)))
    mx.eval(list(short.arrays))
    saved(tmp_path, KEYS[:10], [Stored(0, 10, (short, *stored.page[1:]))]).close()
    assert rejected(tmp_path)


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    path = one_file(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / path.name.upper()).write_text("mine")
    link = tmp_path / path.name.replace("-10-", "-11-")
    link.symlink_to(tmp_path / "notes.txt")
    assert [file.path for file in list_pages(tmp_path)] == [path]
    clear_pages(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(["notes.txt", path.name.upper(), link.name])


def test_a_page_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    path = one_file(tmp_path)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        read_page(path)


def test_pages_are_their_owners_alone(tmp_path: Path) -> None:
    path = one_file(tmp_path / "pages")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def aged(folder: Path, seconds: dict[int, float]) -> list[PageFile]:
    for file in list_pages(folder):
        os.utime(file.path, (seconds[file.stop], seconds[file.stop]))
    return list_pages(folder)


def test_the_least_recently_used_pages_go(tmp_path: Path) -> None:
    saved(tmp_path, KEYS[:31], pages(10, 25, 31)).close()
    files = aged(tmp_path, {25: 1000, 10: 2000, 31: 3000})
    assert [file.stop for file in files] == [25, 10, 31]
    limit = sum(file.nbytes for file in files) - 1
    assert trim_pages(tmp_path, limit) == files[0].nbytes
    assert [file.stop for file in list_pages(tmp_path)] == [10, 31]
    assert trim_pages(tmp_path, limit) == 0


def test_writing_keeps_within_the_limit(tmp_path: Path) -> None:
    stored = pages(10, 25, 31)
    saved(tmp_path, KEYS[:31], stored, limit=page_bytes(stored[1].page) + 8000).close()
    assert sum(file.nbytes for file in list_pages(tmp_path)) <= page_bytes(stored[1].page) + 8000


def test_use_makes_pages_young_again_and_parents_youngest(tmp_path: Path) -> None:
    disk = saved(tmp_path, KEYS[:31], pages(10, 25, 31))
    aged(tmp_path, {10: 1000, 25: 2000, 31: 3000})
    found(disk, KEYS)
    assert [file.stop for file in list_pages(tmp_path)] == [31, 25, 10]
    assert list_pages(tmp_path)[0].used_at_s > 4000
    disk.close()


def test_clearing_can_spare_other_models(tmp_path: Path) -> None:
    saved(tmp_path, KEYS[:10], pages(10)).close()
    saved(tmp_path, KEYS[:10], pages(10), model="sha256:bb").close()
    freed = clear_pages(tmp_path, "sha256:bb")
    (left,) = list_pages(tmp_path)
    assert freed == left.nbytes
    assert left.model == model_mark("sha256:aa")
    assert clear_pages(tmp_path / "nowhere") == 0


def test_a_page_is_written_once_and_again_when_it_knows_more(tmp_path: Path) -> None:
    (stored,) = pages(10)
    full, rotating, *_ = stored.page
    less = Stored(0, 10, (full, rotating, None, None))
    for page, wanted in ((less, less), (stored, stored), (less, stored)):
        disk = saved(tmp_path, KEYS[:10], [page])
        assert same(found(disk, KEYS)[0], wanted)
        disk.close()


def test_a_page_that_waits_to_be_written_is_not_queued_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, written = threading.Event(), list[Path]()
    monkeypatch.setattr("runtime.cache.disk.write_page", lambda path, *_: (go.wait(10), written.append(path)))
    disk = opened(tmp_path)
    for _ in range(3):
        disk.save(KEYS[:25], pages(10, 25))
    go.set()
    disk.close()
    assert len(written) == len({*written}) == 2


def test_what_does_not_fit_the_queue_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = pages(10, 25)
    monkeypatch.setattr("runtime.cache.disk.QUEUED_BYTES", page_bytes(stored[0].page))
    go = threading.Event()
    real = write_page
    monkeypatch.setattr("runtime.cache.disk.write_page", lambda *job: (go.wait(10), real(*job)))
    disk = opened(tmp_path)
    disk.save(KEYS[:25], stored)
    go.set()
    disk.close()
    assert [file.stop for file in list_pages(tmp_path)] == [10]


def test_what_a_killed_writer_left_is_no_page_and_is_cleared(tmp_path: Path) -> None:
    path = one_file(tmp_path)
    path.rename(path.with_name(path.name + ".0123abcd.part"))
    disk = opened(tmp_path)
    assert found(disk, KEYS) == []
    disk.close()
    assert [file.partial for file in list_pages(tmp_path)] == [True]
    assert clear_pages(tmp_path) > 0


def test_a_disk_that_fails_costs_pages_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "pages"
    disk = opened(folder)
    folder.rmdir()
    disk.save(KEYS[:25], pages(10, 25))
    disk.close()
    assert len(caplog.records) == 1
    assert "no longer written" in caplog.text


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
    assert (top.before, top.kept, top.ids, top.layers) == ("", "f32", KEYS[:10], (0, 1, 2, 3))
    assert (below.before, below.ids) == (first.key, KEYS[10:25])


def test_keys_that_are_no_token_ids_are_left_out(tmp_path: Path) -> None:
    keys = ("image", *KEYS[:9])
    disk = saved(tmp_path, keys, pages(10))
    assert read_facts(list_pages(tmp_path)[0].path).ids == KEYS[:9]
    assert [stored.stop for stored in found(disk, (*keys, 1))] == [10]
    disk.close()


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_a_hostile_page_tells_is_not_believed(tmp_path: Path, kind: str) -> None:
    path = one_file(tmp_path)
    rewritten(path, HOSTILE[kind])
    if kind not in SOUND_BUT_NOT_OURS:
        with pytest.raises(BadPage):
            read_facts(path)


def test_a_page_with_other_keys_than_its_name_says_is_removed(tmp_path: Path) -> None:
    path = one_file(tmp_path)

    def change(header: dict[str, object], body: bytes) -> tuple[object, bytes]:
        return header, struct.pack("<I", 7) + body[4:]

    rewritten(path, change)
    assert rejected(tmp_path)


def test_a_page_larger_than_the_limit_drives_out_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small, large = pages(10), pages(30)
    saved(tmp_path, KEYS[:10], small).close()
    (kept,) = list_pages(tmp_path)
    saved(tmp_path, KEYS[:30], large, limit=kept.nbytes + 100).close()
    assert list_pages(tmp_path) == [kept]
    assert "the limit on disk is" in caplog.text


def test_a_page_alone_in_the_queue_may_be_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.cache.disk.QUEUED_BYTES", 1)
    saved(tmp_path, KEYS[:10], pages(10)).close()
    assert len(list_pages(tmp_path)) == 1


def test_a_lower_limit_holds_from_the_start(tmp_path: Path) -> None:
    saved(tmp_path, KEYS[:31], pages(10, 25, 31)).close()
    opened(tmp_path, limit=0).close()
    assert list_pages(tmp_path) == []


def test_trimming_spares_what_is_being_written_and_removes_what_never_will_be(tmp_path: Path) -> None:
    path = one_file(tmp_path)
    new, old = (path.with_name(f"{path.name}.{number:08x}.part") for number in (1, 2))
    for part in (new, old):
        part.write_bytes(b"half")
    os.utime(old, (1000, 1000))
    trim_pages(tmp_path, 1 << 30)
    assert (path.exists(), new.exists(), old.exists()) == (True, True, False)
    trim_pages(tmp_path, 0)
    assert (path.exists(), new.exists()) == (False, True)


def test_a_page_removed_by_another_process_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = saved(tmp_path, KEYS[:25], pages(10, 25))
    real = read_page

    def gone(path: Path) -> object:
        if "-10-25-" in path.name:
            path.unlink()
        return real(path)

    monkeypatch.setattr("runtime.cache.disk.read_page", gone)
    assert [stored.stop for stored in found(disk, KEYS)] == [10]
    assert caplog.text == ""
    disk.close()


def test_clearing_while_a_page_is_written_costs_that_page_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = list[Path]()

    def cleared(path: Path, *rest: Any) -> None:
        calls.append(path)
        if len(calls) == 1:
            raise FileNotFoundError(2, "No such file or directory")
        write_page(path, *rest)

    monkeypatch.setattr("runtime.cache.disk.write_page", cleared)
    saved(tmp_path, KEYS[:25], pages(10, 25)).close()
    assert [file.stop for file in list_pages(tmp_path)] == [25]
    assert caplog.text == ""


TWO = """
import sys
from pathlib import Path
from runtime.cache.page_files import *
folder, seed = Path(sys.argv[1]), int(sys.argv[2])
for turn in range(150):
    number = (turn * 7 + seed) % 40
    key = f"{number:064x}"
    path = folder / page_name("0" * 16, 0, 4, key)
    body = bytes([number]) * 4000
    try:
        write_page(path, {"0.0": Tensor("U32", (1000,), body)})
    except FileNotFoundError:
        continue  # the other one has just cleared the folder
    trim_pages(folder, 60_000)
    for page in [page for page in list_pages(folder) if not page.partial]:
        try:
            (tensor,) = read_page(page.path).values()
        except FileNotFoundError:
            continue
        assert bytes(tensor.data) == bytes([int(page.key, 16)]) * 4000
    if turn % 50 == 49:
        clear_pages(folder)
"""


def test_two_processes_at_once_see_whole_pages_only(tmp_path: Path) -> None:
    jobs = [
        subprocess.Popen([sys.executable, "-c", TWO, str(tmp_path), str(seed)], stderr=subprocess.PIPE)
        for seed in (0, 3)
    ]
    assert [job.communicate(timeout=60)[1].decode() for job in jobs] == ["", ""]
    assert sum(page.nbytes for page in list_pages(tmp_path)) <= 70_000


def test_listing_pages_needs_no_mlx() -> None:
    code = "import sys, runtime.cache.page_files; sys.exit('mlx' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
