"""Who is to be told that there is something to read, and telling them once per step.

Readers are Python as well, and while they look at tokens the engine's thread waits for the interpreter. So
what a step brings is handed over when the next one is on its way to the device and has to be waited for; at
once, where a stream ends or no step follows.

An event loop cannot wait for a stream. It hands over a `wake`, is called when tokens have come, and takes
what is there (`Stream.take`). A step may bring many tokens to many rows; whoever listens to several of them
with one `wake` is called once.

A `wake` that fails does not touch the engine: its streams end with WakeFailed, and their rows stop within one
step, since nobody may ever come to read them.
"""

from collections.abc import Callable
from typing import Protocol

Wake = Callable[[], object]
"""Called on the engine's thread, so it must return at once; `loop.call_soon_threadsafe` does."""


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

    def __init__(self) -> None:
        self._news: list[Listener] = []
        self._pressing = False

    def note(self, listener: Listener, *, pressing: bool = False) -> None:
        """There is something new for this one. pressing: no later than when the step is over."""
        self._news.append(listener)
        self._pressing = self._pressing or pressing

    def step_over(self, *, more: bool) -> None:
        """more: one follows. What this one brought waits until that one rings, or is over too."""
        if not more or self._pressing:
            self.ring()
        self._pressing = bool(self._news)

    def ring(self) -> None:
        """Now is the time: tell everybody for whom there is something."""
        self._pressing = False
        news, self._news = self._news, []
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
        self._news = []  # what was just put in those streams, nobody listens to
