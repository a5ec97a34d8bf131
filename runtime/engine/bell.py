"""Who is to be told that there is something to read, and telling them at most forty times a second.

Readers are Python as well, and while they look at tokens the engine's thread waits for the interpreter, and a
device that is a processor for its cores. So what steps bring is handed over when the next one is on its way
to the device and has to be waited for, and where steps are short, that of some together: nobody reads letters
that come faster. Many readers are told less often, as each of them costs a write to a socket: whoever wakes
finds caches full of weights, and takes some 0.1 to 0.4 ms of a core (benchmarks/serve.py). The first tokens
of a stream and its end wait for no other step, and nothing waits for a step that is long: one that reads a
prompt too, or what is not a step.

An event loop cannot wait for a stream. It hands over a `wake`, is called when tokens have come, and takes
what is there (`Stream.take`). A step may bring many tokens to many rows; whoever listens to several of them
with one `wake` is called once.

A `wake` that fails does not touch the engine: its streams end with WakeFailed, and their rows stop within one
step, since nobody may ever come to read them.
"""

import time
from collections.abc import Callable
from typing import Protocol

Wake = Callable[[], object]
"""Called on the engine's thread, or on that of whoever closes the stream, so it must return at once;
`loop.call_soon_threadsafe` does.
"""


GRAIN_S = 1 / 40
"""For so long tokens may wait for others."""
READERS = 12
"""So many have them after each grain; more of them after as many grains as they are times more."""
GRAINS = 2.5
"""But no later than after these."""


class Listener(Protocol):
    """A stream whose reader has given a `wake`."""

    @property
    def wake(self) -> Wake | None: ...
    def hand_over(self) -> None:
        """Its reader may have what has been kept for it."""
        ...

    def unheard(self, error: BaseException) -> None:
        """The reader cannot be told."""
        ...


class Bell:
    """Used on the engine's thread only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: gives seconds."""
        self._news: dict[Listener, None] = {}
        self._pressing = self._due = self._left = False
        self._clock, self._rung_s = clock, 0.0

    def note(self, listener: Listener, *, pressing: bool = False, due: bool = False) -> None:
        """There is something new for this one. pressing: no later than when the step is over; due: than when
        the next one is.
        """
        self._news[listener] = None
        self._pressing, self._due = self._pressing or pressing, self._due or due

    def hurry(self) -> None:
        """This step is a long one: what there is must not wait for another."""
        self._due = True

    def step_over(self, *, more: bool) -> None:
        """more: one follows."""
        if not more or self._pressing or (self._left and self._is_time):
            self.ring()  # without a time for it: the step never waited
        self._left = bool(self._news)

    def device_waited_for(self) -> None:
        """A step is on its way, and the host has nothing else to do: the best time."""
        if self._news and self._is_time:
            self.ring()

    @property
    def _is_time(self) -> bool:
        grains = min(max(len(self._news) / READERS, 1.0), GRAINS)
        return self._due or self._clock() - self._rung_s >= grains * GRAIN_S

    def ring(self) -> None:
        """Now is the time: tell everybody for whom there is something."""
        self._pressing = self._due = self._left = False
        if not self._news:
            return
        self._rung_s = self._clock()
        news, self._news = list(self._news), {}
        for listener in news:
            listener.hand_over()
        called: list[Wake] = []
        failed: list[tuple[Wake, BaseException]] = []
        for listener in news:
            wake = listener.wake
            if wake is None or wake in called:
                continue
            called.append(wake)
            try:
                wake()
            except BaseException as error:  # noqa: BLE001 -- a stranger's function; the engine lives on
                failed.append((wake, error))
        for wake, error in failed:
            for listener in news:
                if listener.wake == wake:
                    listener.unheard(error)
        self._news = {}  # what was just put in those streams, nobody listens to
