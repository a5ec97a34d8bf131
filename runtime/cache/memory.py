"""What a whole model remembers: one cache per layer, and what is done to all of them together.

Invariants: entry i of a LayerMemory is what layer i is given; a Shared layer gets its donor's own object, a
stateless one None, and every operation of the group reaches each cache once. A group operation that raises
has changed nothing.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import overload

import mlx.core as mx

from runtime import host
from runtime.cache.attention import KVCache
from runtime.cache.budget import Budget
from runtime.cache.claims import Claims
from runtime.cache.encoder import EncoderCache
from runtime.cache.layout import LayerSpec, donors
from runtime.cache.pages import Page
from runtime.cache.pooled import PooledCache
from runtime.cache.protocol import LayerCache, Rotate
from runtime.cache.recurrent import RecurrentCache
from runtime.cache.remote import EncoderElsewhere, KVElsewhere, PooledElsewhere, RecurrentElsewhere
from runtime.cache.snapshot import resumable
from runtime.errors import CacheFull, NotSupported
from runtime.records import dataclass
from runtime.step import Step

MUCH_BYTES = 4 << 20
"""What layers have given up is returned to the system by so much at a time."""

OwnCache = KVCache | PooledCache | RecurrentCache | EncoderCache
"""The kinds of memory that a layer can own: each a LayerCache, and what a layer of its kind calls."""

ELSEWHERE = KVElsewhere | PooledElsewhere | RecurrentElsewhere | EncoderElsewhere


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """Where a row stood, and what its layers need to stand there again: see LayerMemory.rewind. It is valid
    while the row only goes on from there, and no more once the row was cleared, moved or restored.
    """

    length: int
    """Tokens that the row held."""
    states: Page
    """One per layer; None for a layer that owns nothing, or that can be cut there without it."""


class LayerMemory(Sequence[OwnCache | None]):
    """What a whole model remembers. Give it to the network as its `caches`."""

    def __init__(
        self, layout: Sequence[LayerSpec], own: Sequence[OwnCache | None], *, rows: int, budget: Budget
    ) -> None:
        self.layout = tuple(layout)
        self.budget = budget
        self.rows = rows
        self.claims: Claims | None = None
        self._room = 0
        self.own = tuple(own)
        """Of each layer what it owns."""
        self._elsewhere = [one for one in own if isinstance(one, ELSEWHERE)]
        self._seen = [own[donor] for donor in donors(layout)]
        # Only folds can refuse a commit, all for the same reason: the first does before any has committed.
        self._recurrent_first = sorted(self.caches, key=lambda cache: not isinstance(cache, RecurrentCache))

    @overload
    def __getitem__(self, index: int) -> OwnCache | None: ...
    @overload
    def __getitem__(self, index: slice) -> list[OwnCache | None]: ...
    def __getitem__(self, index: int | slice) -> OwnCache | list[OwnCache | None] | None:
        return self._seen[index]

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def caches(self) -> list[LayerCache]:
        """Those that exist, each once."""
        return [cache for cache in self.own if cache is not None]

    @property
    def nbytes(self) -> int:
        claimed = 0 if self.claims is None else self.claims.nbytes
        return claimed + sum(cache.nbytes for cache in self._counted)

    @property
    def unwritten_bytes(self) -> int:
        """The most of `nbytes` that is no pages of the machine's yet."""
        return 0 if self.claims is None else self.claims.unwritten_bytes

    @property
    def growing_bytes(self) -> int:
        """What is taken beside `nbytes` for a moment: where rows grow, one layer after the other is copied,
        and from a step to its commit all folds have the states after it, too.
        """
        folds = sum(cache.nbytes for cache in self.caches if isinstance(cache, RecurrentCache))
        if self.claims is not None:
            return max(self.claims.largest_bytes, folds)
        return max([cache.nbytes for cache in self.caches] + [folds])

    def evaluate(self) -> None:
        """Compute all that was written. After a prefill step nothing else need be."""
        mx.eval([array for cache in self.caches for array in cache.arrays])

    def prepare(self, step: Step, rows: int | None = None) -> None:
        """Make room for a step in every layer before any is written: CacheFull comes here or not at all.

        rows: as many, from the first on, are wanted; None: all.
        """
        tokens = max(step.starts) + step.width
        grows = tokens > self._room
        if grows:
            self._drop_unwanted(rows)
        if self.claims is not None:
            self.claims.prepare(step)
        if grows:
            self.reserve(tokens)
            self._room = min((cache.room for cache in self.caches), default=sys.maxsize)

    def expect(self, tokens: int, rows: int) -> None:
        """The last of this many rows, from the first on, will have so many tokens, and no others are wanted:
        make room for them at once, if there is some. Growing as they come would copy what is there again and
        again.
        """
        if tokens > self._room and (self.claims is None or self.claims.fits(rows - 1, tokens)):
            self._drop_unwanted(rows)
            with suppress(CacheFull):
                self.reserve(tokens)

    def reserve(self, tokens: int) -> None:
        """Make room for rows of `tokens` tokens in every layer.

        CacheFull, naming what all layers together would take, before anything is allocated.
        """
        self.grow(tokens, exact=self._exactly(tokens, self.rows))

    def claim(self, row: int, tokens: int) -> None:
        """Make room for this row's first tokens in every layer; CacheFull as in `reserve`."""
        if self.claims is not None:
            self.claims.claim([(row, tokens)])
        self.reserve(tokens)

    def grow(self, tokens: int, *, exact: bool) -> None:
        """As LayerCache.reserve, in every layer, once it is known that there is enough."""
        self._one_by_one(lambda cache: cache.reserve(tokens, exact=exact))

    def commit(self, step: Step, kept: Sequence[int]) -> None:
        """As LayerCache.commit, in every layer."""
        for cache in self._recurrent_first:  # in another order a refusal would leave layers at two lengths
            cache.commit(step, kept)

    def can_resume(self, row: int, length: int) -> bool:
        return all(cache.can_resume(row, length) for cache in self.caches)

    def mark(self, row: int) -> Mark:
        """Remember where the row stands, for a `rewind` within the next few steps: the third time scale,
        between `commit`, which forgets within the last step, and pages, which outlive their rows.
        """
        states = tuple(None if cache is None else cache.mark(row) for cache in self.own)
        return Mark(self._length(row), states)

    def rewind(self, row: int, length: int, marks: Iterable[Mark] = ()) -> int:
        """Back to `length` tokens, as if the others had never been read; the length the row has then.

        Where some layer cannot be cut there (a fold, a window that has moved on), that is the latest of
        `marks` below it that all layers can go back to, or 0. A row that is shorter already stays as it is.
        """
        if self._length(row) <= length:
            return self._length(row)
        known = sorted((mark for mark in marks if mark.length <= length), key=lambda mark: -mark.length)
        for mark in (Mark(length, (None,) * len(self.own)), *known):
            # All are asked before any returns: layers of one row must stand at one length.
            if self._knows(row, mark):
                self._return(row, mark)
                return mark.length
        self.clear(row)
        return 0

    def snapshot(self, row: int, start: int) -> Page:
        """What a row holds of [start, length). Lazy: evaluate it, or let it go, before the next write."""
        return tuple(None if cache is None else cache.snapshot(row, start) for cache in self.own)

    def restore(
        self, row: int, pages: Sequence[Page], stop: int, layers: Sequence[int] | None = None
    ) -> None:
        """Put the row at `stop` from pages in order of position. NotSupported names the layer. layers: those
        alone, for now (`runtime.cache.restore`).
        """
        some = range(len(self.layout)) if layers is None else layers
        columns = {i: [page[i] for page in pages] for i in some}
        for i, column in columns.items():
            spec = self.layout[i]
            if not resumable(spec, column, stop):
                raise NotSupported(f"the pages do not let layer {i} ({spec.kind}) resume at {stop}")
        self.claim(row, stop)  # CacheFull comes here, before a layer has changed
        self.evaluate()  # a write into a buffer that a step on its way uses would copy all of it
        for i, column in columns.items():
            if (cache := self.own[i]) is not None:
                cache.restore(row, [snapshot for snapshot in column if snapshot is not None], stop)

    def move(self, src: int, dst: int) -> None:
        copies = [cache.row_copies(src) for cache in self.caches]
        mx.eval([array for arrays in copies for array in arrays])
        for cache, arrays in zip(self.caches, copies, strict=True):
            cache.move(src, dst, arrays)
        if self.claims is not None and src != dst:
            self.claims.moved(src, dst)

    def clear(self, row: int) -> None:
        for cache in self.caches:
            cache.clear(row)
        if self.claims is not None:
            self.claims.ended(row)

    def remove(self, row: int, start: int, stop: int, rotates: Sequence[Rotate | None] | None = None) -> None:
        """Forget [start, stop) in every layer. rotates: per layer, needed for a cut inside."""
        turns = rotates if rotates is not None else [None] * len(self.layout)
        for i, (cache, rotate) in enumerate(zip(self.own, turns, strict=True)):
            if cache is not None and not (
                cache.can_remove(row, start, stop)
                and (rotate is not None or not isinstance(cache, KVCache) or stop == cache.lengths[row])
            ):
                raise NotSupported(
                    f"layer {i} ({self.layout[i].kind}) cannot forget the tokens [{start}, {stop})"
                )
        for cache, rotate in zip(self.own, turns, strict=True):
            if cache is not None:
                cache.remove(row, start, stop, rotate)

    def resize(self, rows: int) -> None:
        """As LayerCache.resize, in every layer. CacheFull before any grew. Room for tokens that no row has is
        not kept for more rows.
        """
        self.hold(rows, exact=self._exactly(0, rows))

    def hold(self, rows: int, *, exact: bool) -> None:
        """As LayerCache.resize, in every layer, once it is known that there is enough."""
        self._one_by_one(lambda cache: cache.resize(rows, exact=exact))
        self.rows = rows
        self._room = 0
        if self.claims is not None:
            self.claims.resize(rows)

    def _one_by_one(self, change: Callable[[LayerCache], None]) -> None:
        """In every layer. What is copied is copied before the next one's turn, and the old memory goes. Left
        to the step that needs it, all layers would have both at once; left to the C library, much of the old,
        since blocks that grow do not fit where smaller ones were.
        """
        left = 0
        for cache in self.caches:
            before, had = cache.arrays, cache.nbytes
            change(cache)
            copied = any(new is not old for new, old in zip(cache.arrays, before, strict=False))
            del before
            if copied:
                mx.eval(cache.arrays)
                left += had
            if left >= MUCH_BYTES:
                host.trim()
                left = 0

    @property
    def elsewhere(self) -> frozenset[int]:
        """Layers of other machines."""
        return frozenset(i for i, one in enumerate(self.own) if isinstance(one, ELSEWHERE))

    def follow(self, step: Step) -> None:
        """The layers of other machines see this step."""
        for cache in self._elsewhere:
            cache.follow(step)

    def follow_source(self, step: Step, tokens: int) -> None:
        """Those of an encoder's are given a prompt of so many tokens for each row of this step."""
        for cache in self._elsewhere:
            if isinstance(cache, EncoderElsewhere):
                cache.follow_source(step, tokens)

    def _drop_unwanted(self, rows: int | None) -> None:
        """Before rows get longer: all get as long as the longest."""
        if rows is not None and rows < self.rows:
            self.resize(rows)

    @property
    def _counted(self) -> Sequence[LayerCache]:
        """Those that the budget knows by themselves."""
        claimed = () if self.claims is None else self.claims.caches
        return [cache for cache in self.caches if cache not in claimed]

    def _length(self, row: int) -> int:
        return next((cache.lengths[row] for cache in self.caches), 0)

    def _knows(self, row: int, mark: Mark) -> bool:
        """Can every layer go back there?"""
        return all(
            cache is None or state is not None or cache.can_resume(row, mark.length)
            for cache, state in zip(self.own, mark.states, strict=True)
        )

    def _return(self, row: int, mark: Mark) -> None:
        for cache, state in zip(self.own, mark.states, strict=True):
            if cache is None:
                continue
            if cache.can_resume(row, mark.length):
                cache.remove(row, mark.length, cache.lengths[row])
            elif state is not None:
                cache.restore(row, [state], mark.length)

    def _exactly(self, tokens: int, rows: int) -> bool:
        """Must every layer do with just this much? False when there is enough for spare room too."""
        more = 0
        for exact in (False, True):
            more = sum(
                cache.wanted_bytes(tokens, rows, exact=exact) - cache.nbytes for cache in self._counted
            )
            if self.budget.fits(more):
                return exact
        if not self.budget.make_room(more):
            self.budget.claim(more)  # CacheFull
        return True
