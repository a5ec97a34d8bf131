"""Auditions of drafters beside plain decoding: what they would have drawn where the target's own tokens are.

A try out of plain decoding is dear where rounds are short: it waits for what is on its way, the target
verifies, and the round behind it finds nothing prepared. All of that to learn, of a draft that is wrong, that
its first token was. Auditioned beside plain rounds, a drafter reads what it would have to read anyway, and
says at once what it would have guessed at each of the last tokens; nobody waits for it.
"""

from collections.abc import Sequence
from typing import cast

from runtime.records import dataclass
from runtime.speculate.clock import Moment, Spent
from runtime.speculate.drafter import Audition, Rows
from runtime.speculate.learner import Learners
from runtime.speculate.standby import Standby

TOKENS = 8  # tokens that an audition is about
BESIDE = 3  # rounds that it may lengthen: its own, the one computed behind it, the one that waits for that


@dataclass(slots=True, eq=False)
class _Pending:
    """One audition, from when it was asked for until it is judged."""

    name: str
    grade: int
    answer: Audition
    newest: tuple[tuple[int, ...], ...]
    """The last ids of each row, as they were then."""
    began: Moment
    """When the round began that it was asked beside."""
    rounds: int = 0
    """That are over since then, that one included."""
    alone: bool = True
    """Nothing but plain decoding ran in them."""
    seconds: float | None = None
    """What they took; None where that is not known."""

    @property
    def reading(self) -> bool:
        """It has to read more before it can say anything."""
        return not any(self.answer.columns)

    def judged(self) -> list[tuple[int, int]]:
        tokens = cast("list[list[int]]", self.answer.tokens.tolist())
        found: list[tuple[int, int]] = []
        for row, columns, ids in zip(tokens, self.answer.columns, self.newest, strict=True):
            true = ids[len(ids) - len(columns) :]
            found += runs([row[at] == token for at, token in zip(columns, true, strict=True)])
        return found


class AuditionSchedule:
    """Who is auditioned beside which step. spent: as `Drafting` takes the time of rounds."""

    def __init__(self, standby: Standby, learners: Learners, spent: Spent) -> None:
        self._standby, self._learners, self._spent = standby, learners, spent
        self._used: dict[int, int] = {}  # of each place: tokens of its prompt, or of an audition
        self._wanted: tuple[str, int] | None = None
        self._pending: _Pending | None = None

    def begin(self, row: int, count: int) -> None:
        """A sequence with a prompt of so many tokens takes this place."""
        self._used[row] = count

    def move(self, src: int, dst: int) -> None:
        self._used[dst] = self._used.pop(src, 0)

    @property
    def wants(self) -> bool:
        """Is a drafter to be auditioned beside this step?"""
        return self._wanted is not None

    @property
    def running(self) -> bool:
        """Is there one now? Rounds tell little of what others take then."""
        return self._pending is not None

    def want(self, name: str, grade: int, ids: Sequence[Sequence[int]]) -> int:
        """Audition this drafter, if there is enough to judge it by; else the tokens that are missing."""
        if self._pending is not None:
            return 0
        missing = self._missing(ids)
        if missing:
            self._learners.of(len(ids)).audition_failed()
        else:
            self._wanted = name, grade
        return missing

    def listen(self, count: int, rows: Rows | None, began: Moment) -> None:
        """Once the step is on its way that began then: audition the drafter. rows: as far as they are known;
        None where they say nothing of how it would draft for these `count` rows.
        """
        (name, grade), self._wanted = self._wanted or ("", 0), None
        answer = None
        if rows is not None and not self._missing(rows.ids):
            answer = self._standby.audition(name, rows, TOKENS)
        if answer is None or rows is None:
            self._learners.of(count).audition_failed()
        else:
            newest = tuple(tuple(ids[-TOKENS:]) for ids in rows.ids)
            self._pending = _Pending(name, grade, answer, newest, began)
            if not self._pending.reading:
                self._used.update(enumerate(map(len, rows.ids)))

    def _missing(self, ids: Sequence[Sequence[int]]) -> int:
        """Until there are TOKENS tokens of every row that the target wrote, and no audition was about."""
        wanted = (self._used.get(row, 0) + TOKENS - len(its) for row, its in enumerate(ids))
        return max(max(wanted, default=TOKENS), 0)  # rows may all have ended since

    def passed(self, now: Moment | None, *, alone: bool) -> None:
        """A round is over, as another step begins; None when none does. alone: it was plain decoding only."""
        pending, self._wanted = self._pending, None
        if pending is None:
            return
        pending.rounds += 1
        pending.alone &= alone and now is not None
        if now is None:
            self._pending = None
            self._learners.of(len(pending.newest)).audition_failed()
        elif pending.rounds == (1 if pending.reading else BESIDE) and pending.alone:
            pending.seconds = self._spent.between(pending.began, now)

    def judge(self) -> None:
        """What was said is known by now: learn from it, while the device computes a later step."""
        pending = self._pending
        if pending is None or pending.rounds < (1 if pending.reading else BESIDE):
            return
        self._pending, learner = None, self._learners.of(len(pending.newest))
        if not pending.reading:
            beyond = None if pending.seconds is None else pending.seconds - pending.rounds * learner.plain_s
            learner.auditioned(pending.name, pending.grade, pending.judged(), beyond)
        elif pending.seconds is not None:
            learner.read(pending.name, pending.seconds, judged=False)


def runs(right: Sequence[bool]) -> list[tuple[int, int]]:
    """Of each place: how many there are from it on, and how many of those in a row are right.

    That is what drafts from there on would have had: each guess was made behind the true tokens.
    """
    found: list[tuple[int, int]] = []
    run = 0
    for count, one in enumerate(reversed(right), 1):
        run = run + 1 if one else 0
        found.append((count, run))
    return found[::-1]
