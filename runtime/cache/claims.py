"""What rows take of memory that is taken page by page, as it is written.

Rows of a layer share one array, as wide as the longest of them, and slots that no row has written are no
pages of the machine's memory. So the budget counts, for each row, the tokens that it may have written, and a
long row beside short ones is not counted as many long ones. Layers with a window count its slots at most.

Invariants: a row writes no token that is not claimed; the budget holds `nbytes` of these layers, whose own
arrays it knows nothing of.
"""

from collections.abc import Sequence

import mlx.core as mx

from runtime.cache.budget import Budget
from runtime.cache.rows import KVRows
from runtime.step import Step

GRAIN = 256
"""Tokens that are claimed at once, where the budget has room for them: most steps ask for nothing then."""
SPARE = 1024
"""Tokens whose pages a row's place keeps when the row ends: the next one has them without new pages."""


class Claims:
    """caches: the layers whose rows are counted so. rows: as many as they have."""

    def __init__(self, caches: Sequence[KVRows], budget: Budget, rows: int) -> None:
        self.caches = tuple(caches)
        self._budget = budget
        self._tokens = [0] * rows
        self._step: Step | None = None
        budget.ask(self.trim)

    @property
    def nbytes(self) -> int:
        return sum(map(self._bytes, self._tokens))

    @property
    def tokens(self) -> tuple[int, ...]:
        """What each row may write up to."""
        return tuple(self._tokens)

    @property
    def unwritten_bytes(self) -> int:
        """The most of it that is no pages yet."""
        return self.nbytes - sum(map(self._bytes, self._lengths))

    @property
    def largest_bytes(self) -> int:
        """Of the layer that has most, what is written."""
        return max((sum(map(cache.row_bytes, cache.lengths)) for cache in self.caches), default=0)

    def prepare(self, step: Step) -> None:
        """For what this step writes. CacheFull as in `claim`."""
        self._step = step
        width, tokens = step.width, self._tokens
        if any(start + width > tokens[row] for row, start in enumerate(step.starts, step.first)):
            self.claim([(row, start + width) for row, start in enumerate(step.starts, step.first)])

    def fits(self, row: int, tokens: int) -> bool:
        """Would the budget have room for a row of so many tokens there?"""
        return self._budget.make_room(self._more(row, tokens))

    def claim(self, wanted: Sequence[tuple[int, int]]) -> None:
        """wanted: rows, and how many tokens each is to have. CacheFull when the budget does not allow it,
        even once rows have given back what they do not use.
        """
        wanted = [(row, tokens) for row, tokens in wanted if tokens > self._tokens[row]]
        rounded = [(row, -(-tokens // GRAIN) * GRAIN) for row, tokens in wanted]
        self._budget.make_room(self._all(rounded))  # which may change what some of them have
        chosen = rounded if self._budget.fits(self._all(rounded)) else wanted
        self._budget.claim(self._all(chosen))
        for row, tokens in chosen:
            self._tokens[row] = tokens

    def trim(self) -> None:
        """Rows give back what they do not use, and the last step does not write."""
        step = self._step
        ends = {row: start + step.width for row, start in enumerate(step.starts, step.first)} if step else {}
        for row, length in enumerate(self._lengths):
            self._lower(row, max(length, ends.get(row, 0)))

    def ended(self, row: int) -> None:
        """The row is empty."""
        self._step = None
        self._lower(row, SPARE)

    def moved(self, src: int, dst: int) -> None:
        """What row `src` held is in `dst`, which was empty: never more than was counted for both."""
        self._step = None
        self._set(dst, max(self._tokens[dst], self._lengths[dst]))
        self._lower(src, SPARE if self._budget.fits(0) else 0)

    def resize(self, rows: int) -> None:
        """There are so many rows now; those behind them are gone."""
        self._step = None
        for row in range(rows, len(self._tokens)):
            self._lower(row, 0)
        fewer = rows < len(self._tokens)
        self._tokens = self._tokens[:rows] + [0] * (rows - len(self._tokens))
        if fewer:
            self.trim()

    @property
    def _lengths(self) -> Sequence[int]:
        return self.caches[0].lengths if self.caches else ()

    def _bytes(self, tokens: int) -> int:
        return sum(cache.row_bytes(tokens) for cache in self.caches)

    def _more(self, row: int, tokens: int) -> int:
        return max(self._bytes(tokens) - self._bytes(self._tokens[row]), 0)

    def _all(self, wanted: Sequence[tuple[int, int]]) -> int:
        return sum(self._more(row, tokens) for row, tokens in wanted)

    def _lower(self, row: int, tokens: int) -> None:
        if tokens < self._tokens[row]:
            for cache in self.caches:
                cache.give_back(row, tokens)
            mx.async_eval([array for cache in self.caches for array in cache.arrays])
            self._set(row, tokens)

    def _set(self, row: int, tokens: int) -> None:
        self._budget.held_bytes += self._bytes(tokens) - self._bytes(self._tokens[row])
        self._tokens[row] = tokens
