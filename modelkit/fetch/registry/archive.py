"""Files out of a tar archive that a stranger made: plain or compressed, one after the other, never to a path.

Only regular files come out; folders are passed over. Links, devices and all other kinds are refused, as are
names that `store.paths` refuses. The headers are read here rather than by tarfile, which takes as much memory
as a header asks for. What is unpacked may be longer than the archive only within bounds.

The format: POSIX.1-2001 ustar with its extended headers, and GNU's long names.
"""

import gzip
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import BinaryIO, cast

from modelkit.errors import FetchError
from modelkit.store.manifest import BLOB_LIMIT_BYTES, LAYER_LIMIT
from modelkit.store.paths import check_path
from runtime.quoting import quoted, sentence
from runtime.records import dataclass

BLOCK_BYTES = 512
_PIECE_BYTES = 1 << 20
_HEADER_LIMIT_BYTES = 64 << 10  # of an extended header; names have at most a few hundred bytes
_SIZE_DIGITS = 20  # of 64 bits
_MOST_EXPANSION = 200  # tables of merges shrink to a tenth; a bomb to a thousandth
_FREE_BYTES = 16 << 20  # that a small archive may become in any case


@dataclass(frozen=True, slots=True)
class Member:
    """A file in an archive. What of its pieces is left when the next one is asked for is passed over."""

    path: str
    size_bytes: int
    pieces: Iterator[bytes]


def members(archive: BinaryIO, size_bytes: int, packing: str, what: str) -> Iterator[Member]:
    """The files of an open archive of `size_bytes`. packing: `tar`, `tar+gzip`, `tar+zstd`.

    Raises FetchError, naming `what`, for an archive that is damaged or not allowed; StoreError for a name.
    """
    source = _Source(_unpacked(archive, size_bytes, packing, what), what)
    count = 0
    extended: dict[str, str] = {}
    while True:
        header = source.take(BLOCK_BYTES)
        if not header.strip(b"\0"):
            return
        kind, length = _kind(header, what), _number(header[124:136], what)
        if kind in "xgLK":
            extended.update(_extension(kind, source, length, what))
            continue
        name = extended.get("path") or _name(header)
        length = _size(extended.get("size"), length, what)
        extended = {}
        if kind == "5":
            continue
        if kind not in "0\0" or length > BLOB_LIMIT_BYTES:
            raise FetchError(
                f"{what} holds {quoted(name)}, which is not a regular file (kind {quoted(kind)})"
            )
        count += 1
        if count > LAYER_LIMIT:
            raise FetchError(f"{what} holds more than {LAYER_LIMIT:,} files")
        source.begin(length)
        yield Member(check_path(name.removeprefix("./")), length, source.pieces())
        source.end(length)


class _Source:
    """Bytes of the unpacked archive, in order."""

    def __init__(self, pieces: Iterator[bytes], what: str) -> None:
        self._pieces = pieces
        self._what = what
        self._here = memoryview(b"")
        self._left = 0

    def take(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            found += self._some(count - len(found))
        return bytes(found)

    def begin(self, count: int) -> None:
        """A member of so many bytes begins."""
        self._left = count

    def pieces(self) -> Iterator[bytes]:
        """What is left of the member."""
        while self._left:
            piece = self._some(self._left)
            self._left -= len(piece)
            yield piece

    def end(self, count: int) -> None:
        """Pass over what is left of the member, and the padding behind it."""
        for _ in self.pieces():
            pass
        self.take(-count % BLOCK_BYTES)

    def _some(self, count: int) -> bytes:
        while not self._here:
            piece = next(self._pieces, None)
            if piece is None:
                raise FetchError(f"{self._what} ends in the middle")
            self._here = memoryview(piece)
        piece, self._here = self._here[:count], self._here[count:]
        return bytes(piece)


def _kind(header: bytes, what: str) -> str:
    """The type flag of a header whose checksum is right."""
    said = _number(header[148:156], what)
    if sum(header[:148]) + 8 * 32 + sum(header[156:]) != said:
        raise FetchError(f"{what} is not a valid tar archive")
    return chr(header[156])


def _name(header: bytes) -> str:
    prefix = header[345:500] if header[257:263] == b"ustar\0" else b""
    name = header[:100].partition(b"\0")[0]
    prefix = prefix.partition(b"\0")[0]
    return (prefix + b"/" + name if prefix else name).decode("utf-8", "replace")


def _number(field: bytes, what: str) -> int:
    """Octal digits, or base 256 where the first bit is set."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    text = field.strip(b" \0")
    if not text:
        return 0
    if not all(digit in b"01234567" for digit in text):
        raise FetchError(f"{what} is not a valid tar archive")
    return int(text, 8)


def _size(said: str | None, length: int, what: str) -> int:
    """What an extended header says of it, where it does, else the header."""
    if said is None:
        return length
    if not (said.isascii() and said.isdecimal() and len(said) <= _SIZE_DIGITS):
        raise FetchError(f"{what} is not a valid tar archive")
    return int(said)


def _extension(kind: str, source: _Source, length: int, what: str) -> dict[str, str]:
    """What an extended header says of the next file: its `path` and `size`."""
    if length > _HEADER_LIMIT_BYTES:
        raise FetchError(f"{what} has a header of {length:,} bytes; at most {_HEADER_LIMIT_BYTES} are read")
    raw = source.take(length)
    source.take(-length % BLOCK_BYTES)
    if kind == "L":
        return {"path": raw.partition(b"\0")[0].decode("utf-8", "replace")}
    if kind in "gK":  # of all files, such as a comment; of links, which are refused
        return {}
    found = dict(_records(raw, what))
    if any(key.startswith("GNU.sparse") for key in found):
        raise FetchError(f"{what} holds a sparse file, which is not read")
    return {key: found[key] for key in ("path", "size") if key in found}


def _records(raw: bytes, what: str) -> Iterator[tuple[str, str]]:
    """The records `length key=value\\n` of a pax header."""
    place = 0
    while place < len(raw):
        digits, blank, _ = raw[place : place + 8].partition(b" ")
        length = int(digits) if blank and digits.isdigit() else 0
        record = raw[place + len(digits) + 1 : place + length]
        if length <= len(digits) + 1 or place + length > len(raw) or not record.endswith(b"\n"):
            raise FetchError(f"{what} is not a valid tar archive")
        key, _, value = record[:-1].partition(b"=")
        yield key.decode("utf-8", "replace"), value.decode("utf-8", "replace")
        place += length


def _unpacked(archive: BinaryIO, size_bytes: int, packing: str, what: str) -> Iterator[bytes]:
    """The archive without its compression, as long as it stays within bounds."""
    limit, made, source = max(_FREE_BYTES, size_bytes * _MOST_EXPANSION), 0, _opened(archive, packing, what)
    while True:
        try:
            piece = source.read(_PIECE_BYTES)
        except Exception as error:
            # Each library has its own errors, and all mean the same.
            raise FetchError(f"{what} is damaged: {sentence(str(error))}") from error
        if not piece:
            return
        made += len(piece)
        if made > limit:
            raise FetchError(f"{what} grows beyond {_MOST_EXPANSION} times its size when unpacked; refused")
        yield piece


def _opened(archive: BinaryIO, packing: str, what: str) -> BinaryIO:
    if packing == "tar+gzip":
        return cast("BinaryIO", gzip.GzipFile(fileobj=archive, mode="rb"))
    if packing == "tar+zstd":
        return _zstd(archive, what)
    return archive


def _zstd(archive: BinaryIO, what: str) -> BinaryIO:
    """By Python's own library (3.14), or one of those that people install."""
    for module in ("compression.zstd", "backports.zstd"):
        with suppress(ImportError):
            return import_module(module).open(archive, "rb")
    with suppress(ImportError):
        return import_module("zstandard").ZstdDecompressor().stream_reader(archive)
    raise FetchError(
        f"{what} is packed with zstd, for which no library is installed",
        hint="Install one: pip install zstandard",
    )
