"""What the engine asks of anything that can guess.

A drafter sees the decoding rows 0..n-1 in the order of their places in layer memory, and mirrors what the
engine does to places (`move`, `clear`, `resize`). Its own memory may lag behind the target's as far as it
likes, but never holds a token
that was not kept: `settle` says after each round what was.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx

from runtime.sampling.sampler import Sampler
from runtime.step import Step


@dataclass(frozen=True, slots=True)
class Rows:
    """The decoding rows as a drafter sees them.

    ids: all tokens of each row; the last one is not in the target's memory yet. sampler: draws as the rows
    want it; a drafter that samples with it at the same positions gets the noise that the target will draw
    with.
    """

    ids: Sequence[Sequence[int]]
    sampler: Sampler

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Proposal:
    """tokens: int32 [n, depth], may be lazy; row b proposes its first counts[b] of them, the rest is
    padding.
    """

    tokens: mx.array
    counts: tuple[int, ...]


class Drafter(Protocol):
    """`limit` is the largest depth that it can propose."""

    limit: int

    def observe(self, step: Step, tokens: mx.array, hidden: mx.array, kept: Sequence[int]) -> None:
        """The target computed `hidden` [B, L, D] for tokens [B, L] of this step and kept the first kept[b] of
        each row.
        """
        ...

    def propose(self, rows: Rows, depth: int) -> Proposal | None:
        """Up to `depth` tokens that may follow each row's ids; None when there is nothing to propose."""
        ...

    def settle(self, lengths: Sequence[int]) -> None:
        """After a round: the target's memory of row b holds lengths[b] tokens. Forget what goes beyond."""
        ...

    def move(self, src: int, dst: int) -> None:
        """Place `dst` takes over what place `src` knew; `src` is empty then."""
        ...

    def clear(self, row: int) -> None: ...

    def resize(self, rows: int) -> None: ...
