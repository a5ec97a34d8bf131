"""One page as a file: a strict header, checked before anything in it is believed. No MLX here.

It is an ordinary safetensors file, which also holds its keys, as far as they are token ids, and the digest of
the keys before its start: so the tree can be drawn. Its name is in its header too.

Invariants: a file appears whole or not at all (it is renamed into place), is never changed afterwards, and is
for its owner's eyes only; symbolic links are not followed.
"""

import fcntl
import json
import os
import secrets
import struct
import zlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from runtime.records import dataclass

FORMAT = "modelkit-prefix-2"
HEADER_BYTES = 1 << 22
KEYS, NO_ID = "keys", (1 << 32) - 1
_METADATA = {"format", "name", "before", "kept", "crc32"}
DTYPE_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "U32": 4}
Buffer = bytes | memoryview


class BadPage(ValueError):
    """A page file that is not what its name says: why."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a page file."""

    dtype: str
    """Its name in the safetensors format."""
    shape: tuple[int, ...]
    data: Buffer
    """Its bytes, row by row."""


@dataclass(frozen=True, slots=True)
class PageFacts:
    """What a page file's header says of the page."""

    before: str
    """`PageFile.key` of the page that ends where this one begins; "" for none."""
    kept: str
    """The format of its keys and values."""
    ids: tuple[int, ...]
    """The keys of [start, stop), as far as they are token ids."""
    layers: tuple[int, ...]
    """Indices of the layers that it holds something of."""


def write_page(path: Path, tensors: Mapping[str, Tensor], before: str = "", kept: str = "") -> None:
    """Write a page under a name of `page_name`, whole or not at all. OSError when the disk will not.

    before, kept: as in PageFacts.
    """
    crc = 0
    for tensor in tensors.values():
        crc = zlib.crc32(tensor.data, crc)
    blob = _header(path, tensors, before, kept, crc)
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(struct.pack("<Q", len(blob)) + blob)
            for tensor in tensors.values():
                file.write(tensor.data)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def file_bytes(path: Path, tensors: Mapping[str, Tensor], before: str = "", kept: str = "") -> int:
    """What `write_page` would write."""
    body = sum(_size(tensor.dtype, tensor.shape) for tensor in tensors.values())
    return 8 + len(_header(path, tensors, before, kept, 0)) + body


def read_page(path: Path) -> dict[str, Tensor]:
    """The tensors of a page, checked: header, bounds, name and checksum. BadPage, or OSError."""
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
        content = memoryview(file.read())
    if len(content) < 8:
        raise BadPage("it is cut short")
    (length,) = struct.unpack_from("<Q", content)
    if not 2 <= length <= min(HEADER_BYTES, len(content) - 8):
        raise BadPage(f"a header of {length:,} bytes")
    body = content[8 + length :]
    header = _parsed(bytes(content[8 : 8 + length]))
    metadata = _metadata(header, path)
    if metadata["crc32"] != f"{zlib.crc32(body):08x}":
        raise BadPage("it has been damaged")
    entries = _entries(header, len(body))
    return {name: Tensor(dtype, shape, body[start:stop]) for name, (dtype, shape, start, stop) in entries}


def read_facts(path: Path) -> PageFacts:
    """What a page says of itself, read from its header and its keys alone. BadPage, or OSError."""
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))
        if not 2 <= length <= min(HEADER_BYTES, size - 8):
            raise BadPage(f"a header of {length:,} bytes")
        header = _parsed(file.read(length))
        metadata = _metadata(header, path)
        entries = dict(_entries(header, size - 8 - length))
        ids: tuple[int, ...] = ()
        if KEYS in entries:
            *_, start, stop = entries.pop(KEYS)
            file.seek(8 + length + start)
            ids = unpack_ids(file.read(stop - start))
    layers = {int(layer) for name in entries if (layer := name.partition(".")[0]).isdecimal()}
    return PageFacts(metadata["before"], metadata["kept"], ids, tuple(sorted(layers)))


def pack_ids(keys: Sequence[Hashable]) -> Tensor:
    """Keys as a tensor, those that are not token ids as NO_ID."""
    ids = [key if type(key) is int and 0 <= key < NO_ID else NO_ID for key in keys]
    return Tensor("U32", (len(ids),), struct.pack(f"<{len(ids)}I", *ids))


def unpack_ids(data: Buffer) -> tuple[int, ...]:
    """The token ids among such keys."""
    return tuple(key for key in struct.unpack(f"<{len(data) // 4}I", data) if key != NO_ID)


def _metadata(header: dict[str, Any], path: Path) -> dict[str, str]:
    """Taken out of the header, and checked but for the checksum."""
    found = header.pop("__metadata__", None)
    if not isinstance(found, dict) or found.keys() != _METADATA:
        raise BadPage("it was written for something else, or has been damaged")
    metadata = {str(key): str(value) for key, value in cast("dict[str, Any]", found).items()}
    if (metadata["format"], metadata["name"]) != (FORMAT, path.name):
        raise BadPage("it was written for something else, or has been damaged")
    return metadata


def _header(path: Path, tensors: Mapping[str, Tensor], before: str, kept: str, crc: int) -> bytes:
    header: dict[str, Any] = {}
    offset = 0
    for name, tensor in tensors.items():
        stop = offset + _size(tensor.dtype, tensor.shape)
        header[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": (offset, stop)}
        offset = stop
    metadata = {
        "format": FORMAT,
        "name": path.name,
        "before": before,
        "kept": kept,
        "crc32": f"{crc:08x}",
    }
    blob = json.dumps({**header, "__metadata__": metadata}, separators=(",", ":")).encode()
    return blob + b" " * (-len(blob) % 8)


def _parsed(blob: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) < len(pairs):
            raise BadPage("a name stands twice in its header")
        return dict(pairs)

    try:
        header = json.loads(blob, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise BadPage(f"its header cannot be read: {error}") from error
    if not isinstance(header, dict):
        raise BadPage("its header is not an object")
    return cast("dict[str, Any]", header)


_Entry = tuple[str, tuple[int, ...], int, int]
"""dtype, shape, and where its bytes start and stop."""


def _entries(header: Mapping[str, Any], body_bytes: int) -> Iterator[tuple[str, _Entry]]:
    """Tensors that lie one behind the other and fill the body."""
    at = 0
    for name, entry in header.items():
        match entry:
            case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(stop)]}:
                pass
            case _:
                raise BadPage(f"{name:.40}: not an entry")
        if dtype not in DTYPE_BYTES or len(shape) > 8 or not all(_is_size(dim) for dim in shape):
            raise BadPage(f"{name:.40}: an impossible shape or dtype")
        if start != at or stop != start + _size(dtype, shape) or stop > body_bytes:
            raise BadPage(f"{name:.40}: impossible offsets")
        yield name, (dtype, tuple(shape), start, stop)
        at = stop
    if at != body_bytes:
        raise BadPage("it is longer than its tensors")


def _is_size(dim: object) -> bool:
    return type(dim) is int and 0 <= dim < 1 << 31


def _size(dtype: str, shape: Sequence[int]) -> int:
    size = DTYPE_BYTES[dtype]
    for dim in shape:
        size *= dim
    return size
