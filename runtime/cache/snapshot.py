"""Snapshots: copies of what one layer remembers of a range of positions, and which of them suffice to go on
from. Those of all layers together are a page (`runtime.cache.pages`).

Two kinds. A Span is cut anywhere (keys and values: one entry per position). A Checkpoint is the outcome of a
whole fold and is true at its end only (recurrent state, an encoder's output).

Invariants: the arrays are evaluated or lazy copies, never views of a live buffer, and nobody writes to
them. The page of an edge [start, stop) of a windowed layer may lack its beginning, which the layer had
forgotten: `held_from` tells.
"""

from collections.abc import Sequence
from math import prod

import mlx.core as mx

from runtime.cache.layout import (
    Chunked,
    Encoder,
    Full,
    LayerSpec,
    Pooled,
    Recurrent,
    Rotating,
    Shared,
    Stateless,
)
from runtime.records import dataclass

TOKEN_AXIS = 2


@dataclass(frozen=True, slots=True)
class Reach:
    """How far back a query looks: the last `window` tokens, its own included; or from p - p % chunk on; or
    all.

    `oldest(p)` never decreases with p, so what one query no longer sees may be forgotten.
    """

    window: int | None = None
    chunk: int | None = None

    @classmethod
    def of(cls, spec: Full | Rotating | Chunked) -> "Reach":
        match spec:
            case Full():
                return cls()
            case Rotating():
                return cls(window=spec.window)
            case Chunked():
                return cls(chunk=spec.chunk)

    def oldest(self, position: int) -> int:
        """The first position that a query at `position` sees."""
        if self.window is not None:
            return max(0, position - self.window + 1)
        if self.chunk is not None:
            return position - position % self.chunk
        return 0

    def needed(self, length: int) -> int:
        """The first position a row of `length` tokens must still hold.

        That is what its last token saw, not its next: drafters that read a target's memory ask from there.
        """
        return self.oldest(max(0, length - 1))


@dataclass(frozen=True, slots=True)
class Absent:
    """Stands for an array that another machine has (`runtime.cache.remote`)."""

    shape: tuple[int, ...]
    dtype: mx.Dtype

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.size

    def __getitem__(self, index: slice | tuple[slice, ...]) -> "Absent":
        """Cut along its first axes."""
        cuts = index if isinstance(index, tuple) else (index,)
        cut = [len(range(*one.indices(n))) for n, one in zip(self.shape, cuts, strict=False)]
        return Absent((*cut, *self.shape[len(cut) :]), self.dtype)


def detached(x: mx.array) -> mx.array:
    """The same values in memory of their own; what is absent here stays so.

    `mx.contiguous` shares the buffer when x is nearly all of it, `mx.array` and `mx.copy` may; an elementwise
    operation never does, and the maximum of x and x is x for every number.
    """
    return x if isinstance(x, Absent) else mx.maximum(x, x)


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """Keys and values of an edge [start, stop) of the tree."""

    start: int
    stop: int
    arrays: tuple[mx.array, ...]
    """Each [1, H, stop - held_from, ...]: the entries [held_from, stop)."""
    every: int = 1
    """Tokens to an entry, which belongs to the last of them. Where they are several, no entry is missing."""

    @property
    def held_from(self) -> int:
        return self.start if self.every > 1 else self.stop - self.arrays[0].shape[TOKEN_AXIS]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def cut(self, start: int, stop: int) -> tuple[mx.array, ...]:
        """Views of the entries [start, stop), for immediate use."""
        first, start, stop = (at // self.every for at in (self.held_from, start, stop))
        return tuple(array[:, :, start - first : stop - first] for array in self.arrays)

    def split(self, at: int) -> "tuple[Span, Span]":
        """[start, at) and [at, stop), in memory of their own. start < at < stop."""
        assert self.start < at < self.stop
        middle = max(at, self.held_from)
        left = tuple(detached(part) for part in self.cut(self.held_from, middle))
        right = tuple(detached(part) for part in self.cut(middle, self.stop))
        return Span(self.start, at, left, self.every), Span(at, self.stop, right, self.every)


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A recurrent layer's state after the tokens [0, stop), for an edge [start, stop) of the tree."""

    start: int
    stop: int
    arrays: tuple[mx.array, ...]
    """Each [1, ...], in the layout's order."""

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def split(self, at: int) -> "tuple[None, Checkpoint]":
        """The state at `at` is not known; the right part keeps what is."""
        assert self.start < at < self.stop
        return None, Checkpoint(at, self.stop, self.arrays)


Snapshot = Span | Checkpoint


def covered_from(snapshots: Sequence[Snapshot | None], stop: int) -> int:
    """The lowest position from which Spans hold every entry up to `stop`; `stop` if none does."""
    covered = stop
    for page in reversed(snapshots):
        if not isinstance(page, Span):
            if page is None:
                continue
            break
        if page.start >= covered:
            continue
        if page.stop < covered:
            break
        covered = min(covered, page.held_from)
    return covered


def resumable(spec: LayerSpec, snapshots: Sequence[Snapshot | None], stop: int) -> bool:
    """Can a row of such a layer be put at `stop` tokens from these pages, in order of position?

    None stands for a page that is missing. Pure: nothing is touched.
    """
    if stop == 0:
        return True
    match spec:
        case Full() | Rotating() | Chunked():
            return covered_from(snapshots, stop) <= Reach.of(spec).needed(stop)
        case Pooled():
            return covered_from(snapshots, stop) == 0
        case Recurrent() | Encoder():
            return find_checkpoint(snapshots, stop) is not None
        case Shared() | Stateless():
            return True


def find_checkpoint(snapshots: Sequence[Snapshot | None], stop: int) -> Checkpoint | None:
    """The one that is true at `stop`, if it is among them."""
    for page in reversed(snapshots):
        if isinstance(page, Checkpoint) and page.stop == stop:
            return page
    return None
