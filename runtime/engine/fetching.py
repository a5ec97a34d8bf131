"""What the disk knows of a row that waits is read while others are served, on a thread of its own.

A page may be as large as a prompt is long, and a disk as slow as it likes: read by the engine's thread, it
would keep all others from their tokens. So a row whose beginning is on disk waits until that is in memory,
and whoever came after it goes first.
"""

from collections.abc import Hashable, Sequence
from typing import Protocol

from runtime.cache.disk_pages import Reading, insert_pages
from runtime.cache.prefix import PrefixStore
from runtime.records import dataclass


class Keeper(Protocol):
    """Keeps pages in memory."""

    store: PrefixStore

    def readable(self, keys: Sequence[Hashable], ranges: Sequence[tuple[int, int]]) -> int:
        """How many of these pages of a sequence, which were read from disk here, may come into the store."""
        ...


@dataclass(slots=True, eq=False)
class Fetch:
    """Pages on their way from the disk into the store of `keeper`."""

    keeper: Keeper
    reading: Reading

    @property
    def over(self) -> bool:
        """Will no more come?"""
        return self.reading.over

    def store(self) -> None:
        """Keep in memory what has come. It counts as use, and may be forgotten like anything there."""
        keys, pages = self.reading.keys, self.reading.pages
        if pages:
            count = self.keeper.readable(keys, [(stored.start, stored.stop) for stored in pages])
            insert_pages(self.keeper.store, keys, pages[:count])
