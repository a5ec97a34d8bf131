"""A JSON schema as the library takes it.

It knows anchors at the ends of a pattern, and nowhere else: those in groups are written out. A pattern that
is not understood here is left to the library. Numbers that are multiples of a whole one are whole: where a
token that is no text may follow them, the library gives up on the other way to say so.
"""

from collections.abc import Mapping
from typing import Any

from modelkit.grammars.expressions import Anchor, Chain, Chars, Choice, NotUnderstood, Part, Repeat, read
from modelkit.grammars.patterns import whole

_VALUES = frozenset({"const", "enum", "default", "examples"})
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
    return schema if all(written[key] is value for key, value in schema.items()) else written


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
    if "^" not in pattern and "$" not in pattern:
        return pattern
    try:
        return f"^({whole(pattern)})$" if _anchored_inside(read(pattern)) else pattern
    except NotUnderstood:
        return pattern


def _anchored_inside(part: Part) -> bool:
    """Are there anchors that stand elsewhere than at the ends of its alternatives?"""
    for way in part.parts if isinstance(part, Choice) else (part,):
        inner = list(way.parts) if isinstance(way, Chain) else [way]
        if inner and inner[0] == Anchor("begin"):
            del inner[0]
        if inner and inner[-1] == Anchor("end"):
            del inner[-1]
        if any(map(_anchored, inner)):
            return True
    return False


def _anchored(part: Part) -> bool:
    match part:
        case Anchor():
            return True
        case Chars():
            return False
        case Repeat():
            return _anchored(part.part)
        case _:
            return any(map(_anchored, part.parts))
