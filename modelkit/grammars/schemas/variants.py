"""What a JSON schema says of one value, as a choice of plain descriptions.

A variant is a mapping without references and without anyOf, oneOf and allOf at its top: all that these say of
the value is merged into it, each with every choice. `type` is a list there, const an enum of one, `pattern`
and `format` are lists, `prefixItems` are the items in front. What stands in a property or an item is a schema
as before, or an allOf of several; references in it still lead into the root.

The library that has taken the schema as JSON has said what no grammar can be made of: of oneOf, its choices
exclude each other here.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import product
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
from modelkit.output.reading.validation import fits, same
from modelkit.schema import branches, target
from runtime.quoting import quoted

Schema = Mapping[str, Any]
Variant = dict[str, Any]

TYPES = ("string", "number", "integer", "boolean", "null", "object", "array")
MOST_VARIANTS = 64
_OF = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("minItems", "maxItems", "items", "prefixItems"),
    "object": (
        *("properties", "patternProperties", "additionalProperties", "required"),
        *("minProperties", "maxProperties"),
    ),
}
_OBJECT = frozenset(_OF["object"][:3])
_LIST = frozenset(("items", "prefixItems"))
TYPED_KEYWORDS = frozenset(key for keys in _OF.values() for key in keys)
VARIANT_KEYWORDS = TYPED_KEYWORDS | {"type", "const", "enum", "additionalItems"}
"""All keywords that a variant is made of."""
_MERGED: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum"), max),
    **dict.fromkeys(("maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum"), min),
    "type": lambda one, other: _common_types(one, other),
    "enum": lambda one, other: [value for value in one if any(same(value, also) for also in other)],
    "multipleOf": lambda one, other: common_multiple(one, other),
    **dict.fromkeys(("pattern", "format", "required"), lambda one, other: [*dict.fromkeys([*one, *other])]),
}


class NotExpressible(ValueError):
    """A sentence on a schema that is not taken apart."""


class Variants:
    """Of the schemas within one. root: where references lead to."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._inner: Schema | None = None

    def of(self, schema: Any) -> list[Variant]:
        """Those of a schema; none of one that no value has. Raises NotExpressible."""
        variants = self._variants(schema, ())
        if len(variants) > 1:
            variants = [*{json.dumps(variant, sort_keys=True): variant for variant in variants}.values()]
        sound = (variant for variant in map(self._sound, variants) if variant is not None)
        return [variant for variant in sound if types_of(variant)]

    def any_of(self, schema: Any) -> bool:
        """Has a value of this schema any way to be?"""
        try:
            return bool(self.of(schema))
        except NotExpressible:
            return True

    def alone(self, variant: Schema) -> Schema:
        """A schema that can stand by itself."""
        if '"$ref"' not in json.dumps(variant):
            return variant
        if self._inner is None:
            known = {key: value for key, value in self._root.items() if key not in ("$schema", "$id")}
            self._inner = _moved(known)
        return {**_moved(variant), "$defs": {_ROOT: self._inner}}

    def _variants(self, schema: Any, passed: tuple[int, ...]) -> list[Variant]:
        if not isinstance(schema, Mapping):
            return [] if schema is False else [{}]
        variants = [own_variant(schema)]
        if "$ref" in schema:
            found = target(schema["$ref"], self._root)
            if found is None:
                raise NotExpressible(f"where {quoted(schema['$ref'])} leads is not known")
            # A value that is described by itself alone has no way to be.
            there = [] if id(found) in passed else self._variants(found, (*passed, id(found)))
            variants = _both(variants, there)
        for one in branches(schema, "allOf"):
            variants = _both(variants, self._variants(one, passed))
        for key in ("anyOf", "oneOf"):
            if key in schema:
                variants = _both(
                    variants,
                    [variant for one in branches(schema, key) for variant in self._variants(one, passed)],
                )
        return variants

    def _sound(self, variant: Variant) -> Variant | None:
        """Without listed values that something else excludes; None where nothing is left."""
        if "enum" not in variant:
            return variant
        others = {key: value for key, value in variant.items() if key not in ("enum", "pattern", "format")}
        listed = [value for value in variant["enum"] if fits(value, others, self._root)]
        kept = {key: variant[key] for key in ("pattern", "format") if key in variant}
        return {**kept, "enum": listed} if listed else None


def types_of(variant: Variant) -> list[str]:
    """The types that its values may have. An object with named properties is meant to be one."""
    if "enum" in variant:
        return list(dict.fromkeys(type_of(value) for value in variant["enum"]))
    usual = ["object"] if "properties" in variant else [kind for kind in TYPES if kind != "integer"]
    said = variant.get("type", usual)
    return [kind for kind in TYPES if kind in said and not _EMPTY.get(kind, lambda _: False)(variant)]


def _no_list(variant: Variant) -> bool:
    least, most = variant.get("minItems", 0), variant.get("maxItems", math.inf)
    ends = len(variant.get("prefixItems", ())) if variant.get("items") is False else math.inf
    return least > min(most, ends)


def _no_object(variant: Variant) -> bool:
    named = variant.get("properties", {})
    return any(named.get(name) is False for name in variant.get("required", ()))


_EMPTY: dict[str, Callable[[Variant], bool]] = {
    "array": _no_list,
    "object": _no_object,
    "string": lambda variant: variant.get("minLength", 0) > variant.get("maxLength", math.inf),
}
"""Where nothing is left of a type."""


def type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def of_type(variant: Variant, kind: str) -> Schema:
    """The variant's values of this type, as a schema again."""
    keys = _OF.get("number" if kind == "integer" else kind, ())
    said: Variant = {"type": kind, **{key: variant[key] for key in keys if key in variant}}
    if "enum" in variant:
        del said["type"]
        said["enum"] = [value for value in variant["enum"] if type_of(value) == kind]
    every = [{key: one} for key in ("pattern", "format") for one in said.pop(key, ())]
    return {**said, **(every[0] if len(every) == 1 else {"allOf": every} if every else {})}


def own_variant(schema: Schema) -> Variant:
    """What it says of the value by itself, as a variant."""
    variant: Variant = {key: value for key, value in schema.items() if key in TYPED_KEYWORDS}
    if isinstance(said := schema.get("type"), str | list):
        variant["type"] = [said] if isinstance(said, str) else said
    if isinstance(listed := schema.get("enum"), list):
        variant["enum"] = listed
    if "const" in schema:
        variant["enum"] = [
            one for one in variant.get("enum", [schema["const"]]) if same(one, schema["const"])
        ]
    for key in ("pattern", "format"):
        if key in variant:
            variant[key] = [variant[key]]
    if isinstance(variant.get("items"), list):
        variant["prefixItems"] = variant.pop("items")
        if "additionalItems" in schema:
            variant["items"] = schema["additionalItems"]
    return variant


def _both(some: Sequence[Variant], others: Sequence[Variant]) -> list[Variant]:
    if len(some) * len(others) > MOST_VARIANTS:
        raise NotExpressible(f"it has more than {MOST_VARIANTS} choices")
    found = (merged(one, other) for one, other in product(some, others))
    return [variant for variant in found if variant is not None]


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


_ROOT = "="


def _moved(schema: Any) -> Any:
    """With references to the root of before led to where it is put."""
    if isinstance(schema, list):
        return [_moved(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {key: _moved_member(key, value) for key, value in schema.items()}


def _moved_member(key: str, value: Any) -> Any:
    if key == "$ref" and isinstance(value, str) and value.startswith("#"):
        return f"#/$defs/{_ROOT}{value[1:]}"
    return (
        value
        if key in ("const", "enum", "default", "examples") and not isinstance(value, Mapping)
        else _moved(value)
    )
