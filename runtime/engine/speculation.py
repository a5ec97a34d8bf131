"""Which drafter proposes next and how far, learned from what rounds cost and what was accepted.

Several drafters may stand by (a draft model, prompt lookup). What is learned of them is kept per size of
batch, since both cost and gain depend on how many rows share a round (see `runtime.speculate.learner`).

A step asks in two moments. `wanted`, before the tokens in flight are read: is anybody worth waiting for? And
then `propose`, when they are known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx

from runtime.engine.clock import Moment
from runtime.engine.standby import Standby
from runtime.speculate.depth import Decision
from runtime.speculate.drafter import Drafter, Proposal, Rows
from runtime.speculate.learned import Lessons, from_json, to_json
from runtime.speculate.learner import Learner
from runtime.step import Step

Judged = list[tuple[int, int]]
"""Per row: drafts judged, drafts accepted."""


@dataclass(frozen=True, slots=True)
class Round:
    """A proposal to verify, who made it, and of which grade it is. price: see Decision."""

    drafter: str
    depth: int
    proposal: Proposal
    grade: int = 1
    price: float = 0.0


@dataclass(slots=True)
class _Open:
    """The step that runs now; its cost is known when the next one begins."""

    proposed: Round | None
    rows: int
    began: Moment
    judged: Judged
    price: float
    reader: str | None  # the drafter that caught up with its rows, so that its time is no round's
    tried: bool  # that drafter was asked to learn whether it pays
    shared: bool  # with other work, so that its time says nothing


class Speculation:
    """Drafters by name, in order of preference where nothing is known yet.

    learned: what `learned()` gave in an earlier run; what is of no use in it is left out.
    """

    def __init__(self, drafters: Mapping[str, Drafter], learned: object = None) -> None:
        self.standby = Standby(drafters)
        self._lessons: Lessons = from_json(learned)
        self._learners: dict[int, Learner] = {}
        self._expected: dict[str, int] = {}
        self._price = 0.0
        self._reader: str | None = None
        self._tried = False
        self._open: _Open | None = None

    def wanted(self, ids: Sequence[Sequence[int]], limits: Sequence[int], *, flying: bool) -> bool:
        """Might a drafter be asked at this step? If not, no token in flight need be read first.

        ids: all tokens read so far; flying: one more of each row is on its way. limits: the most drafts that
        each row can use.
        """
        self._expected, self._price = {}, 0.0
        if not ids or max(limits) < 1:
            return False
        grades = self._grades(ids)
        decision = self._decide(ids, grades, limits)
        if not decision.offers:
            self._price = decision.price
        elif flying:
            self._expected = {
                offer.name: grades[offer.name]
                for offer in decision.offers
                if offer.name in self.standby.graded
            }
        return bool(decision.offers)

    def propose(self, rows: Rows, limits: Sequence[int]) -> Round | None:
        """The next round, or None for a plain step."""
        grades, learner = self._grades(rows.ids), self._learner(len(rows))
        self._confirm(grades, len(rows))
        self._reader = None
        if max(limits) < 1:
            return None
        decision = self._decide(rows.ids, grades, limits)
        for place, offer in enumerate(decision.offers):
            proposal = self.standby.ask(offer.name, rows, offer.depth)
            if proposal is not None:
                counts = tuple(min(pair) for pair in zip(proposal.counts, limits, strict=True))
                if proposal.reading and self._reader is None:
                    self._reader, self._tried = offer.name, decision.price > 0 and not place
                if any(counts):
                    price = 0.0 if place else decision.price
                    proposal = replace(proposal, counts=counts)
                    return Round(offer.name, offer.depth, proposal, grades[offer.name], price)
                self.settle([len(ids) - 1 for ids in rows.ids])  # nobody will judge what was proposed
                if proposal.reading:
                    continue
            learner.saw(
                offer.name, grades[offer.name], False
            )  # not asked at every step if it often has nothing
        return None

    def begin(self, now: Moment, proposed: Round | None, rows: int, *, shared: bool) -> None:
        """The step that began at `now`, after the one before was ended, is this round, or plain."""
        price = proposed.price if proposed else self._price
        self._open = _Open(proposed, rows, now, [], price, self._reader, self._tried, shared)
        self._reader = None

    def judge(self, judged: Judged) -> None:
        """What became of the drafts of the step that runs."""
        assert self._open is not None
        self._open.judged = judged

    def end(self, now: Moment | None) -> None:
        """The step is over, as another one begins; None when none follows, so that its cost stays unknown."""
        done, self._open = self._open, None
        if done is None:
            return
        spent_s = None if now is None or done.shared else now.since(done.began)
        seconds = None if done.reader else spent_s
        learner, its = self._learner(done.rows), done.proposed
        if its is None:
            learner.plain(seconds, done.price)
        else:
            learner.drafted(its.drafter, its.grade, its.depth, done.judged, seconds, done.price)
        if done.reader and done.tried and spent_s is not None:
            learner.read(done.reader, spent_s, judged=its is not None)

    def learned(self) -> dict[str, Any]:
        """What is known by now, for a later run, as JSON has it."""
        own = {
            (name, rows): lesson
            for rows, learner in self._learners.items()
            for name in self.standby.kinds
            if (lesson := learner.lesson(name)).accepted
        }
        return to_json({**self._lessons, **own})

    def admit(self, row: int, ids: Sequence[int]) -> None:
        """A sequence that begins with `ids` takes the empty place `row`."""
        self.standby.tell(lambda drafter: drafter.begin(row, ids))

    def leave(self, row: int, ids: Sequence[int]) -> None:
        """The sequence at this place is over; the target's memory holds `ids` of it."""
        self.standby.tell(lambda drafter: drafter.end(row, ids))
        for learner in self._learners.values():
            learner.left()

    def observe(self, step: Step, hidden: mx.array, kept: Sequence[int]) -> None:
        self.standby.tell(lambda drafter: drafter.observe(step, hidden, kept))

    def settle(self, lengths: Sequence[int]) -> None:
        self.standby.tell(lambda drafter: drafter.settle(lengths))

    def move(self, src: int, dst: int) -> None:
        self.standby.tell(lambda drafter: drafter.move(src, dst))

    def clear(self, row: int) -> None:
        self.standby.tell(lambda drafter: drafter.clear(row))

    def resize(self, rows: int) -> None:
        self.standby.tell(lambda drafter: drafter.resize(rows))

    def _grades(self, ids: Sequence[Sequence[int]]) -> dict[str, int]:
        """Those who have something to say, and how good it is."""
        found = {
            name: self.standby.graded[name].grade(ids) if name in self.standby.graded else 1
            for name in self.standby.awake
        }
        return {name: grade for name, grade in found.items() if grade}

    def _decide(
        self, ids: Sequence[Sequence[int]], grades: Mapping[str, int], limits: Sequence[int]
    ) -> Decision:
        behind = [
            name for name, reader in self.standby.readers.items() if name in grades and reader.behind(ids)
        ]
        return self._learner(len(limits)).decide(grades, max(limits), behind)

    def _confirm(self, grades: Mapping[str, int], rows: int) -> None:
        """A guess about tokens in flight came true if they match too: a draft judged that cost nothing."""
        for name, grade in self._expected.items():
            self._learner(rows).saw(name, grade, grades.get(name, 0) >= grade)
        self._expected = {}

    def _learner(self, rows: int) -> Learner:
        bucket = _bucket(rows)
        if bucket not in self._learners:
            known = {name: lesson for (name, size), lesson in self._lessons.items() if size == bucket}
            self._learners[bucket] = Learner(self.standby.kinds, known)
        return self._learners[bucket]


def _bucket(rows: int) -> int:
    """Batches of up to so many rows learn together."""
    return 1 << (rows - 1).bit_length()
