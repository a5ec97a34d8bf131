"""What callers hand in, read at the door: the rooms below get values of the types that they were written for.

Each function returns the value in its plain form, or raises RequestError saying where, what it is and what
was expected. Nothing is guessed: True is not a number, and a text is not a list of texts.
"""

import math
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from modelkit.errors import RequestError
from runtime.quoting import MOST_OF_A_PATH, quoted

T = TypeVar("T")
_LONGEST_PATH = 4096


def refused(where: str, value: object, expected: str, hint: str | None = None) -> RequestError:
    """The error for `value` in the argument `where`."""
    return RequestError(f"{where} is {quoted(value)}, expected {expected}", hint=hint)


def optional(read: Callable[[Any, str], T], value: object, where: str) -> T | None:
    """What `read` makes of an argument that may be left out, as None."""
    return None if value is None else read(value, where)


def text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise refused(where, value, "a text")
    return str.__str__(value)


def flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise refused(where, value, "True or False")
    return value


def whole(value: object, where: str, low: int, high: int) -> int:
    """A whole number from `low` to `high`, numpy's included."""
    number = as_whole(value)
    if number is None or not low <= number <= high:
        raise refused(where, value, f"a whole number from {low} to {high}")
    return number


def number(value: object, where: str) -> float:
    """A finite number, numpy's included."""
    found = as_number(value)
    if found is None or not math.isfinite(found):
        raise refused(where, value, "a finite number")
    return found


def ids(value: object, where: str, of: str = "token ids") -> tuple[int, ...]:
    """Token ids: any collection of whole numbers. Whether the vocabulary has them is asked elsewhere."""
    found: list[int] = []
    for place, one in enumerate(elements(value, where, of)):
        number = as_whole(one)
        if number is None:
            several = "One call answers one prompt." if isinstance(one, str) else None
            raise refused(f"{where}[{place}]", one, "a token id", several)
        found.append(number)
    return tuple(found)


def elements(value: object, where: str, of: str) -> Iterator[Any]:
    """What is in a list or another collection in order. A text, bytes, a mapping and a set are single values
    here, though Python would iterate over them.
    """
    single = isinstance(value, str | bytes | bytearray | memoryview | Mapping | set | frozenset | type)
    if not single and isinstance(value, Iterable):
        try:
            return iter(value)
        except TypeError:  # numpy's single numbers promise more than they keep
            pass
    raise refused(where, value, f"a list of {of}")


def mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise refused(where, value, "a mapping")
    for key in value:
        if not isinstance(key, str):
            raise refused(f"a key of {where}", key, "a text")
    return value


def path(value: object, where: str, what: str = "a path") -> str | os.PathLike[str]:
    """As it is: something that the file system can be asked for. what: what an error says was expected."""
    plain = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(plain, str) or not plain:
        raise refused(where, value, what)
    if "\0" in plain or len(plain) > _LONGEST_PATH or not _encodable(plain):
        raise refused(where, plain, f"{what}: no NUL, whole characters, at most {_LONGEST_PATH:,} of them")
    return value if isinstance(value, Path) else plain


def model(value: object, where: str) -> str | os.PathLike[str]:
    """What names a model."""
    return path(value, where, "a model's name, address or path")


def absolute(path: str | os.PathLike[str]) -> Path:
    """The path from the root on. Raises RequestError where that cannot be told."""
    try:
        return Path(path).absolute()
    except OSError as error:
        raise RequestError(
            f"{quoted(os.fspath(path), MOST_OF_A_PATH)} cannot be found: the current folder no longer exists",
            hint="Change to an existing folder, or give an absolute path.",
        ) from error


def on_disk(name: str) -> str:
    """How the system is asked for a file that a text names: file names are bytes, those of UTF-8, for which
    Python puts halves of surrogate pairs in a locale that has no such letter.
    """
    if _encodable(name):
        return name
    try:
        return os.fsdecode(name.encode())
    except UnicodeEncodeError:  # half a pair of another kind: the name of no file
        return name


def function(value: object, where: str) -> Callable[..., Any]:
    if not callable(value):
        raise refused(where, value, "a function")
    return value


def _encodable(name: str) -> bool:
    """Can the file system be asked for it? Halves of surrogate pairs must be Python's own, put for bytes."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


def as_number(value: object) -> float | None:
    """A number, numpy's included; None for anything else."""
    if isinstance(value, bool | str | bytes) or getattr(value, "dtype", None) == "bool":
        return None
    try:
        return float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        return None


def as_whole(value: object) -> int | None:
    """A whole number, numpy's included; None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # pyright: ignore[reportArgumentType]
    except TypeError:
        return None
