"""The bytes of a header, front to back: every length is checked against what the file still has before
anything of that size is read.

A file is read in pieces that double, so a small header of a large file costs little, and a length that lies
costs nothing.
"""

import struct
from typing import BinaryIO

from modelkit.errors import MalformedFile, UnsupportedSource

MAX_HEADER_BYTES = 256 << 20

_FIRST_BYTES = 1 << 20
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class Cursor:
    """A place in the header of an opened file."""

    def __init__(self, file: BinaryIO, file_bytes: int, label: str) -> None:
        self.label = label
        """How messages call the file."""
        self.at = 0
        """The next byte."""
        self.data = bytearray()
        """All that was read so far; the file from its first byte on."""
        self._file = file
        self.file_bytes = file_bytes
        """Of the whole file."""

    def need(self, count: int, what: str) -> None:
        """Make sure that `count` more bytes are in `data`. Raises MalformedFile where the file has fewer."""
        end = self.at + count
        if end <= len(self.data):
            return
        if end > self.file_bytes:
            what = what.removeprefix(f"{self.label}: ")
            raise MalformedFile(
                f"{self.label} ends inside its header: {what} takes {count:,} bytes at byte {self.at:,}, "
                f"and the file has {self.file_bytes:,}",
                hint="The file is cut off or damaged; download it again.",
            )
        if end > MAX_HEADER_BYTES:
            raise UnsupportedSource(f"{self.label} has a header of more than {MAX_HEADER_BYTES >> 20} MiB")
        wanted = max(end, min(2 * len(self.data), self.file_bytes), min(_FIRST_BYTES, self.file_bytes))
        self.data += self._file.read(wanted - len(self.data))
        if len(self.data) < end:
            raise MalformedFile(f"{self.label} became shorter while it was read")

    def take(self, count: int, what: str) -> bytes:
        self.need(count, what)
        start, self.at = self.at, self.at + count
        return bytes(self.data[start : self.at])

    def skip(self, count: int, what: str) -> None:
        self.need(count, what)
        self.at += count

    def u32(self, what: str) -> int:
        self.need(4, what)
        (value,) = _U32.unpack_from(self.data, self.at)
        self.at += 4
        return value

    def u64(self, what: str) -> int:
        self.need(8, what)
        (value,) = _U64.unpack_from(self.data, self.at)
        self.at += 8
        return value
