"""The one door to drafters: who drafts the next round and how far, learned from the rounds before.

Several drafters may stand by (a draft model, prompt lookup). What is learned of them is kept per size of
batch, since both cost and gain depend on how many rows share a round (`runtime.speculate.learner`). What
happens in a round is in `runtime.speculate.round`.

Drafters hear of everything that happens to places, and may be out of memory at any time: then they rest
(`runtime.speculate.standby`). Nothing that is asked here changes anything; rounds and places do.

Where nobody pays, asking is all that drafters cost, and of a short round it is a tenth. So then it pauses for
as many steps as keep it below a 250th.
"""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from runtime.cache.build import LayerMemory
from runtime.cache.prefix import Entry
from runtime.speculate.audition import Listening
from runtime.speculate.clock import Moment, Spent, now
from runtime.speculate.drafter import Drafter, Rehearses, Rows
from runtime.speculate.learner import Learners
from runtime.speculate.lessons import from_json, to_json
from runtime.speculate.round import Outlook, Round
from runtime.speculate.standby import Standby
from runtime.step import Step

ASKING = 0.004  # share of plain rounds that asking may take where nobody is worth it
LONGEST_PAUSE = 31  # steps: a text may begin to repeat itself at any of them


class Desk:
    """drafters: by name, in order of preference where nothing is known yet. memory: the target's.

    learned: what `learned()` gave in an earlier run; what is not understood in it is left out.
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
        self._asking_s = self._learning_s = 0.0  # what asking takes where nobody is worth it, and its lesson
        self._pause, self._pausing_rows = 0, 0  # steps that are left of it, of so many rows
        self._able = True  # might the rows that it pauses for have drafts?
        self._paused = self._untold = 0  # steps in a row that nobody was asked at; those not yet told of
        self._paused_since: Moment | None = None  # from when on; None where something else ran, too
        self._listening = Listening(self._standby, self._learners, self._spent)

    def outlook(
        self,
        ids: Sequence[Sequence[int]],
        limits: Sequence[int],
        *,
        flying: bool,
        forced: Sequence[int] = (),
    ) -> Outlook:
        """Might a drafter be asked at this step, and what for?

        ids: all tokens of the decoding rows read so far; flying: one more of each is on its way. limits: the
        most drafts that each row can use. forced: as in Graded, behind what is on its way.
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
            missing = self._listening.want(decision.audition, grades[decision.audition], ids)
        if not decision.offers and missing:
            self._pause, self._pausing_rows = missing - 1, len(ids)  # until then the answer is the same
        elif not decision.offers:
            self._asking_s = _least(time.perf_counter() - began, self._asking_s)
            if not decision.audition and learner.steady:
                pause = (self._asking_s + self._learning_s) / (ASKING * learner.plain_s)
                self._pause, self._pausing_rows = min(int(pause), LONGEST_PAUSE), len(ids)
        if not flying or not decision.offers:
            return Outlook(len(ids), decision)
        names = [offer.name for offer in decision.offers if offer.name in self._standby.graded]
        return Outlook(len(ids), decision, {name: grades[name] for name in names})

    def pauses(self, rows: int, *, shared: bool) -> bool:
        """Is nobody asked at this step of so many rows? Then it is no round. Asked once for a step.
        shared: as in `round`.
        """
        if rows != self._pausing_rows:
            self._pause, self._paused_since = 0, None
        if not self._pause or self._listening.on:
            return False
        if self._round is not None:
            began = now()
            self.done(began)
            self._paused, self._paused_since = 0, began
        self._pause -= 1
        self._paused += 1
        self._untold += 1
        if shared:
            self._paused_since = None
        if not self._pause:
            self._tell_of_pause()
        return True

    def _tell_of_pause(self) -> None:
        """All its steps at once: to count them one by one takes a hundredth of a short one."""
        if self._untold:
            self._learners.of(self._pausing_rows).paused(self._untold, able=self._able)
            self._untold = 0

    def round(self, began: Moment, outlook: Outlook, *, shared: bool) -> Round:
        """The round of the step that began at `began`, after the one before was done."""
        self._began = began
        self._round = Round(self._standby, self._learners, self._memory, outlook, shared)
        return self._round

    def disturbed(self) -> None:
        """The round that has begun does other work, too, or the pause: its time says nothing."""
        self._paused_since = None
        if self._round is not None:
            self._round.shared = True

    def done(self, now: Moment | None) -> None:
        """The round that was is over, as another step begins; None when none follows. What it teaches is
        thought about by `learn`, unless it was a try out of plain decoding.
        """
        self._tell_of_pause()  # first: the next question may be about other rows
        self.learn()
        last, self._round = self._round, None
        if last is not None:
            seconds = None if now is None or self._listening.on else self._took(last, now)
            self._lesson = last, seconds, self._paused_since is not None
            self._listening.passed(now, alone=not last.drafts and not last.shared)
            if now is None or last.leaves_plain:
                self.learn()  # or the same would be tried again
        if last is not None or now is None:
            self._paused_since = None

    def _took(self, last: Round, now: Moment) -> float:
        """Seconds of a round that is over; of a plain one behind a pause the mean with all of those: asking
        keeps the host for a moment, which it makes up for in the steps behind it.
        """
        if self._paused_since is None or last.drafts:
            return self._spent.between(self._began, now)
        return self._spent.between(self._paused_since, now) / (self._paused + 1)

    def meanwhile(self) -> None:
        """To be called while the device computes: what drafters prepare once, and `learn`."""
        if self._unready:
            self._unready.pop().rehearse()
        self.learn()
        self._listening.judge()
        if self._round is None and not self._pause:
            self._expect()  # a pause is over: it is asked at the next step, which waits for the answer

    @property
    def listens(self) -> bool:
        """Is a drafter to be heard beside this step? Then `listen` follows, once the step is on its way."""
        return self._listening.wants

    def listen(self, count: int, rows: Rows | None) -> None:
        """See Listening.listen."""
        self._listening.listen(count, rows, self._began)

    def learn(self) -> None:
        """Think about the last round that is over, and what it says about the next: best while the device
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
                # Most of the others teach nothing, and are thought about in no time.
                self._learning_s = learning_s if behind_pause else max(learning_s, self._learning_s)

    def _expect(self) -> None:
        """Decide as if the next question were the last one again, which it mostly is: a decision is kept."""
        if self._asked is not None:
            rows, grades, most, behind = self._asked
            self._learners.of(rows).decide(grades, most, behind)

    def keep(self, step: Step, hidden: mx.array | None, kept: Sequence[int]) -> None:
        """Outside of rounds, where a prompt is read: as `Round.keep`."""
        self._memory.commit(step, kept)
        self._standby.observe(step, hidden, kept)

    @property
    def observes(self) -> bool:
        """Does a drafter want to see what the target computes?"""
        return self._standby.observes

    def begin(self, row: int, ids: Sequence[int], space: str = "") -> None:
        """A sequence that begins with `ids` takes the empty place `row`. space: as in Drafter."""
        self._pause = 0
        self._listening.begin(row, len(ids))
        self._standby.each(lambda drafter: drafter.begin(row, ids, space))

    def end(self, row: int, ids: Sequence[int]) -> None:
        """The sequence at this place is over; the target's memory holds `ids` of it."""
        self._standby.each(lambda drafter: drafter.end(row, ids))
        self._learners.left()

    def move(self, src: int, dst: int) -> None:
        self._listening.move(src, dst)
        self._standby.each(lambda drafter: drafter.move(src, dst))

    def clear(self, row: int) -> None:
        self._standby.each(lambda drafter: drafter.clear(row))

    def resize(self, rows: int) -> None:
        self._standby.each(lambda drafter: drafter.resize(rows))

    def give_way(self) -> bool:
        """Hand back the memory that drafters hold, which then rest; False when there was none."""
        return self._standby.rest()

    def idle(self) -> None:
        """No row is left and no step follows: those that rest may try again."""
        self.done(None)
        self._standby.wake(self._memory.rows)

    def share(self, limit_bytes: int, own_bytes: int, tokens: int) -> int:
        """See Standby.share. To be called first before anything runs."""
        return self._standby.share(limit_bytes, own_bytes, tokens)

    @property
    def kept_bytes(self) -> int:
        """What drafters hold of earlier sequences."""
        return self._standby.kept_bytes

    @property
    def names(self) -> tuple[str, ...]:
        """The drafters that there are, those that rest included."""
        return tuple(self._standby.kinds)

    @property
    def ahead(self) -> int:
        """How many tokens beyond its own an entry of any drafter's memory looks."""
        return self._standby.ahead

    def describe(self) -> list[Entry]:
        """What drafters keep of earlier sequences, each under its name."""
        return self._standby.describe()

    def forget(self) -> None:
        """Whatever of it no row needs."""
        self._standby.forget()

    def learned(self) -> dict[str, Any]:
        """What is known by now, for a later run, as JSON has it."""
        self.learn()
        return to_json(self._learners.lessons())


def _least(seconds: float, before: float) -> float:
    """The least of some times: whoever took the processor away in the midst of one is not meant."""
    return min(seconds, 1.1 * before or math.inf)
