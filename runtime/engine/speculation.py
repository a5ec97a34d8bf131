"""Which drafter proposes next and how far, learned from what rounds cost and what was accepted.

Several drafters may stand by (a draft model, prompt lookup). What is learned of each is kept per size of
batch, since both cost and gain depend on how many rows share a round. Of those that have something to say,
the one that promises most is asked.

A step asks in two moments. `wanted`, before the tokens in flight are read: is anybody worth waiting for? And
then `propose`, when they are known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import mlx.core as mx

from runtime.engine.standby import Standby
from runtime.speculate.choice import Choice, Offer
from runtime.speculate.drafter import Drafter, Graded, Proposal, Rows
from runtime.speculate.learned import Lessons, from_json, to_json
from runtime.speculate.learner import Learner
from runtime.step import Step

Judged = list[tuple[int, int]]
"""Per row: drafts judged, drafts accepted."""


@dataclass(frozen=True, slots=True)
class Round:
    """A proposal to verify, who made it, and of which grade it is."""

    drafter: str
    depth: int
    proposal: Proposal
    grade: int = 1


@dataclass(slots=True)
class _Open:
    """The step that runs now; its cost is known when the next one begins."""

    proposed: Round | None
    rows: int
    began_s: float
    judged: Judged
    shared: bool  # with other work, so that its time says nothing


class Speculation:
    """Drafters by name, in order of preference where nothing is known yet.

    learned: what `learned()` gave in an earlier run; what is of no use in it is left out.
    """

    def __init__(self, drafters: Mapping[str, Drafter], learned: object = None) -> None:
        self.standby = Standby(drafters)
        self._lessons: Lessons = from_json(learned)
        self._learners: dict[tuple[str, int], Learner] = {}
        self._choices: dict[int, Choice] = {}
        self._expected: dict[str, int] = {}
        self._reading = False
        self._open: _Open | None = None

    def wanted(self, ids: Sequence[Sequence[int]], limits: Sequence[int], *, flying: bool) -> bool:
        """Might a drafter be asked at this step? If not, no token in flight need be read first. Ask once per
        step.

        ids: all tokens read so far; flying: one more of each row is on its way. limits: the most drafts that
        each row can use.
        """
        self._expected = {}
        if not ids or max(limits) < 1:
            return False
        willing = False
        for name, grade in self._grades(ids).items():
            controller = self._learner(name, len(ids)).grade(grade)
            if controller.next_depth() > 0:
                willing = True
                if flying and isinstance(self.standby.awake[name], Graded):
                    self._expected[name] = grade
            else:
                controller.choose()  # a round passes
        return willing

    def propose(self, rows: Rows, limits: Sequence[int]) -> Round | None:
        """The next round, or None for a plain step."""
        grades = self._grades(rows.ids)
        self._confirm(grades, len(rows))
        self._reading = False
        if max(limits) < 1:
            return None
        for name in self._ranked(grades, len(rows)):
            controller = self._learner(name, len(rows)).grade(grades[name])
            depth = min(controller.choose(), max(limits))
            if depth == 0:
                continue
            proposal = self.standby.ask(name, rows, depth)
            if proposal is not None:
                counts = tuple(min(pair) for pair in zip(proposal.counts, limits, strict=True))
                self._reading |= proposal.reading
                if any(counts):
                    return Round(name, depth, replace(proposal, counts=counts), grades[name])
                self.settle([len(ids) - 1 for ids in rows.ids])  # nobody will judge what was proposed
                if proposal.reading:
                    continue
            controller.saw(False)  # one that often has nothing after all is not asked at every step
        return None

    def begin(self, now_s: float, proposed: Round | None, rows: int, *, shared: bool) -> None:
        """The step that began at `now_s`, after the one before was ended, is this round, or plain."""
        self._open = _Open(proposed, rows, now_s, [], shared or self._reading)
        self._reading = False

    def judge(self, judged: Judged) -> None:
        """What became of the drafts of the step that runs."""
        assert self._open is not None
        self._open.judged = judged

    def end(self, now_s: float | None) -> None:
        """The step is over, as another one begins; None when none follows, so that its cost stays unknown."""
        done, self._open = self._open, None
        if done is None:
            return
        seconds = None if now_s is None or done.shared else now_s - done.began_s
        for name in self.standby.awake:
            learner = self._learner(name, done.rows)
            if done.proposed is None:
                learner.plain(seconds)
            elif done.proposed.drafter == name:
                learner.drafted(done.proposed.grade, done.proposed.depth, done.judged, seconds)
            else:
                learner.interrupt()

    def learned(self) -> dict[str, Any]:
        """What is known by now, for a later run, as JSON has it."""
        own = {key: lesson for key, one in self._learners.items() if (lesson := one.lesson()).costs}
        return to_json({**self._lessons, **own})

    def admit(self, row: int, ids: Sequence[int]) -> None:
        """A sequence that begins with `ids` takes the empty place `row`."""
        self.standby.tell(lambda drafter: drafter.begin(row, ids))

    def leave(self, row: int, ids: Sequence[int]) -> None:
        """The sequence at this place is over; the target's memory holds `ids` of it."""
        self.standby.tell(lambda drafter: drafter.end(row, ids))

    def observe(self, step: Step, tokens: mx.array, hidden: mx.array, kept: Sequence[int]) -> None:
        self.standby.tell(lambda drafter: drafter.observe(step, tokens, hidden, kept))

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
            name: drafter.grade(ids) if isinstance(drafter, Graded) else 1
            for name, drafter in self.standby.awake.items()
        }
        return {name: grade for name, grade in found.items() if grade}

    def _confirm(self, grades: Mapping[str, int], rows: int) -> None:
        """A guess about tokens in flight came true if they match too: a draft judged that cost nothing."""
        for name, grade in self._expected.items():
            self._learner(name, rows).grade(grade).saw(grades.get(name, 0) >= grade)
        self._expected = {}

    def _ranked(self, grades: Mapping[str, int], rows: int) -> list[str]:
        offers: list[Offer] = []
        for name, grade in grades.items():
            controller = self._learner(name, rows).grade(grade)
            if controller.next_depth() > 0:
                parked = controller.depth == 0
                offers.append(Offer(name, controller.promise(), probing=parked))
        return self._choices.setdefault(_bucket(rows), Choice()).order(offers)

    def _learner(self, name: str, rows: int) -> Learner:
        key = (name, _bucket(rows))
        if key not in self._learners:
            self._learners[key] = Learner(self.standby.awake[name].limit, self._lessons.get(key))
        return self._learners[key]


def _bucket(rows: int) -> int:
    """Batches of up to so many rows learn together."""
    return 1 << (rows - 1).bit_length()
