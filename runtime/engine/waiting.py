"""How many requests wait for a place, and that there are not too many of them.

A request counts from `Engine.submit` until it gets its first place or ends without one. One that had to step
aside is no newcomer and does not count: what was accepted is never refused later.
"""

import threading
from collections.abc import Hashable

from runtime.errors import QueueFull


class Waiting:
    """Those that wait; called from any thread, and from handlers of signals in the middle of that."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._those = set[Hashable]()
        self._lock = threading.RLock()

    @property
    def count(self) -> int:
        return len(self._those)

    def enter(self, one: Hashable) -> None:
        """One more. Raises QueueFull, and then it does not count."""
        with self._lock:
            if len(self._those) >= self._limit:
                raise QueueFull(len(self._those))
            self._those.add(one)

    def leave(self, one: Hashable) -> None:
        """It waits no more, or never did."""
        self._those.discard(one)
