"""A limit on how long a group's ranks wait for each other while they compute."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from runtime.errors import RankLost
from runtime.ranks.links import Links

_LOOK_S = 0.25


class Waiting(Protocol):
    """The group that waits: what `runtime.ranks.group.Group` has of it."""

    size: int
    limit_s: float
    links: Links
    stuck: Callable[[RankLost], None]

    @property
    def lost(self) -> bool: ...

    def lose(self, why: str) -> RankLost: ...


class Bounded:
    """See Group.bounded. A thread looks after it, as MLX waits where nobody can interrupt it."""

    def __init__(self, group: Waiting) -> None:
        self._group = group
        self.within_s = group.limit_s
        self._times = 1
        self._until_s: float | None = None
        self._outer: list[float | None] = []
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        self._outer.append(self._until_s)
        self._until_s = time.monotonic() + self.within_s
        if self._thread is None and self._group.size > 1:
            self._thread = threading.Thread(target=self._watch, name="modelkit-ranks", daemon=True)
            self._thread.start()

    def renew(self, times: int = 1) -> None:
        self._times = times
        if self._until_s is not None:
            self._until_s = time.monotonic() + self.within_s * times

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        outer_s = self._outer.pop()
        # What was waited for inside is no fault of what is around it.
        self.within_s, self._times = self._group.limit_s, 1
        self._until_s = None if outer_s is None else max(outer_s, time.monotonic() + self.within_s)
        if isinstance(error, RuntimeError) and self._group.size > 1:
            # Whatever MLX says: ranks that did not compute the same are out of step.
            raise self._group.lose(str(error)) from error

    def _watch(self) -> None:
        while not self._group.lost:
            time.sleep(min(self._group.limit_s / 8, _LOOK_S))
            self._look()
        while True:
            until_s = self._until_s
            time.sleep(_LOOK_S + 1)
            if until_s is not None and self._until_s == until_s:
                break
        # A connection that failed with more than one exchange in flight keeps MLX waiting for ever: who waits
        # when it fails, or whoever computes something next.
        self._group.stuck(self._group.lose(""))

    def _look(self) -> None:
        until_s = self._until_s
        if until_s is None:
            return
        if time.monotonic() > until_s:
            waited_s = self.within_s * self._times
            self._group.lose(f"another machine has not answered within {waited_s:g} s")
        elif self._group.links.broken():
            time.sleep(_LOOK_S)  # what has come before it was shut may be all that is waited for
            if self._until_s == until_s:
                self._group.lose("a connection was closed")
