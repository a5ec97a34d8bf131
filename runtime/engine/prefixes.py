"""Between rows and the prefix store: where a row starts, when it is paged, and what it leaves behind.

A row begins with the longest beginning that is known, in memory or on disk, and may be resumed. Layers that
can be cut anywhere are paged once, when the row ends; all others, and what goes to disk, at marks while the
prompt is read, which is why chunks end there. Whatever ends a row, what it computed is kept.

A drafter's memory is not in the pages: it catches up from ids, or starts where it first sees the row. One
that cannot would be laid out behind the target's layers and paged with them.

Pages are evaluated before the next step is made: a copy that is still to be done makes the next write to a
row copy the whole buffer (measured: 200 ms in place of 0.2).

Invariant: `Use.kept` tokens of a row are in the store, and `Use.node`, which is held, keeps them there.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import mlx.core as mx

from runtime.cache.build import LayerMemory
from runtime.cache.disk import DiskPages, Stored
from runtime.cache.pages import cuts_anywhere, take_page
from runtime.cache.prefix import Entry, Match, PageNode, PrefixStore
from runtime.cache.trie import common
from runtime.engine.marks import page_marks
from runtime.engine.options import Options
from runtime.engine.row import Row
from runtime.errors import CacheFull

Placed = tuple[int, Row]
"""A row and its place in layer memory."""


@dataclass(slots=True)
class Use:
    """What a row has to do with the store. marks: where it is still to be paged, ascending."""

    kept: int
    node: PageNode
    marks: tuple[int, ...]


class Prefixes:
    """Does nothing without a store. spacing: least distance of marks nobody insists on, in tokens."""

    @classmethod
    def of(cls, memory: LayerMemory, options: Options, dtype: mx.Dtype) -> "Prefixes":
        """What the options ask for. dtype: of the activations. OSError where the folder cannot be made."""
        limit, folder = options.prefix_bytes, options.prefix_folder
        store = None if limit is None else PrefixStore(memory.layout, limit)
        disk = None if folder is None else DiskPages(folder, memory.layout, dtype)
        return cls(memory, store, disk, options.mark_spacing)

    def __init__(
        self, memory: LayerMemory, store: PrefixStore | None, disk: DiskPages | None, spacing: int
    ) -> None:
        self.store = store
        self._disk = disk
        self._memory = memory
        self._spacing = spacing
        self._anywhere = cuts_anywhere(memory.layout)
        self._uses: dict[Row, Use] = {}

    def begin(self, place: int, row: Row, live: Iterable[Placed]) -> None:
        """Put the row where its prompt is known from. live: rows whose computed tokens may be shared too."""
        if self.store is None:
            return
        prompt = row.request.ids
        match = self.store.lookup(prompt)
        if self._anywhere and self._share(prompt, match, live):
            match = self.store.lookup(prompt)
        if self._disk is not None:
            match = self._found(prompt, match, self.store, self._disk)
        match = self._restored(place, match)
        row.length = row.cached = match.offset
        self.store.hold(match.node)
        marks = self._marks(row, match)
        self._uses[row] = Use(match.offset, match.node, marks)

    def chunk(self, row: Row, count: int) -> int:
        """How many of `count` prompt tokens may be read before the next mark."""
        use = self._uses.get(row)
        return min(count, use.marks[0] - row.length) if use is not None and use.marks else count

    def reached(self, place: int, row: Row) -> None:
        """Some of the row's prompt was read and is in memory, evaluated."""
        use = self._uses.get(row)
        if use is not None and use.marks and use.marks[0] == row.length:
            use.marks = use.marks[1:]
            self._page(place, row, use)

    def end(self, place: int, row: Row) -> None:
        """The row is over, its place in memory still as it was: keep what it computed."""
        use = self._uses.get(row)
        if use is not None:
            self._page(place, row, use)
            self.forget(row)

    def forget(self, row: Row) -> None:
        """The row is over, and what it computed is not to be trusted."""
        use = self._uses.pop(row, None)
        if use is not None and self.store is not None:
            self.store.release(use.node)

    def describe(self) -> list[Entry]:
        return [] if self.store is None else self.store.describe()

    def clear(self) -> None:
        """Forget everything that no row needs."""
        if self.store is not None:
            self.store.clear()

    def close(self) -> None:
        """Finish what goes to disk."""
        if self._disk is not None:
            self._disk.close()

    def _found(self, prompt: tuple[int, ...], match: Match, store: PrefixStore, disk: DiskPages) -> Match:
        """Bring in what the disk knows beyond the store."""
        pages = disk.find(prompt, above=match.offset, limit_bytes=store.limit_bytes)
        for stored in pages:
            store.insert(prompt[: stored.stop], stored.start, stored.page)
        mx.eval(store.changed())
        return store.lookup(prompt) if pages else match

    def _restored(self, place: int, match: Match) -> Match:
        """Restore what matched; where memory has no room for it, nothing did."""
        assert self.store is not None
        try:
            if match.offset:
                self._memory.restore(place, match.pages, match.offset)
        except CacheFull:
            return self.store.lookup(())
        return match

    def _marks(self, row: Row, match: Match) -> tuple[int, ...]:
        if self._anywhere and self._disk is None:
            return ()
        asked, stop = row.request.marks, len(row.request.ids)
        return page_marks(asked, start=match.offset, stop=stop, branch=match.matched, spacing=self._spacing)

    def _share(self, prompt: tuple[int, ...], match: Match, live: Iterable[Placed]) -> bool:
        """Page the live row that has computed more of this prompt than is known."""

        def shared(placed: Placed) -> int:
            return common(placed[1].read, prompt[:-1])

        best = max(live, key=shared, default=None)
        if best is None or shared(best) <= match.offset or best[1] not in self._uses:
            return False
        self._page(*best, self._uses[best[1]])
        return True

    def _page(self, place: int, row: Row, use: Use) -> None:
        """Give the store what the row computed since its last page."""
        assert self.store is not None
        keys = row.read
        if len(keys) <= use.kept:
            return
        node = self.store.insert(keys, use.kept, take_page(self._memory, place, use.kept))
        mx.eval(self.store.changed())
        if node is None:
            return
        self.store.hold(node)
        self.store.release(use.node)
        use.kept, use.node = len(keys), node
        if self._disk is not None:
            path = [part for part in node.path if part.stop <= len(keys)]
            self._disk.save(keys, [Stored(part.start, part.stop, part.page) for part in path])
