"""Tells readers that there is something to read, at most forty times a second.

Readers are written in Python, too: while they look at tokens, the engine's thread waits for the interpreter,
and a device that is a processor waits for its cores. So the tokens of a step are handed over while the next
step is on its way to the device and has to be waited for anyway. Where steps are short, the tokens of several
are handed over together: nobody reads faster than that. Many readers are told less often, since each costs a
write to a socket: it wakes to caches full of weights and takes some 0.1 to 0.4 ms of a core
(benchmarks/serve.py). The first tokens of a stream and its end do not wait for further steps, and nothing
waits for a long step (one that reads a prompt, too) or for a call.

An event loop cannot wait for a stream. It gives a `wake`, which is called when tokens have come, and takes
what is there (`Stream.take`). A step may bring many tokens to many rows; a `wake` that serves several of them
is called once.

A `wake` that fails does not affect the engine: its streams end with WakeFailed, and their rows stop within
one step, since perhaps nobody will ever read them.
"""

import time
from collections.abc import Callable
from typing import Protocol

Wake = Callable[[], object]
"""Called on the engine's thread, or on that of whoever closes the stream, so it must return at once;
`loop.call_soon_threadsafe` does.
"""


INTERVAL_S = 1 / 40
"""How long tokens may wait for others: one interval."""
READERS = 12
"""Up to so many readers are told once per interval; n times as many, once in n intervals."""
MOST_INTERVALS = 2.5
"""No reader is told more rarely than once in so many intervals."""


class Listener(Protocol):
    """A stream whose reader has given a `wake`."""

    @property
    def wake(self) -> Wake | None: ...
    def hand_over(self) -> None:
        """Let its reader have what was kept back."""
        ...

    def unheard(self, error: BaseException) -> None:
        """The reader cannot be told."""
        ...


class Notifier:
    """Used on the engine's thread only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: gives seconds."""
        self._news: dict[Listener, None] = {}
        self._pressing = self._due = self._left = False
        self._clock, self._notified_s = clock, 0.0

    def note(self, listener: Listener, *, pressing: bool = False, due: bool = False) -> None:
        """There is something new for this listener. pressing: tell it by the end of this step; due: by the
        end of the next one.
        """
        self._news[listener] = None
        self._pressing, self._due = self._pressing or pressing, self._due or due

    def hurry(self) -> None:
        """This step is a long one: what there is must not wait for the next."""
        self._due = True

    def step_over(self, *, more: bool) -> None:
        """more: another step follows."""
        if not more or self._pressing or (self._left and self._is_time):
            self.notify()  # there was no better moment: the step never waited for the device
        self._left = bool(self._news)

    def device_waited_for(self) -> None:
        """A step is on its way and the host has nothing else to do: the best moment to tell readers."""
        if self._news and self._is_time:
            self.notify()

    @property
    def _is_time(self) -> bool:
        intervals = min(max(len(self._news) / READERS, 1.0), MOST_INTERVALS)
        return self._due or self._clock() - self._notified_s >= intervals * INTERVAL_S

    def notify(self) -> None:
        """Tell everybody for whom there is something."""
        self._pressing = self._due = self._left = False
        if not self._news:
            return
        self._notified_s = self._clock()
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
