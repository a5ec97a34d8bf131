"""What an attention layer's rows hold between steps: which positions lie where, and what is done to whole
rows.

Each row's tokens lie in the order of their positions: position p of row b is in slot p - bases[b]. A row
holds [bases[b], lengths[b]); slots beyond that are unused.

Invariant: a row holds at least what its last token saw, [reach.needed(length), length); right after a step,
what its last 1 + slack tokens saw.
"""

import sys
from collections.abc import Sequence
from operator import sub

import mlx.core as mx

from runtime.cache.budget import Budget
from runtime.cache.buffer import Buffer
from runtime.cache.codec import Codec, Parts
from runtime.cache.lanes import LaneTraits
from runtime.cache.layout import SLACK, Chunked, Full, Rotating, kept_slots
from runtime.cache.lengths import Lengths
from runtime.cache.protocol import Rotate
from runtime.cache.shift import base_after
from runtime.cache.snapshot import Reach, Snapshot, Span, covered_from
from runtime.cpu import native
from runtime.errors import NotSupported

CUDA_SHOWN_BY = 256


class KVRows(Lengths):
    """slack: how many tokens can be taken back after a commit, and the width up to which steps never join.

    kept_format: a name of runtime.quant for what is in memory, None for `dtype`; what is read comes as
    `dtype`. grain: least growth, in tokens.
    """

    _buffer_class = Buffer

    def __init__(
        self,
        spec: Full | Rotating | Chunked,
        *,
        rows: int = 1,
        dtype: mx.Dtype = mx.float32,
        slack: int = SLACK,
        kept_format: str | None = None,
        grain: int = 256,
        budget: Budget | None = None,
    ) -> None:
        values = spec.head_dim if spec.value_dim is None else spec.value_dim
        sizes = [spec.head_dim, values] if values else [spec.head_dim]
        self._codecs = [Codec.of(kept_format, size, dtype) for size in sizes]
        self._key_parts = len(self._codecs[0].parts)
        self._dtype = dtype
        self._as_computed = all(codec.stored == dtype and not codec.bits for codec in self._codecs)
        self._reach = Reach.of(spec)
        self._kept = LaneTraits(spec.kv_heads, tuple(self._codecs), self._reach, shown_by())
        self._slack = slack
        self._limit = limit = kept_slots(spec, slack)
        self._buffer = self._buffer_class(
            self._codecs, spec.kv_heads, limit=limit, grain=grain, budget=budget or Budget()
        )
        super().__init__(rows)
        self._bases = [0] * rows

    @property
    def nbytes(self) -> int:
        return self._buffer.nbytes

    @property
    def arrays(self) -> list[mx.array]:
        return self._buffer.arrays

    def can_resume(self, row: int, length: int) -> bool:
        return length == 0 or (
            length <= self._lengths[row] and self._bases[row] <= self._reach.needed(length)
        )

    def mark(self, row: int) -> None:
        """Nothing to keep: up to `slack` tokens are forgotten by lowering the length."""

    def snapshot(self, row: int, start: int) -> Span:
        length, base = self._lengths[row], self._bases[row]
        assert start < length
        return Span(start, length, self._buffer.copied(_row(row), max(start, base) - base, length - base))

    def restore(self, row: int, snapshots: Sequence[Snapshot], stop: int | None = None) -> None:
        stop = snapshots[-1].stop if stop is None else stop
        held = covered_from(snapshots, stop)
        if held > self._reach.needed(stop):
            raise NotSupported(f"pages hold [{held}, {stop}), wanted from {self._reach.needed(stop)}")
        base = max(held, self._keep_from(stop))
        self._buffer.reserve(self.rows, stop - base, self._used)
        for page in snapshots:
            if isinstance(page, Span) and max(page.held_from, base) < min(page.stop, stop):
                start = max(page.held_from, base)
                self._buffer.write(_row(row), start - base, page.cut(start, min(page.stop, stop)))
        self._place(row, base, stop)

    def row_copies(self, row: int) -> Parts:
        held = self._lengths[row] - self._bases[row]
        return self._buffer.copied(_row(row), 0, held) if held else ()

    def clear(self, row: int) -> None:
        self._place(row, 0, 0)

    def can_remove(self, row: int, start: int, stop: int) -> bool:
        """What follows the cut must still find all that it will look for, at its new positions."""
        length, base = self._lengths[row], self._bases[row]
        if stop == length:
            return self.can_resume(row, start)
        return base_after(base, start, stop) <= self._reach.needed(length - (stop - start))

    def remove(self, row: int, start: int, stop: int, rotate: Rotate | None = None) -> None:
        """The keys after the cut are decoded, rotated and encoded again; the values move as they are."""
        length, base, shift = self._lengths[row], self._bases[row], stop - start
        assert 0 <= start <= stop <= length
        if not self.can_remove(row, start, stop) or (start < stop < length and rotate is None):
            raise NotSupported(f"the tokens [{start}, {stop}) cannot be cut out of this layer's memory")
        if stop == length:
            self._place(row, base if start else 0, start)
            return
        if rotate is None or start == stop:
            return
        new_base = base_after(base, start, stop)
        first = max(stop, base)
        tail = self._buffer.copied(_row(row), first - base, length - base)
        keys = self._codecs[0].decode(tail[: self._key_parts])
        turned = self._codecs[0].encode(rotate(keys, -shift))
        self._buffer.write(_row(row), first - shift - new_base, (*turned, *tail[self._key_parts :]))
        self._place(row, new_base, length - shift)

    def resize(self, rows: int, *, exact: bool = False) -> None:
        more = rows - self.rows
        if more > 0 and self._buffer.capacity:
            self._buffer.widen(rows, self._used, exact=exact)
        self._resize_lengths(rows)
        self._bases = self._bases[:rows] + [0] * more
        if more < 0:
            self._buffer.shrink(rows, self._used)

    @property
    def room(self) -> int:
        capacity = self._buffer.capacity
        return sys.maxsize if capacity == self._limit else capacity

    def wanted_bytes(self, tokens: int, rows: int, *, exact: bool = False) -> int:
        longest = max(self._used, default=0)
        planned_rows, slots = self._buffer.plan(rows, tokens, longest=longest, exact=exact)
        return planned_rows * slots * self._buffer.slot_bytes

    def row_bytes(self, tokens: int) -> int:
        """What a row takes that has so many tokens."""
        return self._buffer.slot_bytes * (tokens if self._limit is None else min(tokens, self._limit))

    def give_back(self, row: int, tokens: int) -> None:
        """What the row has beyond so many tokens, which it has at most, need not take memory any more."""
        if self._limit is None or tokens < self._limit:
            self._buffer.give_back(row, tokens)

    def reserve(self, tokens: int, *, exact: bool = False) -> None:
        self._buffer.reserve(
            self.rows,
            tokens if self._limit is None else min(tokens, self._limit),
            self._used,
            exact=exact,
        )

    @property
    def _used(self) -> list[int]:
        """Slots that each row uses, from its first one on."""
        return list(map(sub, self._lengths, self._bases))

    def _place(self, row: int, base: int, length: int) -> None:
        self._bases[row], self._lengths[row] = base, length

    def _fill_row(self, src: int, dst: int, copies: tuple[mx.array, ...]) -> None:
        self._bases[dst] = self._bases[src]
        if copies:
            self._buffer.write(_row(dst), 0, copies)

    def _encode(self, keys: mx.array, values: mx.array | None) -> Parts:
        if self._as_computed and values is not None:
            return keys.astype(self._dtype), values.astype(self._dtype)
        if values is None:
            return self._codecs[0].encode(keys)
        of_keys, of_values = self._codecs
        return of_keys.encode(keys) + of_values.encode(values)

    def _decode(self, parts: Parts) -> tuple[mx.array, mx.array | None]:
        if self._as_computed:
            return parts[0], parts[1] if len(parts) > 1 else None
        if len(self._codecs) == 1:
            return self._codecs[0].decode(parts), None
        of_keys, of_values = self._codecs
        return of_keys.decode(parts[: self._key_parts]), of_values.decode(parts[self._key_parts :])

    def _keep_from(self, length: int) -> int:
        return self._reach.needed(max(0, length - self._slack))


def shown_by() -> int:
    """What the device wants, as in `visible_slots`. On CUDA products and attention are planned anew for every
    shape, which takes longer than to compute them: docs/performance.md.
    """
    return CUDA_SHOWN_BY if mx.cuda.is_available() and not native.on_processor() else 1


def _row(row: int) -> slice:
    return slice(row, row + 1)
