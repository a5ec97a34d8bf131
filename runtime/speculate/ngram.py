"""Prompt lookup: what followed the last few tokens the last time they stood here.

Needs no model and no memory: answers that quote, correct or continue their prompt repeat long runs of it.
Source: prompt lookup decoding (A. Saxena, 2023).
"""

from collections.abc import Sequence

import mlx.core as mx

from runtime.speculate.drafter import Proposal, Rows
from runtime.step import Step


class NgramDrafter:
    """Matches the longest suffix of `longest` down to `shortest` tokens, its newest earlier occurrence first.

    One index per row: where each n-gram last ended. Building it costs one pass over new tokens, a look-up a
    few dictionary reads.
    """

    def __init__(self, *, longest: int = 4, shortest: int = 2, limit: int = 15) -> None:
        assert longest >= shortest >= 1
        self.limit = limit
        self._sizes = range(longest, shortest - 1, -1)
        self._indexes: list[_Index] = []

    def observe(self, step: Step, tokens: mx.array, hidden: mx.array, kept: Sequence[int]) -> None:
        """Nothing to do: `propose` is given all ids."""

    def propose(self, rows: Rows, depth: int) -> Proposal | None:
        self.resize(max(len(rows), len(self._indexes)))
        found = [self._indexes[row].follow(ids, self._sizes, depth) for row, ids in enumerate(rows.ids)]
        if not any(found):
            return None
        padded = [list(tokens) + [0] * (depth - len(tokens)) for tokens in found]
        return Proposal(mx.array(padded, dtype=mx.int32), tuple(len(tokens) for tokens in found))

    def settle(self, lengths: Sequence[int]) -> None:
        """Nothing to do: the index only ever holds emitted tokens."""

    def move(self, src: int, dst: int) -> None:
        self.resize(max(src, dst) + 1)
        self._indexes[dst], self._indexes[src] = self._indexes[src], _Index()

    def clear(self, row: int) -> None:
        if row < len(self._indexes):
            self._indexes[row] = _Index()

    def resize(self, rows: int) -> None:
        self._indexes += [_Index() for _ in range(rows - len(self._indexes))]
        del self._indexes[rows:]


class _Index:
    """n-gram -> where it last ended, for one row's tokens up to but without the newest."""

    def __init__(self) -> None:
        self._ends: dict[tuple[int, ...], int] = {}
        self._read = 0

    def follow(self, ids: Sequence[int], sizes: range, depth: int) -> Sequence[int]:
        """`depth` tokens that followed the longest known suffix of `ids`, () when none is known.

        What followed may run into the suffix itself: then `ids` ends in a repetition, which goes on.
        """
        if self._read > len(ids):  # another sequence took this place without `clear`
            self._ends.clear()
            self._read = 0
        for end in range(self._read + 1, len(ids)):
            for size in sizes:
                if size <= end:
                    self._ends[tuple(ids[end - size : end])] = end
        self._read = max(len(ids) - 1, 0)
        for size in sizes:
            end = self._ends.get(tuple(ids[-size:])) if size <= len(ids) else None
            if end is not None:
                period = len(ids) - end
                return [ids[end + ahead % period] for ahead in range(depth)]
        return ()
