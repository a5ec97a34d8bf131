"""One step of the target, with drafts to verify or without: what happens in it, in the only right order.

    outlook = drafting.outlook(ids, limits, in_flight=...) could drafts be worth waiting for tokens in flight?
    with drafting.round(now, outlook, shared=...) as here:
        guess = here.propose(rows, limits)              once all tokens are known; not for a plain round
        ...                                             the forward pass, and the target's draws
        here.keep(step, hidden, kept)

`keep` commits first, since layer memory may refuse, and then nothing has happened. Drafters see what the
target computed before they forget what it did not keep, since they read on from where they have forgotten to.
Leaving without `keep`, by whatever exception, commits nothing: drafters forget all that was proposed.

What a round costs is known when the next one begins, so `done` learns from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import NamedTuple, Self

import mlx.core as mx

from runtime.cache.memory import LayerMemory
from runtime.records import dataclass
from runtime.speculate.depth import Decision
from runtime.speculate.drafter import Proposal, Rows
from runtime.speculate.forced_tokens import MOST_FORCED
from runtime.speculate.learner import Learners
from runtime.speculate.standby import Standby
from runtime.step import Step

NOBODY = Decision(())
NOTHING: Mapping[str, int] = {}


class Outlook(NamedTuple):
    """What is known of the next round before the tokens in flight are."""

    rows: int
    """Rows that decode."""
    decision: Decision = NOBODY
    """Which drafters would be asked."""
    expected: Mapping[str, int] = NOTHING
    """By drafter: the grade of a guess that includes the tokens in flight. Whether these come true judges the
    drafter at no cost.
    """
    able: bool = True
    """Could any row use a draft?"""

    @property
    def asks(self) -> bool:
        """Would a drafter be asked? If not, the tokens in flight need not be read first."""
        return bool(self.decision.offers)


@dataclass(frozen=True, slots=True)
class Guess:
    """A proposal to verify."""

    drafter: str
    """The name of the drafter that made it."""
    depth: int
    """The depth that was asked for; the proposal may have fewer tokens."""
    proposal: Proposal
    grade: int = 1
    """The drafter's grade when it was asked."""


class Round:
    """Made by `Drafting.round`. shared: the step does other work, too, so that its time says nothing.

    price, leaves_plain: those of the `Decision`, for a round that explores.
    """

    _guess: Guess | None = None
    price, leaves_plain = 0.0, False
    _judged: Sequence[tuple[int, int]] = ()
    _reader: str | None = None  # a drafter that caught up with its rows, which takes longer than a round
    _tried = False  # was it asked in order to learn whether it pays?
    _ran = False
    _open: list[int] | None = None  # the lengths to settle to, while drafters may hold more than the target

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
        """Drafts for rows whose tokens are all known; None for a plain round. limits: the most drafts that
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
            # Set before asking: if anything is raised, `__exit__` forgets what was proposed.
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
            if not reading:  # one that often has nothing is not asked at every step
                learner.saw(offer.name, grades[offer.name], False)
        return None

    def keep(self, step: Step, hidden: mx.array | None, kept: Sequence[int]) -> None:
        """The target has computed `hidden` [B, L, D] for this step; row b keeps its first kept[b] tokens.
        hidden: None if no drafter needs it (`Drafting.observes`).

        NotSupported, with nothing done, if layer memory cannot keep just these.
        """
        # First, as it may refuse: nothing has happened yet then, and `_settle` forgets all that was proposed.
        self._memory.commit(step, kept)
        self._ran = True
        if self._guess is not None:
            self._open = [start + count for start, count in zip(step.starts, kept, strict=True)]
            self._judged = [(count - 1, n - 1) for count, n in zip(step.counts, kept, strict=True)]
        # Before settling: a drafter reads on from where it has forgotten to, and `hidden` comes only once.
        self._standby.observe(step, hidden, kept)
        if self._open is not None:
            self._settle()

    @property
    def drafts(self) -> bool:
        """Has it drafts to verify?"""
        return self._guess is not None

    def done(self, seconds: float | None) -> None:
        """The step is over and took so many seconds; None if that is not known, as no step follows."""
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
