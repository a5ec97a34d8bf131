"""Keys and values of one attention layer: everything, a sliding window, or a chunk. One class, three reaches.

Rows with a bounded reach drop their oldest tokens when the tail meets the end of the buffer: what is still
needed moves to the front, once in about W/8 tokens. A ring never moves, but with room to forget it needs a
mask for every token, where a line shows exactly the window; benchmarks/cache_append.py has the figures.

Invariants: a step writes behind its rows before it attends, and `commit` only moves their lengths:
forgetting copies nothing, and an uncommitted step leaves no trace. A step too wide for that (wider than
slack, and than an eighth of the window) attends over what is kept and what is new, joined, and is stored by
`commit`.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import add, sub

import mlx.core as mx

from runtime.cache.codec import Parts
from runtime.cache.finite_values import with_finite_values
from runtime.cache.lanes import Lanes
from runtime.cache.lengths import rows_of
from runtime.cache.protocol import View
from runtime.cache.rows import KVRows
from runtime.cache.visibility import Visible, joined_mask, joined_slots, visible_slots
from runtime.records import dataclass
from runtime.step import Step


@dataclass(frozen=True, slots=True)
class _Wide:
    """A step that is not in the buffer: it would take the place of old tokens before its commit."""

    step: Step
    parts: Parts


class KVCache(KVRows):
    """Implements LayerCache and AttentionCache for Full, Rotating and Chunked layers."""

    _wide: _Wide | None = None

    @property
    def settled(self) -> bool:
        """Do its buffers hold all that the last step has written, whether or not it is over?"""
        return self._wide is None

    def append(self, step: Step, keys: mx.array, values: mx.array | None) -> View:
        """Write keys [B, H, L, Dk] and values [B, H, L, Dv] (None when the layout has none of their own)."""
        self._wide = None
        rows = rows_of(step)
        assert self._lengths[rows] == [*step.starts], "a step must begin where its rows end"
        if values is not None:
            keys, values = with_finite_values(keys, values)
        parts = self._encode(keys, values)
        seen = self._seen(step, rows)
        if seen.stop > self._buffer.capacity:
            if not self._make_room(step):
                self._wide = _Wide(step, parts)
                return self._joined(step, parts)
            seen = self._seen(step, rows)
        if seen.slot is not None:
            self._buffer.write(rows, seen.slot, parts)
        else:
            slots = tuple(map(sub, step.starts, self._bases[rows]))
            self._buffer.scatter(*_places(step, slots), parts)
        return self._view(rows, seen)

    def view(self, step: Step) -> View:
        if self._wide is not None and self._wide.step is step:
            return self._joined(step, self._wide.parts)
        rows = rows_of(step)
        return self._view(rows, self._seen(step, rows))

    def open(self, step: Step) -> Lanes:
        self._wide = None
        rows = rows_of(step)
        assert self._lengths[rows] == [*step.starts], "a step must begin where its rows end"
        bases, capacity, fits = self._bases[rows], self._buffer.capacity, True
        if max(map(sub, step.starts, bases)) + step.width > capacity:
            fits = self._make_room(step)
            bases = self._bases[rows]
        return Lanes(self._kept, self._buffer.lanes, [], step.first, bases, fits)

    def close(self, step: Step, lanes: Lanes, arrays: list[mx.array]) -> None:
        if lanes.fits:
            self._buffer.lanes = arrays
        else:
            self._wide = _Wide(step, tuple(arrays))

    def lanes(self, step: Step) -> Lanes:
        beside = [*self._wide.parts] if self._wide is not None and self._wide.step is step else []
        return Lanes(
            self._kept, self._buffer.lanes, beside, step.first, self._bases[rows_of(step)], fits=not beside
        )

    def commit(self, step: Step, kept: Sequence[int]) -> None:
        assert kept is step.counts or all(0 <= n <= of for n, of in zip(kept, step.counts, strict=True))
        wide, self._wide = self._wide, None
        if wide is not None and wide.step is step:
            self._store(wide, kept)
        self._lengths[rows_of(step)] = map(add, step.starts, kept)

    def _seen(self, step: Step, rows: slice) -> Visible:
        bases = tuple(self._bases[rows])
        return visible_slots(step, self._reach, bases, self._buffer.capacity, self._kept.shown_by)

    def _view(self, rows: slice, seen: Visible) -> View:
        keys, values = self._decode(self._buffer.read(rows, seen.start, seen.stop))
        return keys, values, seen.mask

    def _runs(self, step: Step, marks: Sequence[int]) -> Iterator[tuple[range, int, int]]:
        """Neighbouring rows of the step that agree in start, base and mark: (rows, start, base)."""

        def key(row: int) -> tuple[int, int, int]:
            return self._lengths[row], self._bases[row], marks[row - step.first]

        for (start, base, _), group in groupby(step.rows, key):
            rows = list(group)
            yield range(rows[0], rows[-1] + 1), start, base

    def _make_room(self, step: Step) -> bool:
        """Grow, and move what is in the way, so that the step fits behind its rows. False: too wide."""
        width = step.width
        tail = max(map(sub, step.starts, self._bases[rows_of(step)])) + width
        need = max(start - self._keep_from(start) for start in step.starts) + width
        self._buffer.reserve(self.rows, need, self._used, wish=tail)
        if self._limit is not None and need > self._limit:
            return False
        for rows, start, base in self._runs(step, step.starts):
            if start - base + width > self._buffer.capacity:
                self._drop(rows, self._keep_from(start))
        return True

    def _drop(self, rows: range, floor: int) -> None:
        """Forget the positions below `floor` of rows that agree; the rest moves to the front."""
        place = slice(rows.start, rows.stop)
        base, length = self._bases[rows.start], self._lengths[rows.start]
        if floor <= base:
            return
        if floor < length:
            self._buffer.move_up(place, floor - base, length - base)
        self._bases[place] = [floor] * len(rows)

    def _joined(self, step: Step, parts: Parts) -> View:
        """Attend over what the queries see of the old tokens, followed by the new ones."""
        rows = rows_of(step)
        bases = tuple(self._bases[rows])
        old, joined = joined_slots(step, self._reach, bases), parts
        if old:
            held = self._buffer.read(rows, old.start, old.stop)
            joined = tuple(mx.concatenate([old, new], axis=2) for old, new in zip(held, parts, strict=True))
        return *self._decode(joined), joined_mask(step, self._reach, bases, old)

    def _store(self, wide: _Wide, kept: Sequence[int]) -> None:
        """Write the end of the kept tokens behind what is still needed of the old ones."""
        for rows, start, base in self._runs(wide.step, kept):
            first = rows.start - wide.step.first
            n = kept[first]
            floor = max(base, self._keep_from(start + n))
            if n == 0:
                continue
            if floor >= start or start - base + n > self._buffer.capacity:
                self._drop(rows, floor)
            source = slice(max(0, floor - start), n)
            parts = tuple(part[first : first + len(rows), :, source] for part in wide.parts)
            self._buffer.write(
                slice(rows.start, rows.stop), start + source.start - self._bases[rows.start], parts
            )


def _places(step: Step, slots: tuple[int, ...]) -> tuple[mx.array, mx.array]:
    """Rows [B, 1] and slots [B, L] of the step's tokens, for rows that do not stand side by side."""

    def build() -> tuple[mx.array, mx.array]:
        firsts = mx.array(slots, dtype=mx.int32)[:, None]
        rows = mx.arange(step.rows.start, step.rows.stop, dtype=mx.int32)[:, None]
        return rows, firsts + mx.arange(step.width, dtype=mx.int32)

    return step.memo(("places", slots), build)
