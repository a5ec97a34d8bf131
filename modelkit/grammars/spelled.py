"""A JSON schema as the library takes it.

Patterns are written out, as every notation has them: it knows anchors at the ends of a pattern and nowhere
else, and its expressions are another language's (`.` takes a carriage return, `[a&&b]` is an intersection).
One that is not understood here is left to it. Of characters that are all control characters and others it
takes every escape of JSON, a quote's and a backslash's as well (`[^"]`): such go without U+0000, which makes
it look at each. Formats are patterns too: its own have a 29 February in every year, and no IPv6 address that
ends as an IPv4 one. Numbers that are multiples of a whole one are whole: where a token that is no text may
follow them, the library gives up on the other way to say so. A whole number that is left out as a bound is
taken for one that is in where the other bound is less than one away (0 for "above 0, at most 0.5"): the next
number is written, as a bound that is in. Decimals that begin the digits of a bound (0.9 of 0.95) are left
out: they are listed beside it.
"""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, TypeGuard

from modelkit.grammars.expressions import Anchor, Chars, NotUnderstood, Part, Repeat, read
from modelkit.grammars.patterns import FORMATS, whole

_VALUES = frozenset({"const", "enum", "default", "examples"})
_ENDS = (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1))
_DIGITS = 15  # of a bound, which the library keeps
_LARGEST = 10**12
_NAMED = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})


def spelled(schema: Any) -> Any:
    """The schema itself where there is nothing to write out."""
    if isinstance(schema, list):
        found = [spelled(one) for one in schema]
        return schema if all(new is old for new, old in zip(found, schema, strict=True)) else found
    if not isinstance(schema, Mapping):
        return schema
    written = {key: _member(key, value) for key, value in schema.items()}
    if _whole(schema):
        written["type"] = "integer"
    for end in _ENDS:
        _with_next(written, *end)
    _with_format(written)
    begun = _beginnings(written)
    if begun and "anyOf" not in written:
        written["anyOf"] = [{}, {"enum": begun}]
    same = written.keys() == schema.keys() and all(written[key] is value for key, value in schema.items())
    return schema if same else written


def _with_next(schema: dict[str, Any], out: str, inner: str, sign: int) -> None:
    """sign: where numbers lie from a bound. Bounds on the other side of zero are those of the other end."""
    bound = schema.get(out)
    if (
        schema.get("type") == "integer"
        or not _is_number(bound)
        or not 0 <= sign * bound < _LARGEST
        or bound % 1
    ):
        return
    following = bound + sign * 10.0 ** (len(str(abs(int(bound)))) - _DIGITS)
    del schema[out]
    known = schema.get(inner)
    if not _is_number(known) or sign * (known - following) < 0:
        schema[inner] = following


def _with_format(schema: dict[str, Any]) -> None:
    """As a pattern."""
    name = schema.get("format")
    if not isinstance(name, str) or name not in FORMATS:
        return
    del schema["format"]
    form = {"pattern": f"^({FORMATS[name]})$"}
    if "pattern" in schema:
        schema["allOf"] = [*schema.get("allOf", ()), form]
    else:
        schema.update(form)


def _beginnings(schema: Mapping[str, Any]) -> list[float]:
    """Decimals that begin the digits of a bound."""
    bounds = filter(_is_number, (schema.get(key) for end in _ENDS for key in end[:2]))
    parts = (f"{Decimal(repr(bound)):f}".partition(".") for bound in bounds)
    begun = {
        float(f"{front}.{digits[:count]}") for front, _, digits in parts for count in range(1, len(digits))
    }
    return sorted(number for number in begun if number % 1)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(schema: Mapping[str, Any]) -> bool:
    """Is it a number that is whole, and not said to be?"""
    step = schema.get("multipleOf")
    if schema.get("type") != "number" or not isinstance(step, int | float) or isinstance(step, bool):
        return False
    return step >= 1 and step == int(step)


def _member(key: str, value: Any) -> Any:
    if key == "pattern" and isinstance(value, str):
        return _pattern(value)
    if key == "patternProperties" and isinstance(value, Mapping):
        known = {_pattern(pattern): spelled(inner) for pattern, inner in value.items()}
        same = len(known) == len(value) and all(known.get(one) is inner for one, inner in value.items())
        return value if same or len(known) < len(value) else known
    if key in _NAMED and isinstance(value, Mapping):
        named = {name: spelled(inner) for name, inner in value.items()}
        return value if all(named[name] is inner for name, inner in value.items()) else named
    return value if key in _VALUES else spelled(value)


def _pattern(pattern: str) -> str:
    try:
        return f"^({whole(_without_escapes(read(pattern)))})$"
    except NotUnderstood:
        return pattern


def _without_escapes(part: Part) -> Part:
    """The same part, but for characters of which the library would take every escape."""
    match part:
        case Chars():
            return _less(part) if _takes_every_escape(part) else part
        case Anchor():
            return part
        case Repeat():
            inner = _without_escapes(part.part)
            return part if inner is part.part else replace(part, part=inner)
        case _:
            found = tuple(map(_without_escapes, part.parts))
            same = all(new is old for new, old in zip(found, part.parts, strict=True))
            return part if same else replace(part, parts=found)


def _takes_every_escape(chars: Chars) -> bool:
    """Has it all control characters, and not both of those that JSON writes with a backslash?"""
    within = [any(low <= code <= high for low, high in chars.ranges) != chars.negated for code in range(0x5D)]
    return all(within[:10] + within[11:32]) and not (within[0x22] and within[0x5C])


def _less(chars: Chars) -> Chars:
    """Without U+0000, which no text has."""
    if chars.negated:
        return replace(chars, ranges=((0, 0), *chars.ranges))
    (_, high), *others = chars.ranges
    return replace(chars, ranges=((1, high), *others))
