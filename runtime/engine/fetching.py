"""What the disk knows of rows that wait is read while others are served, on a thread of its own.

A page may be as large as a prompt is long, and a disk as slow as it likes: read by the engine's thread, it
would keep all others from their tokens. So a row whose beginning is on disk waits until that is in memory,
and whoever came after it goes first.

The disk reads for one row at a time, and only while a place is free: many may wait that begin alike, or whose
beginnings together are more than may be kept, and what was read for one would be forgotten for the next
before either has begun. So a row begins in the very moment that its pages are put into memory, if it can;
where others have taken the last place meanwhile they are kept like anything there, and once more the disk is
asked.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from runtime.cache.disk_pages import DiskPages, Reading, insert_pages
from runtime.cache.prefix import PrefixStore
from runtime.engine.row import Row
from runtime.records import dataclass

MOST_ASKED = 2
"""So often the disk is asked for a row that waits. Then the row computes what memory has forgotten."""


class Keeper(Protocol):
    """Keeps pages in memory."""

    store: PrefixStore

    def expect(self, keys: Sequence[Hashable], ranges: Sequence[tuple[int, int]]) -> None:
        """These pages of a sequence, one behind the other, are read from disk here, and will be asked for in
        place of those before; none: they will not.
        """
        ...

    def readable(self, keys: Sequence[Hashable], ranges: Sequence[tuple[int, int]]) -> int:
        """How many of these pages of a sequence, which were read from disk here, may come into the store."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Fetch:
    """Pages on `disk` that the store of `keeper` lacks."""

    keeper: Keeper
    disk: DiskPages
    reading: Reading

    def begin(self) -> None:
        """Have them read."""
        self.keeper.expect(self.reading.keys, [(file.start, file.stop) for file in self.reading.files])
        self.disk.begin(self.reading)

    def stop(self) -> None:
        """Nobody wants them any more."""
        self.reading.wanted = False
        self.keeper.expect((), ())

    @property
    def over(self) -> bool:
        """Will no more come?"""
        return self.reading.over

    @property
    def wanted(self) -> bool:
        """Was it not stopped?"""
        return self.reading.wanted

    def store(self) -> None:
        """Keep in memory what has come. It counts as use, and may be forgotten like anything there."""
        keys, pages = self.reading.keys, self.reading.pages
        if pages:
            count = self.keeper.readable(keys, [(stored.start, stored.stop) for stored in pages])
            insert_pages(self.keeper.store, keys, pages[:count])


class Fetches:
    """Rows that wait for the disk, of those that wait for a place. find: what the disk alone knows of a row
    now, to be read; None where that is nothing.
    """

    def __init__(self, find: Callable[[Row], Fetch | None]) -> None:
        self._find = find
        self._queue: dict[Row, None] = {}  # in order
        self._read: tuple[Row, Fetch] | None = None

    def waits(self, row: Row) -> bool:
        """Is it still to be read for this row?"""
        if self._read is not None and self._read[0] is row:
            return not self._read[1].over
        return row in self._queue

    def bring(self, row: Row) -> bool:
        """A place is free for this row: put into memory what was read for it. False where the row has to
        wait for the disk first.
        """
        if self._read is not None and self._read[0] is row:
            self.store()
        elif row.asked < MOST_ASKED:
            row.asked += 1
            if self._find(row) is not None:
                self._queue[row] = None
                return False
        return True

    def go_on(self, *, free: bool) -> None:
        """Have the disk read for the next row, if it reads for none and a place is free. What has come into
        memory since it was asked is not read.
        """
        if self._read is not None and self._read[1].over and not self._read[1].wanted:
            self._read = None
        while free and self._queue and self._read is None:
            row = next(iter(self._queue))
            del self._queue[row]
            if (fetch := self._find(row)) is not None:
                fetch.begin()
                self._read = row, fetch

    def store(self) -> None:
        """Put into memory what was read for a row that waits on, if all was."""
        if self._read is not None and self._read[1].over and self._read[1].wanted:
            (row, fetch), self._read = self._read, None
            row.known = None
            fetch.store()

    def leave(self, row: Row) -> None:
        """It does not wait any more."""
        self._queue.pop(row, None)
        if self._read is not None and self._read[0] is row:
            self._read[1].stop()
