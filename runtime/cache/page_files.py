"""Pages as files in a folder: names, strict headers, bounded bytes. No MLX here, so listing them is cheap.

A file is named by the model, the range of positions and a digest of all keys before its stop, and says
nothing about what the keys were. It is an ordinary safetensors file. Other people's files in the folder are
left alone; of those with such a name, nothing is believed before it is checked.

Invariants: a file appears whole or not at all (it is renamed into place), is never changed afterwards, and is
for its owner's eyes only; symbolic links are not followed.
"""

import hashlib
import json
import os
import re
import secrets
import struct
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


def trim_pages(folder: Path, limit_bytes: int) -> int:
    """Remove the least recently used pages until the rest fits. Returns the bytes removed."""
    pages = list_pages(folder)
    held, freed = sum(page.nbytes for page in pages), 0
    for page in pages:
        if held - freed <= limit_bytes:
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


def write_page(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a page under a name of `page_name`, whole or not at all. OSError when the disk will not."""
    header, offset, crc = {}, 0, 0
    for name, tensor in tensors.items():
        size = _size(tensor.dtype, tensor.shape)
        header[name] = {
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": (offset, offset + size),
        }
        offset, crc = offset + size, zlib.crc32(tensor.data, crc)
    header["__metadata__"] = {"format": FORMAT, "name": path.name, "crc32": f"{crc:08x}"}
    blob = json.dumps(header, separators=(",", ":")).encode()
    blob += b" " * (-len(blob) % 8)
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(struct.pack("<Q", len(blob)) + blob)
            for tensor in tensors.values():
                file.write(tensor.data)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


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
    metadata = header.pop("__metadata__", None)
    wanted = {"format": FORMAT, "name": path.name, "crc32": f"{zlib.crc32(body):08x}"}
    if metadata != wanted:
        raise BadPage("it was written for something else, or has been damaged")
    return _tensors(header, body)


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


def _tensors(header: Mapping[str, Any], body: memoryview) -> dict[str, Tensor]:
    """Tensors that lie one behind the other and fill the body."""
    tensors: dict[str, Tensor] = {}
    at = 0
    for name, entry in header.items():
        match entry:
            case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(stop)]}:
                pass
            case _:
                raise BadPage(f"{name:.40}: not an entry")
        if dtype not in DTYPE_BYTES or len(shape) > 8 or not all(_is_size(dim) for dim in shape):
            raise BadPage(f"{name:.40}: an impossible shape or dtype")
        if start != at or stop != start + _size(dtype, shape) or stop > len(body):
            raise BadPage(f"{name:.40}: impossible offsets")
        tensors[name] = Tensor(dtype, tuple(shape), body[start:stop])
        at = stop
    if at != len(body):
        raise BadPage("it is longer than its tensors")
    return tensors


def _is_size(dim: object) -> bool:
    return type(dim) is int and 0 <= dim < 1 << 31


def _size(dtype: str, shape: Sequence[int]) -> int:
    size = DTYPE_BYTES[dtype]
    for dim in shape:
        size *= dim
    return size
