"""JSON from outside, taken by everybody the same way.

`json.loads` alone takes a key said twice (the last wins, so two readers can disagree), numbers too large for
a float, NaN, and halves of surrogate pairs that no file can hold again. All of these are refused here; who
reads a file bounds its size before, and says in an error of his own which file it is.
"""

import json
import math
import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeGuard

from runtime.quoting import shown

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

Pairs = list[tuple[str, Any]]


def unique_keys(pairs: Pairs) -> dict[str, Any]:
    """An `object_pairs_hook` that refuses a key said twice (ValueError)."""
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key `{shown(twice)}` is there twice")
    return found


def no_constant(text: str) -> NoReturn:
    """A `parse_constant` that refuses NaN and the infinities (ValueError)."""
    raise ValueError(f"{text} is not JSON")


def parse_strictly(
    text: bytes | str,
    *,
    pairs: Callable[[Pairs], Any] = unique_keys,
    constant: Callable[[str], float] = no_constant,
) -> Any:
    """The value that `text` spells, in UTF-8 where it is bytes. Raises ValueError for what is no strict JSON,
    RecursionError where it is nested deeper than Python goes; `python_faults.fault` has words for both.
    """
    said = text if isinstance(text, str) else text.decode("utf-8")
    value = json.loads(said, object_pairs_hook=pairs, parse_constant=constant, parse_float=_finite)
    if _SURROGATE.search(said):  # most such texts have none, and need not be written for this
        json.dumps(value, ensure_ascii=False).encode()  # UnicodeEncodeError, a ValueError, for half of a pair
    return value


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {shown(text)} is too large")
    return value


def is_number(value: object) -> TypeGuard[int | float]:
    """Is it a number to JSON? To Python, true and false are numbers too."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_finite(value: object) -> TypeGuard[int | float]:
    """Is it a number that a float can hold? JSON's whole numbers may have thousands of digits."""
    return is_number(value) and abs(value) <= sys.float_info.max
