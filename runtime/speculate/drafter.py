"""What the engine asks of anything that can guess.

A drafter sees the decoding rows 0..n-1 in the order of their places in layer memory, and mirrors what the
engine does to places (`move`, `clear`, `resize`). Its own memory may lag behind the target's as far as it
likes, but never holds a token that was not kept: `settle` says after each round what was.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol, runtime_checkable

import mlx.core as mx

from runtime.cache.budget import Budget
from runtime.cache.build import build_memory
from runtime.cache.layout import LayerSpec
from runtime.cache.memory import LayerMemory
from runtime.cache.prefix import PrefixStore
from runtime.cpu import native
from runtime.errors import CacheFull
from runtime.loaded import LoadedModel
from runtime.records import dataclass
from runtime.sampling.constraint import Ahead
from runtime.sampling.sampler import Sampler
from runtime.speculate.costs import token_cost
from runtime.step import Step


@dataclass(frozen=True, slots=True)
class Rows:
    """The decoding rows as a drafter sees them."""

    ids: Sequence[Sequence[int]]
    """All tokens of each row; the last one is not in the target's memory yet."""
    sampler: Sampler
    """Draws as the rows want it; a drafter that samples with it at the same positions gets the noise that the
    target will draw with.
    """
    ahead: Ahead | None = None
    """What the rows' grammars allow along their drafts; None where no row has a grammar."""

    def __len__(self) -> int:
        return len(self.ids)

    def forced(self, limit: int) -> "list[Sequence[int]]":
        """Of each row the next tokens, up to `limit`, where its grammar leaves no choice."""
        ahead = self.ahead
        return [() if ahead is None else ahead.forced(row, limit) for row in range(len(self))]


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a drafter guesses for n rows."""

    tokens: mx.array
    """int32 [n, depth], may be lazy. Row b proposes its first counts[b]; the rest is padding."""
    counts: tuple[int, ...]
    """Of each row; 0 for rows that it proposes nothing for."""
    reading: bool = False
    """Part of the time went into tokens that the drafter lacked, so its cost says nothing; rows that it has
    not caught up with have a count of 0.
    """
    odds: tuple[mx.array | None, ...] = ()
    """Per row the log-probabilities [1, depth, V] that its tokens were drawn from, for rows that reject; None
    where they are certain, () where all are.
    """


@dataclass(frozen=True, slots=True)
class Audition:
    """What a drafter would have drawn where tokens stand already."""

    tokens: mx.array
    """int32 [n, width], may be lazy."""
    columns: tuple[range, ...]
    """Of each row those that are guesses of its last ids; none where it has not read so far yet."""


class Drafter(Protocol):
    """Guesses the tokens that come next, one sequence per place."""

    limit: int
    """The largest depth that it can propose."""
    token_cost: float
    """See `runtime.speculate.costs.DrafterTraits`."""

    def begin(self, row: int, ids: Sequence[int], space: str = "") -> None:
        """A sequence that begins with `ids`, its whole prompt, takes the empty place `row`. The target may
        know some of it already: what it reads from here on is observed, the rest never is.

        space: what sets its target's hidden states apart from those of other sequences of the same ids, its
        adapters; "" for nothing. Who keeps what such states have made keeps it apart.
        """
        ...

    def end(self, row: int, ids: Sequence[int]) -> None:
        """The sequence at this place is over, and `ids` is all that the target's memory holds of it. `clear`
        follows.
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


@runtime_checkable
class Observes(Protocol):
    """A drafter that starts from what the target computes."""

    def observe(self, step: Step, hidden: mx.array, kept: Sequence[int]) -> None:
        """The target computed `hidden` [B, L, D] for the ids of this step and kept the first kept[b] of each
        row.
        """
        ...


@runtime_checkable
class Graded(Protocol):
    """A drafter that often has nothing to say, and knows beforehand how good its guess will be."""

    def grade(self, ids: Sequence[Sequence[int]], forced: Sequence[int] = ()) -> int:
        """0 when it has nothing for any of these rows, else the grade of its best guess, 1 or more.

        forced: per row, how many of the next tokens its grammar leaves no choice about; () for none.

        What is accepted is learned for each grade apart. Asked before every step, so it must be cheap; the
        ids may lack a token that is on its way.
        """
        ...


@runtime_checkable
class Rehearses(Protocol):
    """A drafter whose first proposal costs the host more than others."""

    def rehearse(self) -> None:
        """Make what it would make then. The device is busy meanwhile, and is given nothing to do."""
        ...


@runtime_checkable
class Auditions(Protocol):
    """A drafter that can be auditioned beside plain decoding: nothing has to wait to learn how good it is."""

    def audition(self, rows: Rows, count: int) -> Audition | None:
        """What it would have drawn in the place of each row's last `count` ids. None where it cannot tell.

        Rows that it has yet to read for longer have no columns; asked again, it reads on.
        """
        ...


@runtime_checkable
class Reads(Protocol):
    """A drafter that reads by itself, when it is asked, what it needs to know of a sequence."""

    def behind(self, ids: Sequence[Sequence[int]]) -> bool:
        """Would it read for longer than a round takes before it drafts for these rows? Asked at every step,
        so it must be cheap, and it changes nothing.
        """
        ...


@runtime_checkable
class Remembers(Protocol):
    """A drafter with layer memory of its own. Its bytes count in the budget that the memory was built with;
    `begin`, `observe`, `propose` and `resize` may raise CacheFull.
    """

    memory: LayerMemory
    ahead: int
    """How many tokens beyond its own an entry of the memory depends on."""

    def share(self, store: PrefixStore) -> None:
        """Start rows from what earlier ones left in `store`, which is for this drafter alone."""
        ...


def own_memory(
    layout: Sequence[LayerSpec], dtype: mx.Dtype, *, limit: int, budget: Budget | None
) -> LayerMemory:
    """What a drafter remembers of its rows, with a place for one. limit: of the tokens that it guesses.

    A layer that folds takes its room with the place, and not with the first tokens. Where there is none there
    is no place either: the drafter rests from the start (`standby`), as it does where room is short later.
    """
    memory = build_memory(
        layout, rows=0, dtype=dtype, slack=limit + 1, budget=budget, by_pages=native.by_pages()
    )
    with suppress(CacheFull):
        memory.resize(1)
    return memory


def pass_cost(weight_bytes: int, layers: int, target: LoadedModel) -> float:
    """A pass of a drafter's network in plain rounds of its target, by the shapes of both."""
    return token_cost(weight_bytes, layers, target.weight_bytes, len(target.described.layout))
