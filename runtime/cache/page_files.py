"""Pages as files in a folder: names, strict headers, bounded bytes. No MLX here, so listing them is cheap.

A file is named by the model, the range of positions and a digest of all keys before its stop. It is an
ordinary safetensors file, which also holds its keys, as far as they are token ids, and the digest of the keys
before its start: so the tree can be drawn. Other people's files in the folder are left alone; of those with
such a name, nothing is believed before it is checked.

Invariants: a file appears whole or not at all (it is renamed into place), is never changed afterwards, and is
for its owner's eyes only; symbolic links are not followed.
"""

import fcntl
import hashlib
import json
import os
import re
import secrets
import struct
import time
import zlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

NAME = re.compile(
    r"([0-9a-f]{16})-([0-9]{1,9})-([0-9]{1,9})-([0-9a-f]{64})\.safetensors(\.[0-9a-f]{8}\.part)?"
)
FORMAT = "modelkit-prefix-1"
HEADER_BYTES = 1 << 22
KEYS, NO_ID = "keys", (1 << 32) - 1
_METADATA = {"format", "name", "before", "kept", "crc32"}
# Where files cannot be locked, one that was still being written so long ago never will be.
STALE_S = 3600.0
DTYPE_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "U32": 4}
Buffer = bytes | memoryview


class BadPage(ValueError):
    """A page file that is not what its name says: why."""


@dataclass(frozen=True, slots=True)
class PrefixFolder:
    """Where pages are kept on disk. model: digest of everything that is loaded. limit_bytes: for the pages of
    all models in the folder together.
    """

    path: Path
    model: str
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class PageFile:
    """The page of [start, stop) of some sequence. model: `model_mark` of the model it belongs to.

    key: sha256 over the namespace and all keys before stop. partial: it was still being written.
    """

    path: Path
    model: str
    start: int
    stop: int
    key: str
    nbytes: int
    used_at_s: float
    partial: bool


@dataclass(frozen=True, slots=True)
class Tensor:
    dtype: str
    shape: tuple[int, ...]
    data: Buffer


@dataclass(frozen=True, slots=True)
class PageFacts:
    """What a page says of itself. before: `PageFile.key` of the page that ends where it begins; "" for none.

    kept: how its keys and values are kept. ids: the keys of [start, stop) that are token ids. layers: those
    it holds something of.
    """

    before: str
    kept: str
    ids: tuple[int, ...]
    layers: tuple[int, ...]


def model_mark(model: str) -> str:
    """What stands for a model's digest in file names."""
    return hashlib.sha256(model.encode()).hexdigest()[:16]


def key_digests(namespace: str, keys: Sequence[Hashable], stops: Iterable[int]) -> Iterator[tuple[int, str]]:
    """For each stop, ascending: the digest of everything before it."""
    running, at = hashlib.sha256(namespace.encode()), 0
    for stop in stops:
        assert at <= stop <= len(keys)
        running.update("".join(f"\n{key!r}" for key in keys[at:stop]).encode())
        at = stop
        yield stop, running.hexdigest()


def page_name(model: str, start: int, stop: int, key: str) -> str:
    return f"{model}-{start}-{stop}-{key}.safetensors"


def list_pages(folder: Path) -> list[PageFile]:
    """All page files in the folder, least recently used first; [] when there is no folder."""
    pages: list[PageFile] = []
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            match = NAME.fullmatch(entry.name)
            if match is None or not entry.is_file(follow_symlinks=False):
                continue
            with suppress(FileNotFoundError):  # another process may have removed it meanwhile
                stat = entry.stat(follow_symlinks=False)
                model, start, stop, key, part = match.groups()
                pages.append(
                    PageFile(
                        Path(entry.path),
                        model,
                        int(start),
                        int(stop),
                        key,
                        stat.st_size,
                        stat.st_mtime,
                        part is not None,
                    )
                )
    return sorted(pages, key=lambda page: page.used_at_s)


def abandoned_pages(folder: Path) -> list[PageFile]:
    """What killed writers left: parts of pages that no process writes to any more."""
    return [page for page in list_pages(folder) if page.partial and _is_abandoned(page)]


def _is_abandoned(page: PageFile) -> bool:
    """A writer holds a lock on its part, which dies with it."""
    try:
        descriptor = os.open(page.path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return False  # whole by now, or gone
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return page.used_at_s < time.time() - STALE_S
    finally:
        os.close(descriptor)
    return True


def trim_pages(folder: Path, limit_bytes: int) -> int:
    """Remove what killed writers left, then the least recently used pages until the rest fits. What is
    being written now is left alone. Returns the bytes removed.
    """
    pages, freed = list_pages(folder), 0
    held = sum(page.nbytes for page in pages)
    for page in [*abandoned_pages(folder), *(page for page in pages if not page.partial)]:
        if held - freed <= limit_bytes and not page.partial:
            break
        page.path.unlink(missing_ok=True)
        freed += page.nbytes
    return freed


def clear_pages(folder: Path, model: str | None = None) -> int:
    """Remove all pages, or those of one model (its digest). Returns the bytes removed."""
    mark = None if model is None else model_mark(model)
    freed = 0
    for page in list_pages(folder):
        if mark in (None, page.model):
            page.path.unlink(missing_ok=True)
            freed += page.nbytes
    return freed


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
        raise BadPage(f"a header of {length} bytes")
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
            raise BadPage(f"a header of {length} bytes")
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
    """Keys as a tensor, those that are no token ids as NO_ID."""
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
        raise BadPage("its header is no object")
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
