"""Who has which place in layer memory: rows 0..n-1 decode, row n is the one being prefilled, and row n + 1
one that lets it pass: a long prompt that has been read in part waits there until a short one has been read.

A finished row's place is taken by the last decoding one, so that a step covers neighbouring rows and every
cache can hand out plain slices. Drafters and the prefix store are told of everything that happens to places.

When memory runs out, those that can do without give way first: drafters, then empty places.

A row whose beginning is known is put back there layer by layer (`runtime.cache.restore`) before more of it
is read.

Invariants: `decoding` stays the same list for as long as this lives; a row is in it, is `prefilling` or
`passed`, or has no place. None is `passed` unless another is `prefilling`. What is put back is `prefilling`,
and lets none pass until it is.
"""

from collections.abc import Sequence

from runtime import host
from runtime.cache.memory import LayerMemory
from runtime.cache.protocol import Rotate
from runtime.cache.restore import Restoring
from runtime.engine.prefixes import Prefixes
from runtime.engine.row import Row
from runtime.errors import CacheFull
from runtime.speculate.drafting import Drafting


class Places:
    """At most `max_rows` of them."""

    def __init__(self, memory: LayerMemory, prefixes: Prefixes, drafting: Drafting, max_rows: int) -> None:
        self.decoding: list[Row] = []
        self.prefilling: Row | None = None
        self.passed: Row | None = None
        self._memory, self._prefixes, self._drafting = memory, prefixes, drafting
        self._max_rows = max_rows
        self._restoring: Restoring | None = None
        self._rested_bytes = memory.nbytes

    @property
    def rows(self) -> list[Row]:
        """All rows that have a place, in order of their places."""
        return [*self.decoding, *(row for row in (self.prefilling, self.passed) if row is not None)]

    @property
    def free(self) -> int:
        return self._max_rows - len(self.rows)

    def open(self, row: Row) -> None:
        """Give the row the next place, and put it where its ids are known from; one that is being prefilled
        lets it pass. CacheFull when there is no room for a place; nothing has changed then.
        """
        assert self.passed is None
        assert not self.restoring
        place, passed = len(self.decoding), self.prefilling
        wanted = place + (1 if passed is None else 2)
        if self._memory.rows < wanted:
            self._grow(wanted)
        row.rewind()
        if passed is None:
            self._memory.expect(len(row.ids), place + 1)
        else:
            self._move(place, place + 1)
            self.passed = passed
        self.prefilling = row
        live = [(at, one) for at, one in enumerate(self.rows) if one is not row]
        self._restoring = self._prefixes.begin(place, row, live)
        self._drafting.begin(place, row.ids, row.space)
        row.since = row.length
        if passed is not None:
            passed.since += max(row.unread, len(row.request.source))

    @property
    def restoring(self) -> bool:
        """Is the row that is being prefilled still to be put back, as far as it is known?"""
        return self._restoring is not None and not self._restoring.over

    def restore(self) -> None:
        """One layer more of that. Nothing is in flight. CacheFull where others have taken its room."""
        assert self._restoring is not None
        self._restoring.go_on(len(self.decoding))

    def restore_all(self) -> None:
        """All that is left of it, lazily, as `restore` does it."""
        assert self._restoring is not None
        self._restoring.finish(len(self.decoding))

    def start_decoding(self) -> None:
        """The row that was prefilled joins the others, where it is. So one that has let it pass is where the
        next is prefilled.
        """
        assert self.prefilling is not None
        self.decoding.append(self.prefilling)
        self.prefilling, self.passed = self.passed, None

    def release(self, row: Row) -> None:
        """Free the row's place; what it computed is kept for others, unless it is broken."""
        place, last = self.rows.index(row), len(self.decoding) - 1
        if row.broken or (row is self.prefilling and self.restoring):  # its place may not have it all
            self._prefixes.forget(row)
        else:
            # Before the place is cleared or taken: what is kept for others is copied out of it.
            self._prefixes.end(place, row)
            self._drafting.end(place, row.read)
        self._clear(place)
        if row is self.passed:
            self.passed = None
            return
        if row is self.prefilling:
            self.prefilling, self.passed, self._restoring = self.passed, None, None
            if self.prefilling is not None:
                self._move(place + 1, place)
            return
        self.decoding[place] = self.decoding[last]
        self.decoding.pop()
        if place != last:
            self._move(last, place)
        for free in range(last, len(self.rows)):
            self._move(free + 1, free)

    def shift(self, row: Row, rotates: Sequence[Rotate | None]) -> None:
        """The row forgets what its context has no room for, where it is.

        What it computed until then is kept for others. From here on its memory has traces of what is
        forgotten, so nothing of it is; and its drafters, which do not know how to forget, begin anew.
        """
        assert row.shift is not None
        place, shift = self.rows.index(row), row.shift
        self._prefixes.end(place, row)
        self._drafting.end(place, row.read)
        self._drafting.clear(place)
        self._memory.remove(place, shift.keep, shift.stop, rotates)
        self._memory.evaluate()  # or the next write would find the copies not done, and copy the buffers
        row.forget()
        row.length -= shift.stop - shift.keep
        self._drafting.begin(place, ())

    def make_way(self) -> bool:
        """Give back memory that no row needs; False when there is none."""
        if self._drafting.give_way():
            return True
        needed = max(len(self.rows), 1)
        if self._memory.rows <= needed:
            return False
        self._memory.resize(needed)
        self._drafting.resize(needed)
        return True

    def rest(self, *, borrowed: bool = False) -> None:
        """No row is left: keep the room of one, or nothing where it was borrowed: buffers keep the length of
        their longest row.
        """
        if self.rows:
            return
        several = self._memory.rows > 1
        if several:
            self._memory.resize(1)
            self._drafting.resize(1)
        if borrowed:
            self._memory.resize(0)
        if several or self._memory.nbytes != self._rested_bytes:
            host.trim()  # what joins and grows bit by bit leaves blocks of every size behind
            self._rested_bytes = self._memory.nbytes

    def reset(self) -> None:
        """Forget all rows, and what was computed for them."""
        rows = self.rows
        self.decoding.clear()
        self.prefilling = self.passed = self._restoring = None
        for row in rows:
            self._prefixes.forget(row)
        for place in range(self._memory.rows):
            self._clear(place)

    def _grow(self, rows: int) -> None:
        try:
            # Doubling keeps the number of buffer copies small while rows join one by one.
            self._memory.resize(max(rows, min(2 * self._memory.rows, self._max_rows)))
        except CacheFull:
            self._memory.resize(rows)
        self._drafting.resize(self._memory.rows)

    def _move(self, src: int, dst: int) -> None:
        self._memory.move(src, dst)
        self._drafting.move(src, dst)

    def _clear(self, place: int) -> None:
        self._memory.clear(place)
        self._drafting.clear(place)
