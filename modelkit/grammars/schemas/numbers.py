"""Numbers that a JSON schema holds a value to, and which of them the library can be asked to hold.

It counts in doubles and in 64 bits. A whole number between two doubles would become one of them, and one at
the lower end of 64 bits ends the process: the library takes its negative, gets the same again, and goes on
until the stack is full. So bounds that lie farther out are drawn in to where it counts. A `multipleOf` it
takes times ten until it is whole, and that in 32 bits: 0.57, in doubles, becomes 5,699,999,999,999,999.
"""

import sys
from collections.abc import Iterator, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from modelkit.json_text import is_number

LOWEST = -(2**63) + 1024
"""From here down no number is held."""

_LISTING = frozenset({"const", "enum"})
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_STEP = "multipleOf"
_LARGEST_STEP = 2**32 - 1  # without its point
_MOST = 2**63 - 1  # of 64 bits; the library counts with it where more is said


MOST_BETWEEN = 16  # multiples that follow each other
_NONE_BEYOND = sys.float_info.max
_NEAREST = {"minimum": LOWEST + 1024, "maximum": 2**63 - 1024}
"""Bounds that are doubles, and that the library counts with."""


def with_near_bounds(schema: dict[str, Any]) -> tuple[bool, bool]:
    """Draw in the bounds of one schema that lie outside of 64 bits, in place: (was there any, is less taken
    for that). A bound that no double lies outside of is left out.
    """
    changed = less = False
    for key, nearest in _NEAREST.items():
        sign = 1 if key == "maximum" else -1
        for name in (key, f"exclusive{key.capitalize()}"):
            said = schema.get(name)
            if key == "maximum" and schema.get("type") == "integer":  # of these all 64 bits are held
                nearest = _MOST
            if not is_number(said) or sign * said <= sign * nearest:
                continue
            changed = True
            del schema[name]
            if sign * said < _NONE_BEYOND or (name != key and sign * said == _NONE_BEYOND):
                schema.setdefault(key, nearest)
                less = True
    return changed, less


def between_multiples(step: float, its: Mapping[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    """(bounds of the numbers between multiples that follow each other, are these all). its: bounds beside
    them; those nearest to 0 come first, and only so many.
    """
    unit = Decimal(str(step))
    low, high = (_outermost(its, end) for end in ("inimum", "aximum"))
    first = None if low is None else int((low / unit).to_integral_value(ROUND_FLOOR))
    last = None if high is None else int((high / unit).to_integral_value(ROUND_CEILING))
    start, stop = _window(first, last)
    found = [
        {"exclusiveMinimum": _number(unit * at), "exclusiveMaximum": _number(unit * (at + 1))}
        for at in range(start, stop)
    ]
    return found, (start, stop) == (first, last)


def _window(first: int | None, last: int | None) -> tuple[int, int]:
    """So many of a range as near to 0 as they can be."""
    half = MOST_BETWEEN // 2
    if first is None:
        stop = half if last is None else min(last, half)
        return stop - MOST_BETWEEN, stop
    start = max(first, -half)
    if last is None:
        return start, start + MOST_BETWEEN
    start = max(first, min(start, last - MOST_BETWEEN))
    return start, min(last, start + MOST_BETWEEN)


def _outermost(its: Mapping[str, Any], end: str) -> Decimal | None:
    """The bound at one end."""
    said = [its[key] for key in (f"m{end}", f"exclusiveM{end}") if is_number(its.get(key))]
    return Decimal(str((max if end == "inimum" else min)(said))) if said else None


def _number(value: Decimal) -> float:
    return int(value) if value == value.to_integral_value() else float(value)


def unenforceable_number(schema: Mapping[str, Any]) -> str | None:
    """A sentence on the first number that cannot be held."""
    for key, number in _numbers(schema):
        if key == _STEP:
            if _digits(number) > _LARGEST_STEP:
                return (
                    f"it has multipleOf {number}, and a grammar's numbers are doubles, which have more "
                    "digits of it than a grammar holds; take a smaller unit, of which it is a whole number"
                )
            continue
        if number <= LOWEST:
            return f"it has the number {number:,}; {LOWEST + 1:,} is the lowest that a grammar is made for"
        if isinstance(number, int) and not _exact(number):
            return (
                f"it has the number {number:,}, and a grammar's numbers are doubles, which have no such one"
            )
    return None


def _digits(step: float) -> float:
    """As the library reads them, without their point."""
    while step % 1 and step <= _LARGEST_STEP:
        step *= 10
    return step


def _exact(number: int) -> bool:
    """Would the library write this very number?"""
    if abs(number) <= 2**53 or number == _MOST:
        return True
    try:
        held = float(number)
    except OverflowError:
        return False
    return held == number if abs(number) < _MOST else Decimal(repr(held)) == number


def _numbers(schema: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Those of const and enum, at any depth, bounds and steps, and which they are. Bounds above
    64 bits are none to the library.
    """
    left = list[tuple[object, str]]([(schema, "")])
    while left:
        value, key = left.pop()
        if isinstance(value, Mapping):
            left += [(one, key if key in _LISTING else str(name)) for name, one in value.items()]
        elif isinstance(value, list):
            left += [(one, key if key in _LISTING else "") for one in value]
        elif not is_number(value):
            continue
        elif key in _LISTING or key == _STEP or (key in _BOUNDS and value < _MOST):
            yield key, value
