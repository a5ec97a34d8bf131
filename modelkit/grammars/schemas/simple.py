"""Schemas of tools that are not tried by themselves first, as most are: of a few keywords, whose values fit
them and each other. The answer's whole grammar is compiled at once; where that fails, each schema is tried.

What shows only when an answer has begun (an object that costs too much behind its brace, text that is forced)
has no place in these: it takes patterns, thousands of properties, or long texts.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from modelkit.grammars.patterns.formats import FORMATS
from modelkit.json_text import is_number

_TYPES = frozenset({"string", "number", "integer", "boolean", "null", "array", "object"})
_REMARKS = ("title", "description", "default", "examples")
_DEEPEST = 20
_LARGEST = 10**9
_LEAST_APART = 2  # bounds, so that a whole number lies between them
_MOST_FORCED, _MOST_COUNTED = 100, 10_000


def is_simple(schema: object, depth: int = 0) -> bool:
    """Schemas with anything else in them are not, whether they can be used or not."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return False
    known: Mapping[str, Any] = schema
    fits = all(key in _FITS and _FITS[key](value, depth + 1) for key, value in known.items())
    return fits and _agrees(known)


def _agrees(schema: Mapping[str, Any]) -> bool:
    """Do its keywords leave each other what they allow?"""
    if "anyOf" in schema:
        return not schema.keys() - {"anyOf", *_REMARKS}
    if not schema.keys() & {"enum", "const", "format"}:
        sizes = (schema.get(f"min{of}", 0) <= schema.get(f"max{of}", inf) for of in ("Length", "Items"))
        least = max(schema.get("minimum", -inf), schema.get("exclusiveMinimum", -inf))
        most = min(schema.get("maximum", inf), schema.get("exclusiveMaximum", inf))
        if not all(sizes) or most - least < _LEAST_APART:
            return False
        return set(schema.get("required", ())) <= schema.get("properties", {}).keys()
    return schema.get("type", "string") == "string" and len(schema.keys() - {"type", *_REMARKS}) == 1


def _is_type(value: Any, _: int) -> bool:
    return value in _TYPES if isinstance(value, str) else _are_texts(value, 0) and {*value} <= _TYPES


def _are_texts(value: Any, _: int) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def _are_simple(value: Any, depth: int) -> bool:
    return bool(value) and all(is_simple(one, depth) for one in value)


def _is_small_number(value: Any, _: int) -> bool:
    return is_number(value) and abs(value) <= _LARGEST


def _counts(most: int) -> "Callable[[Any, int], bool]":
    return lambda value, _: isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


_FITS: dict[str, Callable[[Any, int], bool]] = {
    **dict.fromkeys(_REMARKS, lambda value, _: True),
    "type": _is_type,
    "properties": lambda value, depth: (
        isinstance(value, dict) and all(is_simple(one, depth) for one in value.values())
    ),
    "required": lambda value, _: value == [] or _are_texts(value, 0),
    "additionalProperties": lambda value, depth: isinstance(value, bool) or is_simple(value, depth),
    "items": is_simple,
    "anyOf": lambda value, depth: isinstance(value, list) and _are_simple(value, depth),
    "enum": _are_texts,
    "const": lambda value, _: isinstance(value, str),
    "format": lambda value, _: isinstance(value, str) and value in FORMATS,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_small_number),
    **dict.fromkeys(("minLength", "minItems", "maxItems"), _counts(_MOST_FORCED)),
    "maxLength": _counts(_MOST_COUNTED),
}
"""By keyword: is this a value of it, which stands so deep?"""
