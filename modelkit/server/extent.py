"""How much a JSON text holds, counted without reading it.

The reader of JSON holds the interpreter's lock from the first byte of an object to its last, in whatever
thread it runs: a million fields in a body of a few megabytes stop all streams of the server for as long as
they are made. So a body that holds more than anybody asks for is refused before it is read.
"""

import re

from runtime.records import dataclass

_PIECE_BYTES = 64 * 1024  # between two of them others have their turn
_ESCAPED = re.compile(rb"\\.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Extent:
    """What stands outside of texts. Of what is not JSON, some number."""

    parts: int
    """Fields of objects, objects and lists: each is made by itself, and has memory of its own."""
    values: int
    """Entries that follow another, in lists and objects."""

    def within(self, other: "Extent") -> bool:
        return self.parts <= other.parts and self.values <= other.values


def extent(data: bytes) -> Extent:
    """Of a whole JSON text."""
    found, start, within_text = Extent(0, 0), 0, False
    while start < len(data):
        stop = start + _PIECE_BYTES
        piece = data[start:stop]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # what is escaped comes with what escapes it
            piece = data[start : stop + 1]
        start += len(piece)
        runs = _ESCAPED.sub(b"", piece).split(b'"')
        more = at_most(b"".join(runs[within_text::2]))
        found = Extent(found.parts + more.parts, found.values + more.values)
        within_text ^= len(runs) % 2 == 0
    return found


def at_most(data: bytes) -> Extent:
    """As `extent`, with what looks alike in texts counted as well: a look at each byte, and no more."""
    return Extent(sum(map(data.count, (b":", b"{", b"["))), data.count(b","))
