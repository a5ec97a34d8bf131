"""The memory of one attention layer: slots for tokens, by row, in one array ("lane") per part.

Lanes are [row capacity, H, capacity, width]. A slot has no meaning here; runtime.cache.attention says which
position lies where.

Invariants: all lanes have the same first three dimensions; the budget has been asked before anything is
allocated; slots beyond what was written are finite (a mask multiplies them by zero, and zero times NaN is
NaN).

All rows have as many slots as the longest has. On a processor with kernels what a shorter one does not use
takes no memory: zeros that nobody wrote are no pages yet (`runtime.cache.claims`).

Growth is by a quarter. A decoded token reads every slot anyway, so copying each slot five times in its life
is not felt, while doubling would leave half of a long context's memory empty.
"""

from collections.abc import Sequence

import mlx.core as mx

from runtime.cache.budget import Budget
from runtime.cache.codec import Codec, Parts
from runtime.cache.snapshot import detached
from runtime.cpu import native

_ALL = slice(None)


class Buffer:
    """`limit`: slots per row never go past it (None: no bound). `grain`: the least growth, in slots."""

    def __init__(
        self, codecs: Sequence[Codec], heads: int, *, limit: int | None, grain: int, budget: Budget
    ) -> None:
        self._parts = [part for codec in codecs for part in codec.parts]
        self._heads = heads
        self._limit = limit
        self._grain = grain
        self._budget = budget
        self._lanes: list[mx.array] = []
        self.rows = 0
        self.capacity = 0
        self._every = slice(0, 0)
        self.slot_bytes = heads * sum(width * dtype.size for width, dtype in self._parts)

    @property
    def nbytes(self) -> int:
        return self.rows * self.capacity * self.slot_bytes

    @property
    def arrays(self) -> list[mx.array]:
        return list(self._lanes)

    @property
    def lanes(self) -> list[mx.array]:
        """The lanes themselves: whoever writes to them in place puts the outcome in their stead."""
        return self._lanes

    @lanes.setter
    def lanes(self, lanes: list[mx.array]) -> None:
        self._lanes = lanes

    def capacity_for(self, slots: int, *, exact: bool) -> int:
        """The capacity to have for `slots` slots: what there is, or what growth would make it."""
        need = slots if self._limit is None else min(slots, self._limit)
        if need <= self.capacity:
            return self.capacity
        return (
            need if exact else self._rounded(max(need, self.capacity + max(self._grain, self.capacity // 4)))
        )

    def plan(
        self, rows: int, slots: int, *, longest: int | None = None, exact: bool = False
    ) -> tuple[int, int]:
        """Row and slot capacity to have for `rows` rows of `slots` slots; `exact`: nothing spare. longest: of
        `widen`, if there are to be more rows.
        """
        capacity = self.capacity_for(slots, exact=exact)
        if capacity == self.capacity and rows <= self.rows:
            return self.rows, self.capacity
        if longest is not None and rows > self.rows:
            capacity = min(capacity, self._rounded(max(slots, longest + longest // 4)))
        if exact or not self._lanes:
            return rows, capacity
        return (self.rows if rows <= self.rows else max(rows, self.rows + self.rows // 2)), capacity

    def widen(self, rows: int, used: Sequence[int], *, exact: bool = False) -> None:
        """Room for `rows` rows, more than there are. What an earlier row needed beyond what they use goes:
        each of the new ones would get as much. used: as in `reserve`.
        """
        if rows > self.rows:
            self._rebuild(*self.plan(rows, 0, longest=max(used, default=0), exact=exact), used)

    def reserve(
        self, rows: int, need: int, used: Sequence[int], *, wish: int = 0, exact: bool = False
    ) -> None:
        """Room for `rows` rows of `need` slots; if the budget allows of `wish`, and some to grow. used: how
        many slots each row uses, from its first one on; the others need not be kept.
        """
        if rows <= self.rows and max(need, wish) <= self.capacity:
            return
        plan = self.plan(rows, max(need, wish), exact=exact)
        if not self._budget.fits(self._more_bytes(*plan)):
            plan = self.plan(rows, need, exact=True)
        if plan != (self.rows, self.capacity):
            self._rebuild(*plan, used)

    def shrink(self, rows: int, used: Sequence[int]) -> None:
        """Give memory back once `rows` rows use a quarter of it at most. used: as in `reserve`."""
        longest = max(used, default=0)
        if rows == 0:
            self._rebuild(0, 0, ())
        elif 4 * rows <= self.rows or 4 * max(longest, self._grain) <= self.capacity:
            self._rebuild(rows, min(self.capacity, max(2 * longest, self._grain)), used)

    def give_back(self, row: int, slot: int) -> None:
        """Nobody needs the row's slots from this one on: their pages go, once the lanes are evaluated."""
        kernels = native.of_processor()
        if kernels is not None and row < self.rows and slot < self.capacity:
            self._lanes = [kernels.emptied(lane, row, slot) for lane in self._lanes]

    def read(self, rows: slice, start: int, stop: int) -> Parts:
        """Views of the slots [start, stop), for immediate use."""
        place = self._place(rows, start, stop)
        return tuple([lane[place] for lane in self._lanes])

    def copied(self, rows: slice, start: int, stop: int) -> Parts:
        """The slots [start, stop) in memory of their own."""
        return tuple(map(detached, self.read(rows, start, stop)))

    def write(self, rows: slice, slot: int, parts: Parts) -> None:
        """Put parts [B, H, n, ...] at the slots from `slot` on, in place."""
        stop = slot + parts[0].shape[2]
        assert stop <= self.capacity
        kernels = native.of_processor()
        if kernels is not None:
            pairs = zip(self._lanes, parts, strict=True)
            self._lanes = [kernels.placed(lane, part, rows.start, slot) for lane, part in pairs]
            return
        place = self._place(rows, slot, stop)
        for lane, part in zip(self._lanes, parts, strict=True):
            lane[place] = part

    def move_up(self, rows: slice, start: int, stop: int) -> None:
        """What stands in the slots [start, stop) goes to the first ones, in place."""
        kernels = native.of_processor()
        if kernels is None:
            self.write(rows, 0, self.copied(rows, start, stop))
            return
        count = rows.stop - rows.start
        self._lanes = [kernels.moved_up(lane, rows.start, count, start, stop - start) for lane in self._lanes]

    def scatter(self, rows: mx.array, slots: mx.array, parts: Parts) -> None:
        """Put parts [B, H, L, ...] at slots [B, L] of rows [B, 1], in place."""
        for lane, part in zip(self._lanes, parts, strict=True):
            lane[rows, :, slots] = part.swapaxes(1, 2)

    def _rounded(self, slots: int) -> int:
        """The capacity that has `slots` slots, as far as the limit goes."""
        rounded = -(-slots // self._grain) * self._grain
        return rounded if self._limit is None else min(rounded, self._limit)

    def _place(self, rows: slice, start: int, stop: int) -> tuple[slice, slice, slice]:
        # Of all rows MLX makes a view in half the time when none are named.
        return (_ALL if rows == self._every else rows), _ALL, slice(start, stop)

    def _more_bytes(self, rows: int, capacity: int) -> int:
        return rows * capacity * self.slot_bytes - self.nbytes

    def _rebuild(self, rows: int, capacity: int, used: Sequence[int]) -> None:
        self._budget.claim(self._more_bytes(rows, capacity))
        if rows == 0 or capacity == 0:
            rows, capacity, self._lanes = 0, 0, []
        elif not self._lanes:
            self._lanes = [self._fresh((rows, self._heads, capacity, w), dtype) for w, dtype in self._parts]
        else:
            self._lanes = [self._fitted(lane, rows, capacity, used) for lane in self._lanes]
        self.rows, self.capacity = rows, capacity
        self._every = slice(0, rows)

    def _fresh(self, shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
        kernels = native.of_processor()
        return mx.zeros(shape, dtype) if kernels is None else kernels.blank(shape, dtype)

    def _fitted(self, lane: mx.array, rows: int, capacity: int, used: Sequence[int]) -> mx.array:
        """What is used of the lane and fits, and zeros, in memory of its own."""
        kernels = native.of_processor()
        if kernels is not None:
            return kernels.refitted(lane, rows, capacity, used)
        kept = lane[:rows, :, :capacity]
        more = [(0, rows - kept.shape[0]), (0, 0), (0, capacity - kept.shape[2]), (0, 0)]
        return mx.pad(kept, more) if any(after for _, after in more) else detached(kept)
