"""What a grammar leaves no choice about: the names of a schema, the words around a call, the end of thinking.

Such tokens come true whatever the model thinks, so as drafts they cost no more than the places that they take
in a step. How many pay is learned, as of any drafter; but a batch takes them only where most of its rows have
some, since the places that one row needs are computed for all.
"""

from collections.abc import Sequence

import mlx.core as mx

from runtime.speculate.drafter import Proposal, Rows

MOST_FORCED = 15


class ForcedDrafter:
    """Knows nothing of its own: the rows' grammars say it all."""

    limit = MOST_FORCED
    token_cost = 0.0

    def grade(self, ids: Sequence[Sequence[int]], forced: Sequence[int] = ()) -> int:
        """Runs of 1, 2 or 3, 4 to 7, and more tokens; in a batch, what more than half of the rows have."""
        return sorted(forced)[(len(forced) - 1) // 2].bit_length() if forced else 0

    def propose(self, rows: Rows, depth: int) -> Proposal | None:
        runs = rows.forced(depth)
        if not any(runs):
            return None
        longest = max(map(len, runs))
        padded = [[*run, *[0] * (longest - len(run))] for run in runs]
        return Proposal(mx.array(padded, dtype=mx.int32), tuple(map(len, runs)))

    def begin(self, row: int, ids: Sequence[int], space: str = "") -> None: ...
    def end(self, row: int, ids: Sequence[int]) -> None: ...
    def settle(self, lengths: Sequence[int]) -> None: ...
    def move(self, src: int, dst: int) -> None: ...
    def clear(self, row: int) -> None: ...
    def resize(self, rows: int) -> None: ...
