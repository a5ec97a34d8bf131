"""Layer memory that another machine has: here is only what follows from lengths.

Who schedules steps for several machines has to know of every layer how long its rows are, what it takes, and
where it could resume, wherever the layer is. So a layer elsewhere has the same classes here as it has there,
and they do the same to arrays of which nothing but the shape exists.

Invariant: lengths, capacities, bases and snapshots' ranges are those of the real layer, provided that
`follow` is called here for all steps that it computes there.
"""

from collections.abc import Sequence
from operator import sub
from typing import cast

import mlx.core as mx

from runtime.cache.attention import KVCache
from runtime.cache.budget import Budget
from runtime.cache.buffer import Buffer
from runtime.cache.codec import Parts
from runtime.cache.encoder import EncoderCache
from runtime.cache.layout import Encoder
from runtime.cache.lengths import rows_of
from runtime.cache.pieces import States
from runtime.cache.pooled import PooledCache
from runtime.cache.protocol import Rotate, View
from runtime.cache.recurrent import RecurrentCache
from runtime.cache.shift import base_after
from runtime.cache.snapshot import Absent, Snapshot, find_checkpoint
from runtime.errors import NotSupported
from runtime.step import Step


def absent(shape: Sequence[int], dtype: mx.Dtype) -> mx.array:
    """Stands for such an array: whoever asks for its size and cuts it along its axes sees no difference."""
    return cast("mx.array", Absent(tuple(shape), dtype))


class AbsentBuffer(Buffer):
    """Plans and counts as a Buffer, and writes nothing."""

    @property
    def arrays(self) -> list[mx.array]:
        return []

    def write(self, rows: slice, slot: int, parts: Parts) -> None: ...

    def move_up(self, rows: slice, start: int, stop: int) -> None: ...

    def scatter(self, rows: mx.array, slots: mx.array, parts: Parts) -> None: ...

    def _fresh(self, shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
        return absent(shape, dtype)

    def _fitted(self, lane: mx.array, rows: int, capacity: int, used: Sequence[int]) -> mx.array:
        return absent((rows, lane.shape[1], capacity, lane.shape[3]), lane.dtype)


class KVElsewhere(KVCache):
    """A KVCache of another machine."""

    _buffer_class = AbsentBuffer

    def follow(self, step: Step) -> None:
        """The layer appends the tokens of this step."""
        tail = max(map(sub, step.starts, self._bases[rows_of(step)])) + step.width
        if tail <= self._buffer.capacity:  # as most steps do; there may be a hundred such layers
            self._wide = None
            return
        lanes = self.open(step)
        if not lanes.fits:
            rows, width = len(step.starts), step.width
            parts = [part for codec in lanes.kept.codecs for part in codec.parts]
            beside = [absent((rows, lanes.kept.heads, width, size), dtype) for size, dtype in parts]
            self.close(step, lanes, beside)

    def remove(self, row: int, start: int, stop: int, rotate: Rotate | None = None) -> None:
        length = self._lengths[row]
        if stop == length or start == stop or not self.can_remove(row, start, stop):
            super().remove(row, start, stop, rotate)
            return
        self._place(row, base_after(self._bases[row], start, stop), length - (stop - start))


class PooledElsewhere(PooledCache):
    """A PooledCache of another machine."""

    _buffer_class = AbsentBuffer

    def follow(self, step: Step) -> None:
        """The layer appends what this step makes."""
        self.hold(step)


class EncoderElsewhere(EncoderCache):
    """An EncoderCache of another machine."""

    def __init__(self, spec: Encoder, *, rows: int, dtype: mx.Dtype, budget: Budget | None = None) -> None:
        super().__init__(spec, rows=rows, dtype=dtype, budget=budget)
        self._shape = spec.kv_heads, spec.head_dim

    @property
    def arrays(self) -> list[mx.array]:
        return []

    def append(self, step: Step, keys: mx.array, values: mx.array | None) -> View:
        """keys, values: stand-ins, as pages have them."""
        assert values is not None
        self._take(step, keys, values)
        return keys, values, None

    def follow_source(self, step: Step, tokens: int) -> None:
        """The layer is given a source of so many tokens for each row of this step."""
        heads, size = self._shape
        one = absent((len(step.starts), heads, tokens, size), self._dtype)
        self._take(step, one, one)

    def follow(self, step: Step) -> None:
        """The layer reads what it holds."""


class RecurrentElsewhere(RecurrentCache):
    """A RecurrentCache of another machine."""

    @property
    def arrays(self) -> list[mx.array]:
        return []

    def follow(self, step: Step) -> None:
        """The layer scans the tokens of this step."""

    def commit(self, step: Step, kept: Sequence[int]) -> None:
        partial = any(0 < n < of for n, of in zip(kept, step.counts, strict=True))
        if partial and step.width > self._slack:
            raise NotSupported(
                f"of {step.width:,} tokens all or none can be kept; some only up to {self._slack:,}"
            )
        for row, start, n in zip(step.rows, step.starts, kept, strict=True):
            self._lengths[row] = start + n

    def restore(self, row: int, snapshots: Sequence[Snapshot], stop: int | None = None) -> None:
        stop = snapshots[-1].stop if stop is None else stop
        if stop > 0 and find_checkpoint(snapshots, stop) is None:
            raise NotSupported(f"no page holds the state after {stop:,} tokens")
        self._lengths[row] = stop

    def clear(self, row: int) -> None:
        self._lengths[row] = 0

    def _zeros(self, rows: int) -> States:
        zeros = super()._zeros(rows)
        return {name: absent(state.shape, state.dtype) for name, state in zeros.items()}

    def _fill_row(self, src: int, dst: int, copies: tuple[mx.array, ...]) -> None: ...
