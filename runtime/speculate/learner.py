"""What is known of all drafters in batches of one size: their costs, and what is kept of each grade of guess.

Some drafters know beforehand how good a guess is (prompt lookup: how long the match is). Grades cost the
same, and what is accepted of them differs, so they share costs. Pure; questions change nothing, rounds do.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from runtime.speculate.acceptance import Acceptance
from runtime.speculate.costs import FIRST_PLAIN, STEADY, Costs, DrafterTraits, depths
from runtime.speculate.depth import (
    EARNED,
    FIRST_BUDGET,
    LEAST_GAIN,
    MOST_BUDGET,
    PLAIN,
    Decision,
    Offer,
    decide,
    loss,
)
from runtime.speculate.lessons import Lesson, Lessons

FIRST_PAUSE, LAST_PAUSE = 48, 768  # rounds of drafting between two looks at plain decoding, doubling
SELDOM = 64  # rounds that nobody was asked about, after which all is decided anew
PLAIN_BEHIND = 2  # plain rounds behind a try: the first counts together with it
MOST_ONCE = 3.0  # plain rounds that the budget pays for what happens once at a depth: machines stall, too
TIMES_WEIGHT, MOST_TIMES = 0.25, 8.0  # of one try in what tries cost beyond what they lose; its bound
SURE = 1000  # drafts that certainty is worth
EARLY_PAUSE = 12  # the first where plain decoding was never timed, as an earlier run knew that drafts pay
FEW, ENOUGH = 4.0, 20.0  # drafts: from fewer, a drafter is auditioned: where it seems to pay, and where not
PROMISING = 0.008  # plain rounds that each adds to the budget where only times speak against a drafter
WON = 0.02  # plain rounds that a round with drafts that pay adds to the budget
PATIENCE = 3  # sequences that may end before any audition; behind them all is learned by tries
AUDITION_COST, STALLED = 1.0, 2.0  # plain rounds: of the first, as is thought; times what is thought, at most


class Learner:
    """kinds: the drafters by name. lessons: what an earlier run learned of them; what does not fit is left
    out.
    """

    def __init__(
        self, kinds: Mapping[str, DrafterTraits], lessons: Mapping[str, Lesson] | None = None
    ) -> None:
        self._depths = {name: depths(kind.limit) for name, kind in kinds.items()}
        self._auditioning = frozenset(name for name, kind in kinds.items() if kind.auditions)
        self._audition_cost, self._failed_auditions, self._waits = AUDITION_COST, 0, False
        self._certain = frozenset(name for name, kind in kinds.items() if kind.certain)
        self._deepest = max((kind.limit for kind in kinds.values()), default=0)
        self._costs = Costs(kinds)
        self._grades: dict[tuple[str, int], Acceptance] = {}
        self._budget = FIRST_BUDGET
        self._debt = 0.0  # plain rounds that reading took and that are not earned yet
        self._times = 1.0  # what a try from plain decoding takes, in terms of what it was expected to lose
        self._begun: str | None = None  # who has begun to read, and was not judged since
        self._decided: dict[object, Decision] = {}
        self._offered: dict[tuple[str, int], list[Offer]] = {}
        self._since_plain, self._looking = 0, 0
        self._pause = EARLY_PAUSE if lessons else FIRST_PAUSE
        self._rounds = self._unasked = 0
        self._hopes: bool | None = None  # as `_hope` found; None: not known
        self._settled = False  # it was plain rounds for a while, and tries since then changed nothing
        for name, lesson in (lessons or {}).items():
            if name in kinds:
                self._costs.remember(name, lesson.costs)
                for grade, accepted in lesson.accepted.items():
                    self.grade(name, grade).remember(accepted[: kinds[name].limit])

    def grade(self, name: str, grade: int) -> Acceptance:
        """Grades count from 1."""
        if (name, grade) not in self._grades:
            self._grades[name, grade] = Acceptance()
            if name in self._certain:
                self._grades[name, grade].remember([(1.0, SURE)] * (1 << (grade - 1)))
        return self._grades[name, grade]

    def decide(self, grades: Mapping[str, int], most: int, behind: Collection[str] = ()) -> Decision:
        """The next round, of those who have something to say, with up to `most` drafts in a row.

        behind: those who have tokens to read first. A long prompt takes many rounds to read, so that is done
        to learn only once the last such reading is earned; whoever has begun goes on until it is judged.
        """
        dear = frozenset(name for name in behind if self._debt > 0 and name != self._begun)
        most = min(most, self._deepest)  # a row's own limit shrinks at every round
        key = (*grades.items(), most, dear)
        if key not in self._decided:
            self._decided[key] = self._decide(grades, most, dear)
        return self._decided[key]

    def plain(self, seconds: float | None, *, able: bool = True) -> None:
        """A round without drafts. able: its rows could have used some. Else it earns nothing: those that can
        would pay for more tries than their own rounds allow.
        """
        self._costs.record(None, 0, seconds)
        self._since_plain, self._looking = 0, max(self._looking - 1, 0)
        if able:
            self._pass(0.0)
            self._costs.unseen(1)
        self._rounds += 1
        self._settled |= self._rounds >= STEADY
        if self._looking or not self._costs.begun or self._tells:
            self._reconsider()

    def paused(self, rounds: int, *, able: bool = True) -> None:
        """So many plain rounds in a row that nobody was asked about; the next that is looked at counts for
        them, too. able: as in `plain`.
        """
        if able:
            self._pass(0.0, rounds)
            self._costs.unseen(rounds)
        self._costs.paused()
        self._since_plain = 0
        self._unasked += rounds
        if self._unasked >= SELDOM:
            self._unasked = 0
            self._reconsider()

    @property
    def steady(self) -> bool:
        """Has it been plain rounds for a while, and are they known?"""
        known = self._rounds >= STEADY or (self._settled and self._rounds >= PLAIN_BEHIND)
        return known and not self._looking and self._costs.begun

    @property
    def _tells(self) -> bool:
        """Is another plain round worth thinking about? It takes the host a tenth of a short one, and what
        they teach is soon known: the first, second, fourth, eighth, and then each 16th.
        """
        return self._rounds % STEADY == 0 or self._rounds & (self._rounds - 1) == 0

    @property
    def plain_s(self) -> float:
        """Seconds of a plain round."""
        return self._costs.plain_s

    def drafted(
        self,
        name: str,
        grade: int,
        depth: int,
        judged: Sequence[tuple[int, int]],
        seconds: float | None,
        price: float = 0.0,
    ) -> None:
        """A round with a drafter's drafts of that grade: per row, drafts judged and drafts kept."""
        self._costs.record(name, depth, seconds)
        self.grade(name, grade).judge(judged)
        self._reconsider()
        self._pass(self._paid(name, grade, depth, judged, seconds) if price else -WON)
        self._rounds = 0
        self._settled &= price > 0
        self._since_plain += 1
        if self._since_plain >= self._pause:
            self._since_plain, self._looking = 0, 1 + FIRST_PLAIN
            self._pause = min(2 * self._pause, LAST_PAUSE)

    def read(self, name: str, seconds: float, *, judged: bool) -> None:
        """A round that was tried to learn took so long because its drafter had tokens to read first.
        judged: it drafted as well.
        """
        if self._costs.begun:
            self._debt += max(seconds / self._costs.plain_s - 1.0, 0.0)
            self._begun = None if judged else name
            self._reconsider()

    def auditioned(
        self, name: str, grade: int, judged: Sequence[tuple[int, int]], seconds: float | None
    ) -> None:
        """A drafter was auditioned beside plain rounds, which took so much longer than others; None where
        that is not known. judged: as in `drafted`, from each token on to the last.
        """
        self.grade(name, grade).judge(judged)
        self._reconsider()
        if seconds is not None and self._costs.begun:
            took = min(max(seconds / self._costs.plain_s, 0.0), STALLED * self._audition_cost)
            self._audition_cost += TIMES_WEIGHT * (took - self._audition_cost)
        if self.best(name, grade) is PLAIN:
            self._budget -= self._audition_cost
        self._begun, self._failed_auditions, self._waits = None, 0, False

    def audition_failed(self) -> None:
        """Who is to be auditioned cannot be, or not yet."""
        self._waits = True

    def left(self) -> None:
        """A sequence is over: what a drafter began to read for it was read in vain."""
        self._begun = None
        self._failed_auditions, self._waits = self._failed_auditions + self._waits, False

    def saw(self, name: str, grade: int, kept: bool) -> None:
        """A first draft that was not made would have been kept, or not."""
        self.grade(name, grade).saw(kept)
        self._reconsider()

    def best(self, name: str, grade: int = 1) -> Offer:
        """The depth that pays best, as far as is known."""
        return max([PLAIN, *self._offers(name, grade)], key=lambda offer: offer.gain)

    def lesson(self, name: str) -> Lesson:
        grades = sorted(grade for whose, grade in self._grades if whose == name)
        return Lesson(
            self._costs.learned(name),
            {grade: self.grade(name, grade).learned() for grade in grades},
            {grade: self.best(name, grade).depth for grade in grades},
        )

    def _decide(self, grades: Mapping[str, int], most: int, dear: Collection[str]) -> Decision:
        if self._looking or not self._costs.begun:
            return Decision(())
        offers = [
            offer
            for name, grade in grades.items()
            for offer in self._offers(name, grade)
            if offer.depth <= most
        ]
        decision = decide(offers, self._budget, dear)
        name = decision.offers[0].name if decision.offers else ""
        if not self._needs_audition(name, grades.get(name, 0)):
            return decision
        others = decide([offer for offer in offers if offer.name != name], self._budget, dear)
        affordable = self._budget >= self._audition_cost and name not in dear
        return replace(others, audition=name) if affordable else others

    def _needs_audition(self, name: str, grade: int) -> bool:
        """Is so little known of it that it has to be auditioned first?"""
        if name not in self._auditioning or self._failed_auditions >= PATIENCE:
            return False
        promises = self._promises(name, grade)
        return self.grade(name, grade).evidence < (FEW if promises else ENOUGH)

    def _promises(self, name: str, grade: int) -> bool:
        """Does it pay, or would it if rounds cost what shapes let expect? Then only times speak against it,
        which may have been taken while the machine was busy.
        """
        tokens = self.grade(name, grade).tokens(self._depths[name][-1])
        return any(
            math.log(tokens[depth][0]) - self._costs.hoped(name, depth) > LEAST_GAIN
            for depth in self._depths[name]
        )

    def _hope(self) -> bool:
        """Does anybody who was judged promise to pay?"""
        if self._hopes is None:
            self._hopes = any(
                of.evidence >= FEW and self._promises(name, grade)
                for (name, grade), of in self._grades.items()
                if name not in self._certain
            )
        return self._hopes

    def _reconsider(self) -> None:
        self._decided.clear()
        self._offered.clear()
        self._hopes = None

    def _pass(self, price: float, rounds: int = 1) -> None:
        price += min(self._costs.passed_over(), MOST_ONCE)
        earned = rounds * (PROMISING if self._hope() else EARNED)
        self._budget = min(self._budget + earned - price, MOST_BUDGET)
        self._debt = max(self._debt - rounds * EARNED, 0.0)
        for acceptance in self._grades.values():
            acceptance.rest(rounds)

    def _lost(self, name: str, grade: int, depth: int) -> float:
        """Plain rounds that a try has lost, as its outcome lets expect; below 0 where it won. What was
        expected before was hope: with that as its price, useless drafts would be tried too often.
        """
        expected, _ = self.grade(name, grade).tokens(depth)[depth]
        return math.exp(self._costs.of(name, depth)[0]) - expected

    def _paid(
        self, name: str, grade: int, depth: int, judged: Sequence[tuple[int, int]], seconds: float | None
    ) -> float:
        """Plain rounds that the budget pays for a try.

        A try out of plain decoding may take several times what it is expected to lose: it is one round, and
        much in it happens once. Each by itself may be a stall, so their mean counts.
        """
        best = self.best(name, grade)
        if best is not PLAIN:
            mine = next(offer for offer in self._offers(name, grade) if offer.depth == depth)
            return loss(mine, best)
        lost = self._lost(name, grade, depth)
        if lost <= 0:
            return lost
        if seconds is None:
            return lost * self._times
        tokens = 1 + sum(kept for _, kept in judged) / max(len(judged), 1)
        took = seconds / self._costs.plain_s - 1  # it waited for the plain round in front, too
        times = min(max((took - tokens) / lost, 1.0), MOST_TIMES)
        self._times += TIMES_WEIGHT * (times - self._times)
        return lost * self._times

    def _offers(self, name: str, grade: int) -> list[Offer]:
        """They hold until something was learned, and take as long as a fifth of a short round."""
        if (name, grade) not in self._offered:
            self._offered[name, grade] = self._reckoned(name, grade)
        return self._offered[name, grade]

    def _reckoned(self, name: str, grade: int) -> list[Offer]:
        tokens, offers = self.grade(name, grade).tokens(self._depths[name][-1]), list[Offer]()
        for depth in self._depths[name]:
            expected, hoped = tokens[depth]
            cost, doubt = self._costs.of(name, depth)
            doubt = math.hypot(doubt, math.log(hoped / expected))
            offers.append(Offer(name, depth, math.log(expected) - cost, doubt, math.exp(cost)))
        return offers


class Learners:
    """A Learner for each size of batch: up to 1, 2, 4 ... rows learn together.

    known: what an earlier run learned; of drafters that are not there it is kept as it is.
    """

    def __init__(self, kinds: Mapping[str, DrafterTraits], known: Lessons) -> None:
        self._kinds, self._known = kinds, known
        self._learners: dict[int, Learner] = {}

    def of(self, rows: int) -> Learner:
        size = 1 << (rows - 1).bit_length()
        if size not in self._learners:
            known = {name: lesson for (name, its), lesson in self._known.items() if its == size}
            self._learners[size] = Learner(self._kinds, known)
        return self._learners[size]

    def left(self) -> None:
        """A sequence is over."""
        for learner in self._learners.values():
            learner.left()

    def lessons(self) -> Lessons:
        """What is known by now."""
        own = {
            (name, size): lesson
            for size, learner in self._learners.items()
            for name in self._kinds
            if (lesson := learner.lesson(name)).accepted
        }
        return {**self._known, **own}
