"""Errors of the floor below, in the words of this one: what leaves the Python API is a ModelkitError.

One that was not foreseen keeps its own text and is attached as the cause.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from modelkit.errors import Busy, ModelClosed, ModelkitError, RanksLost, RequestError, StoreError
from runtime.engine.stream import WakeFailed
from runtime.engine.thread import ThreadEnded
from runtime.errors import CacheFull, QueueFull, RankLost, RuntimeFault

T = TypeVar("T")
_NO_THREAD = ("can't start new thread", "Resource temporarily unavailable")  # Python's words, and MLX's


def worded(error: Exception) -> ModelkitError:
    """What to raise in its place."""
    if isinstance(error, ModelkitError):
        return error
    if isinstance(error, ThreadEnded) and isinstance(error.__cause__, RankLost):
        return worded(error.__cause__)
    if isinstance(error, ThreadEnded):
        return closed() if error.__cause__ is None else ModelClosed(f"the model can answer no more: {error}")
    if isinstance(error, QueueFull):
        return Busy(
            f"the model is busy: {error}",
            waiting=error.waiting,
            hint="Try again when some of them have ended, or load the model with a larger max_waiting.",
        )
    if isinstance(error, RankLost):
        return RanksLost(str(error), hint="Start the model again, on all of its machines.")
    if isinstance(error, CacheFull):
        return RequestError(
            "there is no memory for so long a conversation: it takes "
            f"{error.wanted_bytes:,} bytes and may take {error.budget_bytes:,}",
            hint="Ask with a shorter prompt, load it with a smaller kv_format, or give it more memory.",
        )
    if isinstance(error, WakeFailed):
        said = f"the event loop that read this answer cannot be told of more: {error.__cause__}"
        return RequestError(said, hint="Read an answer to its end, or close it, before its loop is closed.")
    if isinstance(error, RuntimeError) and str(error) in _NO_THREAD:
        return ModelkitError(
            "the system gives this process no more threads",
            hint="Raise what it may have: `ulimit -u`, `ulimit -v`, or what its container allows.",
        )
    if isinstance(error, RuntimeFault | ValueError):
        return RequestError(str(error))
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return StoreError(f"{place}{error.strerror or error}")
    return ModelkitError(f"this failed for a reason that is not known here: {type(error).__name__}: {error}")


class Callbacks:
    """Functions that a caller handed in. What they raise is the caller's own, and passes as it is."""

    def __init__(self) -> None:
        self.raised: list[Exception] = []

    def heard(self, function: Callable[..., T]) -> Callable[..., T]:
        """The function, with what it raises noted."""

        def call(*arguments: Any) -> T:
            try:
                return function(*arguments)
            except Exception as error:
                self.raised.append(error)
                raise

        return call


@contextmanager
def translated(callbacks: Callbacks | None = None) -> Generator[None]:
    """Whatever is raised inside leaves as a ModelkitError, but for Ctrl-C and its like, and for what the
    caller's own functions raise.
    """
    try:
        yield
    except ModelkitError:
        raise
    except Exception as error:
        if callbacks is not None and any(error is own for own in callbacks.raised):
            raise
        raise worded(error) from error


def closed(name: str = "the model") -> ModelClosed:
    """What to raise for a request to a model that was closed."""
    return ModelClosed(f"{name} is closed", hint="Load it again.")
