"""A JSON schema as the library takes it.

Patterns are written out, as every notation has them: it knows anchors at the ends of a pattern and nowhere
else, and its expressions are another language's (`.` takes a carriage return, `[a&&b]` is an intersection).
One that is not understood here is left to it. Of characters that are all control characters and others it
takes every escape of JSON, a quote's and a backslash's as well (`[^"]`), and the numbers of control
characters, in which other characters' numbers end: such go without control characters that have no short
escape. Where a pattern has all control characters in one place or another, NUL goes for the same reason.
Formats are patterns too: its own have a 29 February in every year, and no IPv6 address that ends as an IPv4
one. Numbers that are multiples of a whole one are whole: where a token that is not text may follow
them, the library gives up on the other way to say so. A whole number that is left out as a bound is taken for
one that is in where the other bound is less than one away (0 for "above 0, at most 0.5"): the next number is
written, as a bound that is in. Decimals that begin the digits of a bound (0.9 of 0.95) are left out: they are
listed beside it. References are addresses: blanks and brackets in the name of a definition are numbers there.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any
from urllib.parse import quote

from modelkit.grammars.patterns.elimination import without_lookarounds
from modelkit.grammars.patterns.formats import FORMATS
from modelkit.grammars.patterns.full_match import CONTROLS, full_expression
from modelkit.grammars.patterns.syntax import (
    Anchor,
    Chain,
    Chars,
    Choice,
    Part,
    Range,
    Repeat,
    UnsupportedPattern,
    merged_ranges,
    other_characters,
)
from modelkit.json_text import is_number

_VALUES = frozenset({"const", "enum", "default", "examples"})
_ENDS = (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1))
_BOUNDS = frozenset(key for end in _ENDS for key in end[:2])
_SAFE = "#/%:?&=~!$'()*+,;@-._"
_ADDRESS = re.compile(r"(?:[A-Za-z0-9#/:?&=~!$'()*+,;@._-]|%[0-9A-Fa-f]{2})*")
_NUMBERS = re.compile(r"\\u00[01][0-9a-f]|\\x\{(?:[1-9A-F]|1[0-9A-F]|7F)\}|\x7f")
_NAMES = frozenset({"properties", "patternProperties", "required"})
_DIGITS = 15  # of a bound, which the library keeps
_LARGEST = 10**12
_NAMED = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})


def escape_options(schema: Any) -> dict[str, Any]:
    """Options of the library: which escapes a text of a written schema may have.

    The number of any character in texts of which nothing is said. In others it knows those of control
    characters alone, and would make `\\u0019` of a `\\u2019` that a model begins. It also takes a named
    property for another one where the name is written in numbers: where there may be others, only control
    characters that the schema has are written so.
    """
    if not _named_and_others(schema):
        return {"json_allow_general_unicode_escapes": True}
    return {"json_allowed_escapes": 'nrbtf\\"' + ("u" if _NUMBERS.search(json.dumps(schema)) else "")}


def _named_and_others(schema: Any) -> bool:
    """Is there an object with properties that it names, and others?"""
    left = [schema]
    while left:
        value = left.pop()
        if isinstance(value, Mapping):
            if value.keys() & _NAMES and value.get("additionalProperties") is not False:
                return True
            left += value.values()
        elif isinstance(value, list):
            left += value
    return False


def for_llguidance(schema: Any) -> Any:
    """The schema itself where there is nothing to write out."""
    if isinstance(schema, list):
        found = [for_llguidance(one) for one in schema]
        return schema if all(new is old for new, old in zip(found, schema, strict=True)) else found
    if not isinstance(schema, Mapping):
        return schema
    written = {key: _member(key, value) for key, value in schema.items()}
    if _whole(schema):
        written["type"] = "integer"
    if written.keys() & _BOUNDS:
        _with_bounds(written)
    _with_format(written)
    same = written.keys() == schema.keys() and all(written[key] is value for key, value in schema.items())
    return schema if same else written


def _with_bounds(schema: dict[str, Any]) -> None:
    for end in _ENDS:
        _with_next(schema, *end)
    begun = _beginnings(schema)
    if begun and "anyOf" not in schema:
        schema["anyOf"] = [{}, {"enum": begun}]


def _with_next(schema: dict[str, Any], out: str, inner: str, sign: int) -> None:
    """sign: where numbers lie from a bound. Bounds on the other side of zero are those of the other end."""
    bound = schema.get(out)
    if (
        schema.get("type") == "integer"
        or not is_number(bound)
        or not 0 <= sign * bound < _LARGEST
        or bound % 1
    ):
        return
    following = bound + sign * 10.0 ** (len(str(abs(int(bound)))) - _DIGITS)
    del schema[out]
    known = schema.get(inner)
    if not is_number(known) or sign * (known - following) < 0:
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
    bounds = filter(is_number, map(schema.get, _BOUNDS))
    parts = (f"{Decimal(repr(bound)):f}".partition(".") for bound in bounds)
    begun = {
        float(f"{front}.{digits[:count]}") for front, _, digits in parts for count in range(1, len(digits))
    }
    return sorted(number for number in begun if number % 1)


def _whole(schema: Mapping[str, Any]) -> bool:
    """Is it a number that is whole, and not said to be?"""
    step = schema.get("multipleOf")
    if schema.get("type") != "number" or not is_number(step):
        return False
    return step >= 1 and step == int(step)


def _member(key: str, value: Any) -> Any:
    if key == "pattern" and isinstance(value, str):
        return _pattern(value)
    if key == "$ref" and isinstance(value, str):
        return value if _ADDRESS.fullmatch(value) else quote(value, safe=_SAFE)
    if key == "patternProperties" and isinstance(value, Mapping):
        known = {_pattern(pattern): for_llguidance(inner) for pattern, inner in value.items()}
        same = len(known) == len(value) and all(known.get(one) is inner for one, inner in value.items())
        return value if same or len(known) < len(value) else known
    if key in _NAMED and isinstance(value, Mapping):
        named = {name: for_llguidance(inner) for name, inner in value.items()}
        return value if all(named[name] is inner for name, inner in value.items()) else named
    return value if key in _VALUES else for_llguidance(value)


def _pattern(pattern: str) -> str:
    try:
        part = _without_numbers(without_lookarounds(pattern))
        # The library makes one class of several that stand beside each other.
        if all(any(low <= code <= high for low, high in _ranges_in(part)) for code in range(0x20)):
            part = _without_nul(part)
        return f"^({full_expression(part)})$"
    except UnsupportedPattern:
        return pattern


def _ranges_in(part: Part) -> tuple[Range, ...]:
    """Of all its characters together."""
    return merged_ranges(one for chars in _chars_in(part) for one in _taken(chars))


def _chars_in(part: Part) -> Iterator[Chars]:
    match part:
        case Chars():
            yield part
        case Repeat(inner):
            yield from _chars_in(inner)
        case Chain(parts) | Choice(parts):
            for one in parts:
                yield from _chars_in(one)
        case Anchor():
            pass


def _taken(chars: Chars) -> tuple[Range, ...]:
    if chars.negated:
        return other_characters(chars.ranges)
    return (*chars.ranges, (0x08, 0x0D)) if chars.classes else chars.ranges


def _without_nul(part: Part) -> Part:
    match part:
        case Chars() if part.negated:
            return replace(part, ranges=merged_ranges([*part.ranges, (0, 0)]))
        case Chars():
            return replace(
                part, ranges=other_characters(merged_ranges([*other_characters(part.ranges), (0, 0)]))
            )
        case Anchor():
            return part
        case Repeat():
            return replace(part, part=_without_nul(part.part))
        case _:
            return replace(part, parts=tuple(map(_without_nul, part.parts)))


def _without_numbers(part: Part) -> Part:
    """The same part, but for control characters that are a few among all others."""
    match part:
        case Chars():
            return _less(part) if _has(part, 0x20, 0x7E, any) and _has(part, 0x0E, 0x1F, all) else part
        case Anchor():
            return part
        case Repeat():
            return replace(part, part=_without_numbers(part.part))
        case _:
            return replace(part, parts=tuple(map(_without_numbers, part.parts)))


def _has(chars: Chars, low: int, high: int, enough: Callable[[Iterable[bool]], bool]) -> bool:
    codes = range(low, high + 1)
    return enough(any(a <= code <= b for a, b in chars.ranges) != chars.negated for code in codes)


def _less(chars: Chars) -> Chars:
    if chars.negated:
        return replace(chars, ranges=merged_ranges([*chars.ranges, *CONTROLS]))
    return replace(
        chars, ranges=other_characters(merged_ranges([*other_characters(chars.ranges), *CONTROLS]))
    )
