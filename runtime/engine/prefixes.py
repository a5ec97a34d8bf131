"""Between the engine's rows and the prefix store: which keys a row has, and what memory, disk and other rows
know of them.

A row begins with the longest beginning that is known and may be resumed; what of it is on disk alone is
fetched before that (`runtime.engine.fetching`). A live row that has computed more of it is paged first. Where
the store takes no such page, or there is none, the new row gets a copy of what the live one has: several
answers to one prompt read it once, whatever is kept. What goes to disk is paged at marks, like what cannot be
cut anywhere: runtime.cache.sharing has the rules.

A key is a token's id. With adapters, the same ids leave other keys and values, so the first key of a row that
has some says which, and at what scales: rows share what they have if they have the same ones.

LongRoPE turns all keys of a sequence by other factors once it has more than so many tokens. So a row is
read either as a short sequence or as a long one, and the first key of a long one says so: they share nothing.
Which it is follows from the tokens that it has when it begins, and a short row that comes to the border while
it answers begins anew (`Row.room`). What is drawn after n tokens is therefore what one pass over these n
tokens says, however they came about.

A drafter's memory is not in these pages: it has a store of its own (runtime.speculate.standby), in memory
only, and catches up from ids after a restart.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import mlx.core as mx

from runtime.cache.disk_pages import DiskPages, path_to
from runtime.cache.layout import reads_prompt
from runtime.cache.memory import LayerMemory
from runtime.cache.pages import cuts_anywhere, page_arrays, split_page
from runtime.cache.prefix import Entry, PageNode, PrefixStore
from runtime.cache.restore import Restoring
from runtime.cache.sharing import Sharing
from runtime.cache.trie import Keys, common, in_namespace, split_namespace
from runtime.engine.fetching import Fetch
from runtime.engine.options import Options
from runtime.engine.row import Row
from runtime.errors import CacheFull

Placed = tuple[int, Row]
"""A row and its place in layer memory."""

LONG = "long"


class Prefixes:
    """Keeps nothing without a store.

    long_after: sequences that are longer than this are treated differently; None for none. ahead: how
    many tokens beyond its own a drafter's entry looks; rows then start so much earlier, where they can, that
    it finds all that it needs.
    """

    @classmethod
    def of(
        cls,
        memory: LayerMemory,
        options: Options,
        dtype: mx.Dtype,
        *,
        limit_bytes: int | None = None,
        long_after: int | None = None,
        ahead: int = 0,
        sharing: Callable[..., Sharing[Row]] = Sharing,
    ) -> "Prefixes":
        """What the options ask for. dtype: of the activations. limit_bytes: the target's part of
        options.prefix_bytes. sharing: makes what keeps pages. OSError where the folder cannot be made.
        """
        if reads_prompt(memory.layout):
            return cls(None, None, None, 0)  # see runtime.engine.sources
        folder = options.prefix_folder
        disk = None
        if folder is not None:
            layout, elsewhere = memory.layout, memory.elsewhere
            disk = DiskPages(folder, layout, dtype, options.kv_format, elsewhere)
        # Other machines hear of a row's beginning through what keeps pages, and of no copies.
        copied = memory if sharing is Sharing and cuts_anywhere(memory.layout) else None
        if limit_bytes is None:
            return cls(None, disk, long_after, ahead, copied)
        store = PrefixStore(memory.layout, limit_bytes)
        shared = sharing(memory, store, spacing=options.mark_spacing, marking=disk is not None)
        return cls(shared, disk, long_after, ahead, copied)

    def __init__(
        self,
        sharing: Sharing[Row] | None,
        disk: DiskPages | None,
        long_after: int | None,
        ahead: int,
        copied: LayerMemory | None = None,
    ) -> None:
        self._sharing, self._copied = sharing, copied
        self._disk = disk
        self._long_after = long_after
        self._ahead = ahead if sharing is not None and sharing.anywhere else 0

    @property
    def store(self) -> PrefixStore | None:
        return None if self._sharing is None else self._sharing.store

    def long(self, rows: Sequence[Row]) -> tuple[bool, ...] | None:
        """Which rows are read as long sequences, for a step; None where that makes no difference."""
        return None if self._long_after is None else tuple(map(self._is_long, rows))

    def _is_long(self, row: Row) -> bool:
        border = self._long_after
        return border is not None and (row.room is None or row.room > border)

    def kept_tokens(self, row: Row) -> int:
        """How many of the first tokens of a row that waits are kept in memory. Changes nothing there."""
        return 0 if self.store is None or row.dropped else self.store.lookup(self._begun(row)).offset

    def _begun(self, row: Row) -> Keys:
        """The keys of a row as it is read if it begins now."""
        short = self._long_after is not None and len(row.ids) <= self._long_after
        borders = [self._long_after if short else None, None if row.shift is None else row.shift.room]
        row.room = min((border for border in borders if border is not None), default=None)
        return self._keys(row, row.ids)

    def fetch(self, row: Row, live: Iterable[Placed], when_over: Callable[[], object]) -> Fetch | None:
        """What the disk alone knows of a row that waits, to be read; None where that is nothing. live: as in
        `begin`. when_over: as in Reading.
        """
        if self._disk is None or self._sharing is None:
            return None
        keys, store = self._begun(row), self._sharing.store
        known = max(store.lookup(keys).offset, self._nearest(keys, live)[1])
        reading = self._disk.find(keys, above=known, limit_bytes=store.limit_bytes, when_over=when_over)
        return None if reading is None else Fetch(self._sharing, self._disk, reading)

    def begin(self, place: int, row: Row, live: Iterable[Placed]) -> Restoring | None:
        """The row begins where its ids are known from; what is known is still to be copied to its place.
        live: rows whose computed tokens may be shared too.
        """
        keys, restoring = self._begun(row), None
        best, known = self._nearest(keys, live)
        if self._sharing is not None:
            restoring = self._begin(self._sharing, place, row, keys, best, known)
            row.length = restoring.stop
        if best is not None and known - self._ahead > row.length:
            restoring = self._copy(best, place, row, known - self._ahead) or restoring
        return restoring

    def _begin(
        self, sharing: Sharing[Row], place: int, row: Row, keys: Keys, best: Placed | None, known: int
    ) -> Restoring:
        """From what is kept. best: the live row that has computed `known` of these keys, if any has some."""
        store = sharing.store
        match = store.lookup(keys)
        if best is not None and known > match.offset:
            read = self._keys(best[1], best[1].read)
            self._save(read, sharing.page(best[1], best[0], read))
            match = store.lookup(keys)
        if self._ahead and match.offset > match.matched - self._ahead:
            match = store.lookup(keys[: match.matched + 1 - self._ahead])
        return sharing.enter(row, place, keys, match, row.request.marks)

    def _nearest(self, keys: Keys, live: Iterable[Placed]) -> tuple[Placed | None, int]:
        """The live row that has computed most of these keys, all but the last at most, and how many; none
        where layers cannot be cut anywhere.
        """
        found: Placed | None = None
        most = 0
        if self._copied is None and not (self._sharing is not None and self._sharing.anywhere):
            return None, 0
        for place, row in live:
            # A row that has forgotten something holds traces of it: it is in no store, either.
            sound = not row.dropped if self._sharing is None else row in self._sharing
            count = common(self._keys(row, row.read), keys[:-1]) if sound else 0
            if count > most:
                found, most = (place, row), count
        return found, most

    def _copy(self, source: Placed, place: int, row: Row, length: int) -> Restoring | None:
        """What another row has of this one's first tokens, where memory has room for it."""
        memory = self._copied
        if memory is None:
            return None
        try:
            memory.claim(place, length)
        except CacheFull:
            return None
        page = memory.snapshot(source[0], 0)
        if length < source[1].length:  # else the prompt goes on from all that the other row has
            page, _ = split_page(page, length)
        mx.eval(page_arrays(page))
        row.length = length
        return Restoring(memory, [page], length)

    def chunk(self, row: Row, count: int) -> int:
        """How many of `count` prompt tokens may be read before the next mark, or before the row is full."""
        count = count if row.room is None else min(count, row.room - row.length)
        return count if self._sharing is None else self._sharing.chunk(row, row.length, count)

    def reached(self, place: int, row: Row) -> None:
        """Some of the row's prompt was read and is in memory, evaluated."""
        if self._sharing is not None:
            keys = self._keys(row, row.read)
            self._save(keys, self._sharing.reached(row, place, keys))

    def end(self, place: int, row: Row) -> None:
        """The row is over, its place in memory still as it was: keep what it computed."""
        if self._sharing is not None:
            keys = self._keys(row, row.read)
            self._save(keys, self._sharing.end(row, place, keys))

    def forget(self, row: Row) -> None:
        """The row is over, and what it computed is not to be trusted."""
        if self._sharing is not None:
            self._sharing.forget(row)

    def describe(self) -> list[Entry]:
        return [] if self.store is None else [_readable(entry) for entry in self.store.describe()]

    def clear(self) -> None:
        """Forget everything that no row needs."""
        if self._sharing is not None:
            self._sharing.clear()

    def resize(self, limit_bytes: int) -> None:
        """Keep so much from now on."""
        if self._sharing is not None:
            self._sharing.resize(limit_bytes)

    @property
    def kept_bytes(self) -> int:
        return 0 if self.store is None else self.store.nbytes

    def close(self) -> None:
        """Finish what goes to disk."""
        if self._disk is not None:
            self._disk.close()

    def _keys(self, row: Row, ids: Sequence[int]) -> Keys:
        return in_namespace(tuple(ids), row.space, LONG if self._is_long(row) else "")

    def _save(self, keys: Keys, node: PageNode | None) -> None:
        """What leads to this node, on disk too."""
        if node is not None and self._disk is not None:
            self._disk.save(keys, path_to(node, len(keys)))


def _readable(entry: Entry) -> Entry:
    """Its keys as ids, and what set them apart as a word."""
    keys, words = split_namespace(entry.keys)
    return replace(entry, keys=keys, space=" ".join(map(str, words)))
