"""Keys and values of something that is not the token stream: an encoded text, the features of an image.

They are written once, when the encoder has run, and read by every later step. Their number has nothing to
do with the row's length, so nothing is masked but the padding between rows whose sources differ in size.

Invariants: what a row holds is never written to, so snapshots and copies of rows share it; a row that holds
nothing shows one key of zeros with a value of zeros, so that attending to it adds nothing and no query is
without keys.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import mlx.core as mx

from runtime.cache.budget import Budget
from runtime.cache.lanes import Lanes
from runtime.cache.layout import Encoder
from runtime.cache.lengths import Lengths, rows_of
from runtime.cache.protocol import Mask, Rotate, View
from runtime.cache.snapshot import Checkpoint, Snapshot, detached, find_checkpoint
from runtime.errors import NotSupported
from runtime.records import dataclass
from runtime.step import Step


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """Keys and values of something that is not a token stream."""

    keys: mx.array
    """[1, H, T, D]."""
    values: mx.array
    """[1, H, T, D]."""
    since: int
    """The position of the token that they came with."""

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes


class _Pending(NamedTuple):
    step: Step
    sources: list[_Source]


class EncoderCache(Lengths):
    """`append` takes T source positions for each row of the step, in place of the step's own L tokens."""

    def __init__(
        self, spec: Encoder, *, rows: int = 1, dtype: mx.Dtype = mx.float32, budget: Budget | None = None
    ) -> None:
        self._dtype = dtype
        empty = mx.zeros((1, spec.kv_heads, 1, spec.head_dim), dtype)
        self._empty = _Source(empty, empty, 0)
        self._budget = budget or Budget()
        self._sources: list[_Source | None] = [None] * rows
        super().__init__(rows)
        self._pending: _Pending | None = None
        self._batch: tuple[range, View] | None = None

    @property
    def nbytes(self) -> int:
        return sum(source.nbytes for source in self._held())

    @property
    def arrays(self) -> list[mx.array]:
        return [x for source in self._held() for x in (source.keys, source.values)]

    def filled(self, step: Step) -> tuple[bool, ...]:
        """Which rows of the step hold a source."""
        return tuple(source is not None for source in self._seen(step))

    def append(self, step: Step, keys: mx.array, values: mx.array | None) -> View:
        """Give the step's rows a new source: keys and values [B, H, T, D]. T may be anything from 1."""
        assert values is not None
        keys, values = keys.astype(self._dtype), values.astype(self._dtype)
        self._take(step, keys, values)
        return keys, values, None

    def _take(self, step: Step, keys: mx.array, values: mx.array) -> None:
        self._forget_pending()
        self._budget.claim(keys.nbytes + values.nbytes)
        self._pending = _Pending(
            step, [_source(keys, values, b, start) for b, start in enumerate(step.starts)]
        )

    def view(self, step: Step) -> View:
        if self._pending is not None and self._pending.step is step:
            return _side_by_side(self._pending.sources, self._empty)
        if self._batch is None or self._batch[0] != step.rows:
            self._batch = step.rows, _side_by_side(self._sources[rows_of(step)], self._empty)
        return self._batch[1]

    def open(self, step: Step) -> None:
        """What is held lies in arrays of the sources' own."""

    def close(self, step: Step, lanes: Lanes, arrays: list[mx.array]) -> None:
        raise AssertionError("nothing was opened")

    def lanes(self, step: Step) -> None:
        """As `open`."""

    def commit(self, step: Step, kept: Sequence[int]) -> None:
        assert all(0 <= n <= count for n, count in zip(kept, step.counts, strict=True))
        pending = self._pending
        self._forget_pending()
        if pending is not None and pending.step is step:
            for row, source, n in zip(step.rows, pending.sources, kept, strict=True):
                if n:
                    self._put(row, source)
        for row, start, n in zip(step.rows, step.starts, kept, strict=True):
            self._lengths[row] = start + n

    def can_resume(self, row: int, length: int) -> bool:
        source = self._sources[row]
        return length == 0 or (length <= self._lengths[row] and (source is None or source.since < length))

    def mark(self, row: int) -> Checkpoint | None:
        """Another source may come. The keys and values are shared with the row, not copied."""
        return self.snapshot(row, 0) if self._lengths[row] else None

    def snapshot(self, row: int, start: int) -> Checkpoint:
        assert start < self._lengths[row]
        source = self._sources[row]
        arrays = () if source is None else (source.keys, source.values)
        return Checkpoint(start, self._lengths[row], arrays)

    def restore(self, row: int, snapshots: Sequence[Snapshot], stop: int | None = None) -> None:
        stop = snapshots[-1].stop if stop is None else stop
        page = find_checkpoint(snapshots, stop)
        if page is None and stop > 0:
            raise NotSupported(f"no page holds the encoder's output at {stop:,} tokens")
        self._put(row, _Source(*page.arrays, since=stop - 1) if page is not None and page.arrays else None)
        self._lengths[row] = stop

    def row_copies(self, row: int) -> tuple[mx.array, ...]:
        """Nothing: rows share what they hold."""
        return ()

    def clear(self, row: int) -> None:
        if self._pending is not None and row in self._pending.step.rows:
            self._forget_pending()
        self._put(row, None)
        self._lengths[row] = 0

    def can_remove(self, row: int, start: int, stop: int) -> bool:
        """Everything but the position that brought the source, unless all of the row goes."""
        source = self._sources[row]
        return source is None or not start <= source.since < stop or (start, stop) == (0, self._lengths[row])

    def remove(self, row: int, start: int, stop: int, rotate: Rotate | None = None) -> None:
        if not self.can_remove(row, start, stop):
            raise NotSupported(f"[{start}, {stop}) holds the position that brought this row's source")
        source = self._sources[row]
        if source is not None and source.since >= stop:
            self._put(row, replace(source, since=source.since - (stop - start)))
        self._lengths[row] -= stop - start
        if self._lengths[row] == 0:
            self.clear(row)

    def resize(self, rows: int, *, exact: bool = False) -> None:
        self._forget_pending()
        for row in range(rows, self.rows):
            self._put(row, None)
        self._sources = self._sources[:rows] + [None] * (rows - self.rows)
        self._resize_lengths(rows)

    def wanted_bytes(self, tokens: int, rows: int, *, exact: bool = False) -> int:
        return self.nbytes

    def _fill_row(self, src: int, dst: int, copies: tuple[mx.array, ...]) -> None:
        self._put(dst, self._sources[src])

    def _seen(self, step: Step) -> Sequence[_Source | None]:
        if self._pending is not None and self._pending.step is step:
            return self._pending.sources
        return self._sources[rows_of(step)]

    def _held(self) -> list[_Source]:
        pending = self._pending.sources if self._pending is not None else []
        return [source for source in self._sources if source is not None] + pending

    def _forget_pending(self) -> None:
        if self._pending is not None:
            self._budget.claim(-sum(source.nbytes for source in self._pending.sources))
        self._pending = None

    def _put(self, row: int, source: _Source | None) -> None:
        """Nothing is allocated here: what `append` claimed, a page or another row has it already."""
        old = self._sources[row]
        self._budget.held_bytes += (source.nbytes if source else 0) - (old.nbytes if old else 0)
        self._sources[row] = source
        self._batch = None


def _source(keys: mx.array, values: mx.array, b: int, since: int) -> _Source:
    """Row b's part, in memory of its own unless it is all there is."""
    if keys.shape[0] == 1:
        return _Source(keys, values, since)
    return _Source(detached(keys[b : b + 1]), detached(values[b : b + 1]), since)


def _side_by_side(sources: Sequence[_Source | None], empty: _Source) -> View:
    """The sources as one batch, padded with zeros to the longest; masked only where they differ in size."""
    shown = [empty if source is None else source for source in sources]
    if len(shown) == 1:
        return shown[0].keys, shown[0].values, None
    sizes = [source.keys.shape[2] for source in shown]
    keys = mx.concatenate([_padded(source.keys, max(sizes)) for source in shown])
    values = mx.concatenate([_padded(source.values, max(sizes)) for source in shown])
    mask: Mask = None
    if min(sizes) < max(sizes):
        mask = (mx.arange(max(sizes)) < mx.array(sizes)[:, None])[:, None, None]
    return keys, values, mask


def _padded(x: mx.array, size: int) -> mx.array:
    return mx.pad(x, [(0, 0), (0, 0), (0, size - x.shape[2]), (0, 0)])
