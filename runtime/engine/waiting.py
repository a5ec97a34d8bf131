"""How many requests wait for a place, and that there are not too many of them.

A request counts from `Engine.submit` until it gets its first place or ends without one. One that had to step
aside is no newcomer and does not count: what was accepted is never refused later.
"""

import threading

from runtime.errors import QueueFull


class Waiting:
    """Counts; called from any thread."""

    def __init__(self, limit: int) -> None:
        self._limit, self._count = limit, 0
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        return self._count

    def enter(self) -> None:
        """One more. Raises QueueFull, and then it does not count."""
        with self._lock:
            if self._count >= self._limit:
                raise QueueFull(self._count)
            self._count += 1

    def leave(self) -> None:
        with self._lock:
            self._count -= 1
