"""Two variants as one that says what both say."""

import json
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import Any

from modelkit.grammars.patterns.automata import (
    WorkLimit,
    accepts,
    accepts_any,
    complement,
    intersection,
    of_texts,
)
from modelkit.grammars.patterns.determinizing import automaton_of
from modelkit.grammars.patterns.elimination import pattern_of
from modelkit.grammars.patterns.syntax import UnsupportedPattern
from modelkit.grammars.schemas.variant import TYPES, NotExpressible, Schema, Variant
from modelkit.output.reading.validation import same

_OBJECT = frozenset(("properties", "patternProperties", "additionalProperties"))
_LIST = frozenset(("items", "prefixItems"))
_MERGED: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum"), max),
    **dict.fromkeys(("maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum"), min),
    "type": lambda one, other: _common_types(one, other),
    "enum": lambda one, other: [value for value in one if any(same(value, also) for also in other)],
    "multipleOf": lambda one, other: common_multiple(one, other),
    **dict.fromkeys(("pattern", "format", "required"), lambda one, other: [*dict.fromkeys([*one, *other])]),
}


def merged(one: Variant, other: Variant) -> Variant | None:
    """All that the two say; None where that is nothing."""
    if not one or not other:
        return one or other
    variant = {**one, **{key: value for key, value in other.items() if key not in one}}
    for key in one.keys() & other.keys() & _MERGED.keys():
        variant[key] = _MERGED[key](one[key], other[key])
    if variant.get("type") == [] or variant.get("enum") == []:
        return None
    variant.pop("patternProperties", None)  # names that the other one lists have what these said of them
    return {**variant, **_objects(one, other), **_lists(one, other)}


def _objects(one: Variant, other: Variant) -> Variant:
    """What both say of properties: of one that only one of them names, the other says what it says of any."""
    if not any(key in variant for variant in (one, other) for key in _OBJECT):
        return {}
    one, other = _closed_by(one, other), _closed_by(other, one)
    named, also = one.get("properties", {}), other.get("properties", {})

    def of_property(name: str) -> Any:
        parts = [
            variant["properties"][name]
            if name in variant.get("properties", {})
            else _of_others(variant, name)
            for variant in (one, other)
        ]
        return _all([part for part in parts if part is not None])

    variant: Variant = (
        {"properties": {name: of_property(name) for name in (*named, *also)}} if named or also else {}
    )
    rest = [part["additionalProperties"] for part in (one, other) if "additionalProperties" in part]
    patterns = [part["patternProperties"] for part in (one, other) if "patternProperties" in part]
    names = {pattern: None for part in patterns for pattern in part}
    every = {pattern: _all([part[pattern] for part in patterns if pattern in part]) for pattern in names}
    return {
        **variant,
        **({"patternProperties": every} if patterns else {}),
        **({"additionalProperties": _all(rest)} if rest else {}),
    }


def _closed_by(one: Variant, other: Variant) -> Variant:
    """The same, with what the other says of names that it neither lists nor describes said of those that the
    first describes.
    """
    patterns, rest = one.get("patternProperties"), other.get("additionalProperties", True)
    theirs = other.get("patternProperties", {})
    if patterns is None or rest in (True, {}) or patterns.keys() <= theirs.keys():
        return one
    if rest is not False or theirs:
        return {**one, "patternProperties": _parted(patterns, rest, theirs, other.get("properties", {}))}
    own, free = one.get("properties", {}), one.get("additionalProperties", True)
    named = {
        name: _all([*([own[name]] if name in own else ()), *_by_pattern(one, name)] or [free])
        for name in other.get("properties", {})
    }
    kept = {key: value for key, value in one.items() if key != "patternProperties"}
    return {**kept, "properties": {**own, **named}, "additionalProperties": False}


def _parted(patterns: Schema, rest: Any, theirs: Schema, named: Schema) -> Variant:
    """Patterns of names, each as those that the other knows, and those of which it says the rest."""
    found: Variant = {}
    for pattern, said in patterns.items():
        known, others = (pattern, "") if pattern in theirs else _apart(pattern, (*theirs,), (*named,))
        for one, its in ((known, said), (others, _all([said, rest]))):
            if one:
                found[one] = _all([*([found[one]] if one in found else ()), its])
    return found


@lru_cache(256)
def _apart(pattern: str, patterns: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, str]:
    """Patterns of the names of one that are listed or fit one of these, and of the others; "" for none.
    Raises NotExpressible.
    """
    looks = WorkLimit(20_000)
    try:
        its = automaton_of(pattern, looks)
        others = intersection(
            [complement(one) for one in (*(automaton_of(one, looks) for one in patterns), of_texts(names))],
            looks,
        )
        parts = intersection([its, complement(others)], looks), intersection([its, others], looks)
        known, rest = (pattern_of(one) if accepts_any(one) else "" for one in parts)
        return known, rest
    except UnsupportedPattern as why:
        raise NotExpressible("its patternProperties stand beside properties of other schemas") from why


def _of_others(variant: Variant, name: str) -> Any:
    """What is said of a property that has no name of its own; None where patterns or nothing say it."""
    return None if _by_pattern(variant, name) else variant.get("additionalProperties")


def _by_pattern(variant: Variant, name: str) -> list[Any]:
    try:
        return [one for pattern, one in variant.get("patternProperties", {}).items() if _fits(name, pattern)]
    except UnsupportedPattern as why:
        raise NotExpressible(f"a pattern in its patternProperties is not understood: {why}") from why


@lru_cache(256)
def _fits(name: str, pattern: str) -> bool:
    return accepts(automaton_of(pattern, WorkLimit(20_000)), name)


def _lists(one: Variant, other: Variant) -> Variant:
    if not _LIST & one.keys() or not _LIST & other.keys():
        return {}
    count = max(len(variant.get("prefixItems", ())) for variant in (one, other))

    def at_place(place: int) -> Any:
        fronts = [(variant.get("prefixItems", ()), variant.get("items")) for variant in (one, other)]
        parts = [front[place] if place < len(front) else rest for front, rest in fronts]
        return _all([part for part in parts if part is not None])

    rest = [variant["items"] for variant in (one, other) if "items" in variant]
    front: Variant = {"prefixItems": [at_place(place) for place in range(count)]} if count else {}
    return {**front, **({"items": _all(rest)} if rest else {})}


def _all(parts: list[Any]) -> Any:
    """A schema of all these."""
    some = [part for part in parts if part is not True]
    if any(part is False for part in some):
        return False
    if len(some) > 1:
        some = [*{json.dumps(part, sort_keys=True): part for part in some}.values()]
    return True if not some else some[0] if len(some) == 1 else {"allOf": some}


def _common_types(one: list[str], other: list[str]) -> list[str]:
    def allows(kinds: list[str], kind: str) -> bool:
        return kind in kinds or (kind == "integer" and "number" in kinds)

    found = [kind for kind in TYPES if allows(one, kind) and allows(other, kind)]
    return [kind for kind in found if kind != "integer" or "number" not in found]


def common_multiple(one: float, other: float) -> float:
    """The least that is a multiple of both."""
    a, b = Fraction(str(one)), Fraction(str(other))
    step = Fraction(
        lcm(a.numerator * b.denominator, b.numerator * a.denominator), a.denominator * b.denominator
    )
    return int(step) if step.denominator == 1 else float(step)
