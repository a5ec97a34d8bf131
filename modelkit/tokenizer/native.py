"""Calls into the `tokenizers` library, whose failures come in two kinds: exceptions, and Rust panics.

A panic arrives as `PanicException`, which is no `Exception`; left alone it would pass every handler of a
server. Both kinds leave here as TokenizerError.
"""

from collections.abc import Callable
from typing import TypeVar

from modelkit.errors import TokenizerError
from runtime.quoting import sentence

_T = TypeVar("_T")


def guarded(doing: str, call: Callable[[], _T]) -> _T:
    """What `call` returns. `doing` completes "the tokenizer failed while ..." in the error."""
    try:
        return call()
    except Exception as error:
        raise _failure(doing, error) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise _failure(doing, error) from error


def _failure(doing: str, error: BaseException) -> TokenizerError:
    return TokenizerError(f"the tokenizer failed while {doing}: {sentence(str(error))}")
