"""One step of the target with guesses to verify, or without: what happens in it, in the only right order.

    outlook = desk.outlook(ids, limits, flying=...)     might anybody be worth waiting for? a question
    with desk.round(now, outlook, shared=...) as here:
        guess = here.propose(rows, limits)              once all tokens are known; left out for a plain round
        ...                                             the forward pass, and what the target draws
        here.keep(step, hidden, kept)

`keep` commits first, since layer memory may refuse, and nothing has happened then. Drafters see what the
target computed before they forget what it did not keep, as what they forget to is where they read on. Leaving
without `keep`, by whatever exception, commits nothing: drafters forget all that was proposed.

What a round costs is known when the next one begins, so it is learned from by `done`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import NamedTuple, Self

import mlx.core as mx

from runtime.cache.build import LayerMemory
from runtime.records import dataclass
from runtime.speculate.depth import Decision
from runtime.speculate.drafter import Proposal, Rows
from runtime.speculate.forced import MOST_FORCED
from runtime.speculate.learner import Learners
from runtime.speculate.standby import Standby
from runtime.step import Step

NOBODY = Decision(())
NOTHING: Mapping[str, int] = {}


class Outlook(NamedTuple):
    """What can be said of the next round before the tokens in flight are known."""

    rows: int
    """How many decode."""
    decision: Decision = NOBODY
    """Whom one would ask."""
    expected: Mapping[str, int] = NOTHING
    """By drafter: the grade of a guess that takes the tokens in flight for granted. Whether they come true
    judges a draft at no cost.
    """
    able: bool = True
    """May any row have a draft at all?"""

    @property
    def asks(self) -> bool:
        """Might a drafter be asked? If not, no token in flight need be read first."""
        return bool(self.decision.offers)


@dataclass(frozen=True, slots=True)
class Guess:
    """A proposal to verify."""

    drafter: str
    """The name of who made it."""
    depth: int
    """As it was asked for; the proposal may have fewer tokens."""
    proposal: Proposal
    grade: int = 1
    """The drafter's, when it was asked."""


class Round:
    """Made by `Desk.round`. shared: the step does other work too, so that its time says nothing.

    price, leaves_plain: as decided (`Decision`), where it was tried to learn something.
    """

    _guess: Guess | None = None
    price, leaves_plain = 0.0, False
    _judged: Sequence[tuple[int, int]] = ()
    _reader: str | None = None  # who caught up with its rows, so that its time is no round's
    _tried = False  # who was asked to learn whether it pays
    _ran = False
    _open: list[int] | None = None  # lengths to settle to: drafters may hold more than the target

    def __init__(
        self,
        standby: Standby,
        learners: Learners,
        memory: LayerMemory,
        outlook: Outlook,
        shared: bool,
    ) -> None:
        self._standby, self._learners, self._memory = standby, learners, memory
        self._outlook, self.shared = outlook, shared
        self._rows = outlook.rows or 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._open is not None:
            self._settle()

    def propose(self, rows: Rows, limits: Sequence[int]) -> Guess | None:
        """Guesses for rows whose tokens are all known; None for a plain round. limits: the most drafts that
        each row can use.
        """
        forced = [len(run) for run in rows.forced(MOST_FORCED)]
        grades, learner = self._standby.grades(rows.ids, forced), self._learners.of(len(rows))
        self._rows = len(rows)
        for name, grade in self._outlook.expected.items():
            learner.saw(name, grade, grades.get(name, 0) >= grade)
        if max(limits) < 1:
            return None
        decision = learner.decide(grades, max(limits), self._standby.behind(rows.ids))
        for place, offer in enumerate(decision.offers):
            # Set before asking: whatever is raised in the middle, `__exit__` forgets what was proposed.
            self._open = [len(ids) - 1 for ids in rows.ids]
            proposal = self._standby.ask(offer.name, rows, offer.depth)
            reading = proposal is not None and proposal.reading
            if reading and self._reader is None:
                self._reader, self._tried = offer.name, decision.price > 0 and not place
            if proposal is not None and any(counts := tuple(map(min, proposal.counts, limits))):
                self.price = 0.0 if place else decision.price
                self.leaves_plain = decision.leaves_plain and not place
                proposal = replace(proposal, counts=counts)
                self._guess = Guess(offer.name, offer.depth, proposal, grades[offer.name])
                return self._guess
            self._settle()  # nobody will judge what was proposed
            if not reading:  # not asked at every step if it often has nothing
                learner.saw(offer.name, grades[offer.name], False)
        return None

    def keep(self, step: Step, hidden: mx.array | None, kept: Sequence[int]) -> None:
        """The target computed `hidden` [B, L, D] for this step; of each row the first kept[b] tokens stay.
        hidden: None where nobody wants to see it (`Desk.observes`).

        NotSupported, with nothing done, where layer memory cannot keep just these.
        """
        # First, as it may refuse: nothing has happened yet then, and `_settle` forgets all that was proposed.
        self._memory.commit(step, kept)
        self._ran = True
        if self._guess is not None:
            self._open = [start + count for start, count in zip(step.starts, kept, strict=True)]
            self._judged = [(count - 1, n - 1) for count, n in zip(step.counts, kept, strict=True)]
        # Before settling: a drafter reads on from what it forgets to, and `hidden` is not there again.
        self._standby.observe(step, hidden, kept)
        if self._open is not None:
            self._settle()

    @property
    def drafts(self) -> bool:
        """Has it guesses to verify?"""
        return self._guess is not None

    def done(self, seconds: float | None) -> None:
        """The step is over and took so long; None when none follows, so that its cost stays unknown."""
        spent_s = None if self.shared or not self._ran else seconds
        seconds = None if self._reader else spent_s
        learner, guess = self._learners.of(self._rows), self._guess
        if guess is None:
            learner.plain(seconds, able=self._outlook.able)
        else:
            learner.drafted(guess.drafter, guess.grade, guess.depth, self._judged, seconds, self.price)
        if self._reader and self._tried and spent_s is not None:
            learner.read(self._reader, spent_s, judged=guess is not None)

    def _settle(self) -> None:
        lengths, self._open = self._open, None
        if lengths is not None:
            self._standby.settle(lengths)
