"""Errors of the floor below, in the words of this one: what leaves the Python API is a ModelkitError.

One that was not foreseen keeps its own text and is attached as the cause.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

from modelkit.disk_faults import disk_fault
from modelkit.errors import Busy, ModelClosed, ModelkitError, RanksLost, RequestError
from modelkit.python_faults import shortage
from runtime.engine.stream import WakeFailed
from runtime.engine.thread import ThreadEnded
from runtime.errors import CacheFull, QueueFull, RankLost, RuntimeFault

T = TypeVar("T")

_SMALLER = "Shorten the prompt, load the model with a smaller kv_format, or give it more memory."
_OTHER_CUT = (
    "Shorten the prompt, load the model with a smaller kv_format, or cut it so that this rank has less: see "
    "`modelkit plan`."
)


def as_modelkit_error(error: Exception) -> ModelkitError:
    """What to raise in its place."""
    if isinstance(error, ModelkitError):
        return error
    if isinstance(error, ThreadEnded) and isinstance(error.__cause__, RankLost):
        return as_modelkit_error(error.__cause__)
    if isinstance(error, ThreadEnded):
        if error.__cause__ is None:
            return closed()
        return ModelClosed(f"the model cannot answer any more: {error}")
    if isinstance(error, QueueFull):
        return Busy(
            f"the model is busy: {error}",
            waiting=error.waiting,
            hint="Try again later, or load the model with a larger max_waiting.",
        )
    if isinstance(error, RankLost):
        return RanksLost(str(error), hint="Start the model again on all of its machines.")
    if isinstance(error, CacheFull):
        return RequestError(
            "there is not enough memory for so long a conversation: it takes "
            f"{error.wanted_bytes:,} bytes and may take {error.budget_bytes:,}"
            + (f", as {error.because}" if error.because else ""),
            hint=_OTHER_CUT if error.because else _SMALLER,
        )
    if isinstance(error, WakeFailed):
        said = f"the event loop that read this answer cannot be reached any more: {error.__cause__}"
        return RequestError(said, hint="Read an answer to its end, or close it, before closing its loop.")
    if isinstance(error, RuntimeFault | ValueError):
        return RequestError(str(error))
    if isinstance(error, OSError):
        return disk_fault(error)
    unknown = f"this failed for an unknown reason: {type(error).__name__}: {error}"
    return shortage(error) or ModelkitError(unknown)


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
        raise as_modelkit_error(error) from error


def closed(name: str = "the model") -> ModelClosed:
    """What to raise for a request to a model that was closed."""
    return ModelClosed(f"{name} is closed", hint="Load it again.")
