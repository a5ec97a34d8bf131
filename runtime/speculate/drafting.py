"""All that an engine asks of drafters: which of them drafts next, and how far, learned from earlier rounds.

There may be several drafters (a draft model, prompt lookup). What is learned of them is kept for each size of
batch, since cost and gain depend on how many rows share a round (`runtime.speculate.learner`). What happens
in a round is in `runtime.speculate.round`.

Drafters are told of everything that happens to places, and may run out of memory at any time: then they rest
(`runtime.speculate.standby`). Asking changes nothing; rounds and places do.

If no drafter pays, asking is all that drafters cost, and that is a tenth of a short round. So asking pauses
then for so many steps that it takes less than a 250th of the time.
"""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from runtime.cache.memory import LayerMemory
from runtime.cache.prefix import Entry
from runtime.speculate.audition import AuditionSchedule
from runtime.speculate.clock import Moment, Spent, now
from runtime.speculate.drafter import Drafter, Rehearses, Rows
from runtime.speculate.learner import Learners
from runtime.speculate.lessons import from_json, to_json
from runtime.speculate.round import Outlook, Round
from runtime.speculate.standby import Standby
from runtime.step import Step

ASKING = 0.004  # share of plain rounds that asking may take while no drafter pays
LONGEST_PAUSE = 31  # steps: a text may begin to repeat itself at any of them


class Drafting:
    """drafters: by name, in the order of preference as long as nothing is known. memory: the target's.

    learned: what `learned()` returned in an earlier run; parts of it that are not understood are ignored.
    """

    def __init__(self, drafters: Mapping[str, Drafter], memory: LayerMemory, learned: object = None) -> None:
        self._memory = memory
        self._standby = Standby(drafters)
        self._unready = [one for one in drafters.values() if isinstance(one, Rehearses)]
        self._learners = Learners(self._standby.kinds, from_json(learned))
        self._round: Round | None = None
        self._began, self._spent = Moment(0.0), Spent()
        self._lesson: tuple[Round, float | None, bool] | None = None  # of a round that is over; see `learn`
        self._asked: tuple[int, Mapping[str, int], int, Sequence[str]] | None = None
        self._asking_s = self._learning_s = 0.0  # what asking takes while nobody pays, and learning from it
        self._pause, self._pausing_rows = 0, 0  # steps that are left of a pause, and its number of rows
        self._able = True  # could rows have drafts during the pause?
        self._paused = self._unreported = 0  # steps of this pause; those that the learner was not told of yet
        self._paused_since: Moment | None = None  # None if something else ran in the pause, too
        self._auditions = AuditionSchedule(self._standby, self._learners, self._spent)

    def outlook(
        self,
        ids: Sequence[Sequence[int]],
        limits: Sequence[int],
        *,
        in_flight: bool,
        forced: Sequence[int] = (),
    ) -> Outlook:
        """Which drafters may be asked at this step, and for what.

        ids: all tokens of the decoding rows that have been read back. in_flight: one more of each row was
        drawn. limits: the most drafts that each row can use. forced: as in Graded, after the one in flight.
        """
        if not ids:
            return Outlook(0)
        learner = self._learners.of(len(ids))
        self._able = max(limits) >= 1
        if not self._able:
            if learner.steady:  # and a limit hardly ever grows
                self._pause, self._pausing_rows = LONGEST_PAUSE, len(ids)
            return Outlook(len(ids), able=False)
        began = time.perf_counter()
        grades = self._standby.grades(ids, forced)
        behind = self._standby.behind(ids)
        decision = learner.decide(grades, max(limits), behind)
        self._asked = len(ids), grades, max(limits), behind
        missing = 0
        if decision.audition:
            missing = self._auditions.want(decision.audition, grades[decision.audition], ids)
        if not decision.offers and missing:
            self._pause, self._pausing_rows = missing - 1, len(ids)  # until then the answer is the same
        elif not decision.offers:
            self._asking_s = _least(time.perf_counter() - began, self._asking_s)
            if not decision.audition and learner.steady:
                pause = (self._asking_s + self._learning_s) / (ASKING * learner.plain_s)
                self._pause, self._pausing_rows = min(int(pause), LONGEST_PAUSE), len(ids)
        if not in_flight or not decision.offers:
            return Outlook(len(ids), decision)
        names = [offer.name for offer in decision.offers if offer.name in self._standby.graded]
        return Outlook(len(ids), decision, {name: grades[name] for name in names})

    def pauses(self, rows: int, *, shared: bool) -> bool:
        """Is this step of so many rows part of a pause? Then nobody is asked, and it is not a round. To be
        called once per step. shared: as in `round`.
        """
        if rows != self._pausing_rows:
            self._pause, self._paused_since = 0, None
        if not self._pause or self._auditions.running:
            return False
        if self._round is not None:
            began = now()
            self.done(began)
            self._paused, self._paused_since = 0, began
        self._pause -= 1
        self._paused += 1
        self._unreported += 1
        if shared:
            self._paused_since = None
        if not self._pause:
            self._tell_of_pause()
        return True

    def _tell_of_pause(self) -> None:
        """Tell the learner of all steps of a pause at once: one by one takes a hundredth of a short step."""
        if self._unreported:
            self._learners.of(self._pausing_rows).paused(self._unreported, able=self._able)
            self._unreported = 0

    def round(self, began: Moment, outlook: Outlook, *, shared: bool) -> Round:
        """The round of the step that began at `began`, after the one before was done."""
        self._began = began
        self._round = Round(self._standby, self._learners, self._memory, outlook, shared)
        return self._round

    def disturbed(self) -> None:
        """The round, or the pause, does other work, too, so that its time says nothing."""
        self._paused_since = None
        if self._round is not None:
            self._round.shared = True

    def done(self, now: Moment | None) -> None:
        """The last round is over, since another step begins now; None if no step follows. What it teaches is
        left to `learn`, unless it was an exploration from plain decoding.
        """
        self._tell_of_pause()  # first: the next question may be about other rows
        self.learn()
        last, self._round = self._round, None
        if last is not None:
            seconds = None if now is None or self._auditions.running else self._took(last, now)
            self._lesson = last, seconds, self._paused_since is not None
            self._auditions.passed(now, alone=not last.drafts and not last.shared)
            if now is None or last.leaves_plain:
                self.learn()  # or the same would be tried again
        if last is not None or now is None:
            self._paused_since = None

    def _took(self, last: Round, now: Moment) -> float:
        """Seconds of a round that is over. For a plain one followed by a pause it is the mean of it and the
        pause's steps: asking delays the host for a moment, which the following steps make up for.
        """
        if self._paused_since is None or last.drafts:
            return self._spent.between(self._began, now)
        return self._spent.between(self._paused_since, now) / (self._paused + 1)

    def meanwhile(self) -> None:
        """To be called while the device computes: lets drafters prepare what they do once, and learns."""
        if self._unready:
            self._unready.pop().rehearse()
        self.learn()
        self._auditions.judge()
        if self._round is None and not self._pause:
            self._expect()  # a pause is over: the next step asks, and would wait for the answer

    @property
    def listens(self) -> bool:
        """Is a drafter to be auditioned beside this step? Then `listen` follows, once the step is
        on its way.
        """
        return self._auditions.wants

    def listen(self, count: int, rows: Rows | None) -> None:
        """See AuditionSchedule.listen."""
        self._auditions.listen(count, rows, self._began)

    def learn(self) -> None:
        """Learn from the last round that is over, and decide about the next: best while the device
        computes.
        """
        lesson, self._lesson = self._lesson, None
        if lesson is not None:
            last, seconds, behind_pause = lesson
            began = time.perf_counter()
            last.done(seconds)
            self._expect()
            if not last.drafts:
                learning_s = _least(time.perf_counter() - began, self._learning_s)
                # Most other rounds teach nothing, and learning from them takes no time.
                self._learning_s = learning_s if behind_pause else max(learning_s, self._learning_s)

    def _expect(self) -> None:
        """Decide the last question again, in advance: the next is mostly the same, and decisions are kept."""
        if self._asked is not None:
            rows, grades, most, behind = self._asked
            self._learners.of(rows).decide(grades, most, behind)

    def keep(self, step: Step, hidden: mx.array | None, kept: Sequence[int]) -> None:
        """As `Round.keep`, for a step that is not a round: where a prompt is read, or in a pause."""
        self._memory.commit(step, kept)
        self._standby.observe(step, hidden, kept)

    @property
    def observes(self) -> bool:
        """Does any drafter need to see what the target computes?"""
        return self._standby.observes

    def begin(self, row: int, ids: Sequence[int], space: str = "") -> None:
        """A sequence that begins with `ids` takes the empty place `row`. space: as in Drafter."""
        self._pause = 0
        self._auditions.begin(row, len(ids))
        self._standby.each(lambda drafter: drafter.begin(row, ids, space))

    def end(self, row: int, ids: Sequence[int]) -> None:
        """The sequence at this place is over; the target's memory holds `ids` of it."""
        self._standby.each(lambda drafter: drafter.end(row, ids))
        self._learners.left()

    def move(self, src: int, dst: int) -> None:
        self._auditions.move(src, dst)
        self._standby.each(lambda drafter: drafter.move(src, dst))

    def clear(self, row: int) -> None:
        self._standby.each(lambda drafter: drafter.clear(row))

    def resize(self, rows: int) -> None:
        self._standby.each(lambda drafter: drafter.resize(rows))

    def give_way(self) -> bool:
        """Free the memory that drafters hold, which then rest; False if they held none."""
        return self._standby.rest()

    def idle(self) -> None:
        """No row is left and no step follows: drafters that rest may try again."""
        self.done(None)
        self._standby.wake(self._memory.rows)

    def share(self, limit_bytes: int, own_bytes: int, tokens: int) -> int:
        """See Standby.share. To be called a first time before anything runs."""
        return self._standby.share(limit_bytes, own_bytes, tokens)

    @property
    def kept_bytes(self) -> int:
        """What drafters hold of earlier sequences."""
        return self._standby.kept_bytes

    @property
    def names(self) -> tuple[str, ...]:
        """All drafters, those that rest included."""
        return tuple(self._standby.kinds)

    @property
    def ahead(self) -> int:
        """How many tokens beyond its own an entry of a drafter's memory depends on, at most."""
        return self._standby.ahead

    def describe(self) -> list[Entry]:
        """What drafters keep of earlier sequences, each under its name."""
        return self._standby.describe()

    def forget(self) -> None:
        """Forget what drafters keep of earlier sequences, except what rows need."""
        self._standby.forget()

    def learned(self) -> dict[str, Any]:
        """What has been learned so far, as plain data for a later run."""
        self.learn()
        return to_json(self._learners.lessons())


def _least(seconds: float, before: float) -> float:
    """The least of several times, without those in which another program took the processor; it may rise
    slowly again.
    """
    return min(seconds, 1.1 * before or math.inf)
