"""Errors of the floor below, in the words of this one: what leaves the Python API is a ModelkitError.

One that nobody foresaw keeps its own text, and stands behind ours as its cause.
"""

from collections.abc import Generator
from contextlib import contextmanager

from modelkit.errors import ModelClosed, ModelkitError, RequestError, StoreError
from runtime.engine.thread import ThreadEnded
from runtime.errors import RuntimeFault


def worded(error: Exception) -> ModelkitError:
    """What to raise in its place."""
    if isinstance(error, ModelkitError):
        return error
    if isinstance(error, ThreadEnded):
        return closed() if error.__cause__ is None else ModelClosed(f"the model can answer no more: {error}")
    if isinstance(error, RuntimeFault | ValueError):
        return RequestError(str(error))
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return StoreError(f"{place}{error.strerror or error}")
    return ModelkitError(f"this failed for a reason that is not known here: {type(error).__name__}: {error}")


@contextmanager
def translated() -> Generator[None]:
    """Whatever is raised inside leaves as a ModelkitError; Ctrl-C and its like pass."""
    try:
        yield
    except ModelkitError:
        raise
    except Exception as error:
        raise worded(error) from error


def closed(name: str = "the model") -> ModelClosed:
    """What to raise for a request to a model that was closed."""
    return ModelClosed(f"{name} is closed", hint="Load it again.")
