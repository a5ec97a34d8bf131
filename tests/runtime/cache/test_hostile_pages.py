"""Files in the folder of pages that are damaged, foreign or made to harm: they read as nothing and go."""

import json
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

from runtime.cache.disk_pages import Stored
from runtime.cache.page_files import BadPage, read_facts, read_page
from runtime.cache.page_folder import clear_pages, list_pages
from runtime.cache.snapshot import Span
from tests.support.disk_pages import KEYS, found, one_file, opened, pages, saved


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
    "a header that is not an object": lambda h, b: ([1, 2], b),
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
