"""Does anybody still wait for what a thread works out?

An event loop that has given work to a thread can stop waiting for it, and cannot stop the thread. So long
work asks here before each of its pieces.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

from modelkit.errors import ModelkitError

T = TypeVar("T")


class Interest:
    """Somebody's interest in what is worked out on another thread."""

    def __init__(self) -> None:
        self._over = False

    def end(self) -> None:
        """Nobody waits any more. Returns at once; safe to call twice, and after the work's end."""
        self._over = True

    def work(self, function: Callable[[], T]) -> T:
        """What the function gives, worked out on this thread for whoever has this interest. Raises what it
        raises, and ModelkitError where it was broken off.
        """
        before = _present.set(self)
        try:
            return function()
        finally:
            _present.reset(before)

    def check(self) -> None:
        """Raise ModelkitError, which nobody will see, where it has ended."""
        if self._over:
            raise ModelkitError("nobody waits for this any more")


_present: ContextVar[Interest | None] = ContextVar("interest", default=None)


def check_wanted() -> None:
    """Raise ModelkitError where nobody waits for what this thread works out. Work that is no Interest's is
    always wanted.
    """
    interest = _present.get()
    if interest is not None:
        interest.check()
