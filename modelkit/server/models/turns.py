"""Who may start on a model next, and that not too many wait.

A model has so many turns at once; the others wait. Interactive requests go before default ones, and these
before those in the background; among equals, who came first. Nobody is passed for ever: each class is worth
PASSED_S of waiting, so one that has waited so much longer goes first whatever its class.

On the event loop's thread only.
"""

import asyncio
import heapq
import itertools
import math
import time
from collections.abc import Callable
from typing import Literal

from modelkit.errors import Busy

Priority = Literal["interactive", "default", "background"]
PRIORITIES: dict[Priority, int] = {"interactive": 0, "default": 1, "background": 2}

PASSED_S = 60.0
_LONGEST_RETRY_S = 120
_USUAL_TURN_S = 2.0


class InAll:
    """How many wait for any model."""

    def __init__(self, limit: int) -> None:
        self.limit, self.count = limit, 0


class Ticket:
    """A place in line, and then a turn. Given back once, whatever became of it."""

    def __init__(self, turns: "Turns", rank: float) -> None:
        self.rank = rank
        self.began_s: float | None = None
        """When its turn came."""
        self._turns = turns
        self._turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over = False

    async def turn(self) -> None:
        """Wait for it. Raises what the line was closed with."""
        await self._turn

    def give_back(self) -> None:
        if not self._over:
            self._over = True
            self._turns.returned(self)

    def begin(self, now_s: float) -> None:
        self.began_s = now_s
        if not self._turn.done():
            self._turn.set_result(None)

    def fail(self, error: Exception) -> None:
        if not self._turn.done():
            self._turn.set_exception(error)
            self._turn.exception()  # nobody may be there to hear it

    @property
    def over(self) -> bool:
        return self._over


class Turns:
    """Those of one model. limit: how many may wait for it. in_all: shared with other models."""

    def __init__(self, limit: int, in_all: InAll, clock: Callable[[], float] = time.monotonic) -> None:
        self.waiting = 0
        self.running = 0
        self._limit, self._in_all, self._clock = limit, in_all, clock
        self._line: list[tuple[float, int, Ticket]] = []
        self._numbers = itertools.count()
        self._places = 0
        self._turn_s = _USUAL_TURN_S

    def take(self, priority: Priority) -> Ticket:
        """Stand in line. Raises Busy where too many do."""
        if self.waiting or self.running >= self._places:
            self._check_room()
        ticket = Ticket(self, self._clock() + PASSED_S * PRIORITIES[priority])
        heapq.heappush(self._line, (ticket.rank, next(self._numbers), ticket))
        self._count(1)
        self._go_on()
        return ticket

    def open(self, places: int) -> None:
        """The model is there: so many may use it at once."""
        self._places = places
        self._go_on()

    def close(self, error: Exception) -> None:
        """Nobody who still waits will have a turn."""
        for _, _, ticket in self._line:
            ticket.fail(error)

    def returned(self, ticket: Ticket) -> None:
        """For Ticket.give_back."""
        if ticket.began_s is None:
            self._count(-1)
        else:
            self.running -= 1
            took_s = self._clock() - ticket.began_s
            self._turn_s += (took_s - self._turn_s) / 8
        self._go_on()

    def _check_room(self) -> None:
        if self.waiting >= self._limit or self._in_all.count >= self._in_all.limit:
            rounds = self.waiting / max(self._places, 1)
            raise Busy(
                f"the server is busy: {self.waiting} requests wait for this model",
                waiting=self.waiting,
                retry_after_s=min(max(math.ceil(rounds * self._turn_s), 1), _LONGEST_RETRY_S),
                hint="Try again when some of them have ended.",
            )

    def _go_on(self) -> None:
        while self._line and self.running < self._places:
            _, _, ticket = heapq.heappop(self._line)
            if ticket.over:
                continue
            self._count(-1)
            self.running += 1
            ticket.begin(self._clock())
        while self._line and self._line[0][2].over:
            heapq.heappop(self._line)

    def _count(self, more: int) -> None:
        self.waiting += more
        self._in_all.count += more
