"""What layers make of so many tokens at a time: one vector for each group, kept from its last token on.

A group's place in a row is its place in memory: tokens [g * every, (g + 1) * every) have slot g. So a row of
so many tokens has as many vectors as groups are whole, and forgetting tokens forgets the vectors that they
ended. What a group that is not whole yet will be made of is for another memory of the layer.

Invariant: a row of n tokens holds the vectors of its first n // every groups.
"""

from collections.abc import Sequence
from operator import add

import mlx.core as mx

from runtime.cache.budget import Budget
from runtime.cache.codec import Parts
from runtime.cache.layout import Full, Pooled
from runtime.cache.lengths import rows_of
from runtime.cache.rows import KVRows
from runtime.cache.snapshot import Snapshot, Span, covered_from
from runtime.errors import NotSupported
from runtime.step import Step


class PooledCache(KVRows):
    """Implements LayerCache and PoolingCache."""

    def __init__(
        self,
        spec: Pooled,
        *,
        rows: int = 1,
        dtype: mx.Dtype = mx.float32,
        grain: int = 256,
        budget: Budget | None = None,
    ) -> None:
        self._every = spec.every
        super().__init__(
            Full(1, spec.size, value_dim=0), rows=rows, dtype=dtype, slack=0, grain=grain, budget=budget
        )

    def pool(self, step: Step, made: mx.array) -> mx.array:
        rows, firsts = rows_of(step), [start // self._every for start in step.starts]
        assert self._lengths[rows] == [*step.starts], "a step must begin where its rows end"
        self.hold(step)
        count = made.shape[2]
        if count and len(set(firsts)) == 1:
            self._buffer.write(rows, firsts[0], self._encode(made, None))
        elif count:
            places = mx.array(firsts)[:, None] + mx.arange(count)
            self._buffer.scatter(mx.array([*step.rows])[:, None], places, self._encode(made, None))
        return self._read(rows, max(firsts) + count)

    def hold(self, step: Step) -> None:
        """Make room for what the step makes."""
        most = max(step.starts) // self._every + self._slots(step.width)
        self._buffer.reserve(self.rows, most, self._used)

    def commit(self, step: Step, kept: Sequence[int]) -> None:
        self._lengths[rows_of(step)] = map(add, step.starts, kept)

    def snapshot(self, row: int, start: int) -> Span:
        length = self._lengths[row]
        assert start < length
        held = self._copied(row, start // self._every, length // self._every)
        return Span(start, length, held, self._every)

    def restore(self, row: int, snapshots: Sequence[Snapshot], stop: int | None = None) -> None:
        stop = snapshots[-1].stop if stop is None else stop
        if stop and covered_from(snapshots, stop) > 0:
            raise NotSupported(f"pages hold no more than [{covered_from(snapshots, stop)}, {stop})")
        self._buffer.reserve(self.rows, stop // self._every, self._used)
        for page in snapshots:
            last = min(page.stop, stop)
            if isinstance(page, Span) and page.start // self._every < last // self._every:
                self._buffer.write(slice(row, row + 1), page.start // self._every, page.cut(page.start, last))
        self._place(row, 0, stop)

    def row_copies(self, row: int) -> Parts:
        held = self._lengths[row] // self._every
        return self._buffer.copied(slice(row, row + 1), 0, held) if held else ()

    def can_remove(self, row: int, start: int, stop: int) -> bool:
        """What follows a cut would be grouped otherwise."""
        return start == stop or stop == self._lengths[row]

    @property
    def room(self) -> int:
        return self._buffer.capacity * self._every

    def wanted_bytes(self, tokens: int, rows: int, *, exact: bool = False) -> int:
        return super().wanted_bytes(self._slots(tokens), rows, exact=exact)

    def row_bytes(self, tokens: int) -> int:
        return super().row_bytes(self._slots(tokens))

    def give_back(self, row: int, tokens: int) -> None:
        super().give_back(row, self._slots(tokens))

    def reserve(self, tokens: int, *, exact: bool = False) -> None:
        super().reserve(self._slots(tokens), exact=exact)

    @property
    def _used(self) -> list[int]:
        return [length // self._every for length in self._lengths]

    def _slots(self, tokens: int) -> int:
        """Those that so many tokens may write."""
        return -(-tokens // self._every)

    def _read(self, rows: slice, stop: int) -> mx.array:
        if self._buffer.capacity:
            return self._decode(self._buffer.read(rows, 0, stop))[0]
        return self._none(rows.stop - rows.start)

    def _copied(self, row: int, start: int, stop: int) -> Parts:
        return self._buffer.copied(slice(row, row + 1), start, stop) or (self._none(1),)

    def _none(self, rows: int) -> mx.array:
        return mx.zeros((rows, 1, 0, self._buffer.slot_bytes // self._dtype.size), self._dtype)
