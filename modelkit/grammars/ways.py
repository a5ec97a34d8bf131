"""What a JSON schema says of one value, as a choice of plain descriptions.

A way is a mapping without references and without anyOf, oneOf and allOf at its top: all that these say of the
value is merged into it, each with every choice. `type` is a list there, const an enum of one, `pattern` and
`format` are lists, `prefixItems` are the items in front. What stands in a property or an item is a schema as
before, or an allOf of several; references in it still lead into the root.

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

from modelkit.grammars.automata import Looks, at_once, automaton_of, listed, outside, takes, takes_any
from modelkit.grammars.expressions import NotUnderstood
from modelkit.grammars.unfolded import pattern_of
from modelkit.output.reading.fitting import fits, same
from modelkit.schema import target

Schema = Mapping[str, Any]
Way = dict[str, Any]

TYPES = ("string", "number", "integer", "boolean", "null", "object", "array")
MOST_WAYS = 64
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
SAYS = frozenset(key for keys in _OF.values() for key in keys)
SAID = SAYS | {"type", "const", "enum", "additionalItems"}
"""All keywords that a way is made of."""
_MERGED: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum"), max),
    **dict.fromkeys(("maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum"), min),
    "type": lambda one, other: _kinds_of_both(one, other),
    "enum": lambda one, other: [value for value in one if any(same(value, also) for also in other)],
    "multipleOf": lambda one, other: step_of_both(one, other),
    **dict.fromkeys(("pattern", "format", "required"), lambda one, other: [*dict.fromkeys([*one, *other])]),
}


class Beyond(ValueError):
    """A sentence on a schema that is not taken apart."""


class Ways:
    """Of the schemas within one. root: where references lead to."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._inner: Schema | None = None

    def of(self, schema: Any) -> list[Way]:
        """Those of a schema; none of one that no value has. Raises Beyond."""
        ways = self._ways(schema, ())
        if len(ways) > 1:
            ways = [*{json.dumps(way, sort_keys=True): way for way in ways}.values()]
        sound = (way for way in map(self._sound, ways) if way is not None)
        return [way for way in sound if kinds_of(way)]

    def any_of(self, schema: Any) -> bool:
        """Has a value of this schema any way to be?"""
        try:
            return bool(self.of(schema))
        except Beyond:
            return True

    def alone(self, way: Schema) -> Schema:
        """A schema that can stand by itself."""
        if '"$ref"' not in json.dumps(way):
            return way
        if self._inner is None:
            known = {key: value for key, value in self._root.items() if key not in ("$schema", "$id")}
            self._inner = _moved(known)
        return {**_moved(way), "$defs": {_ROOT: self._inner}}

    def _ways(self, schema: Any, passed: tuple[int, ...]) -> list[Way]:
        if not isinstance(schema, Mapping):
            return [] if schema is False else [{}]
        ways = [plain(schema)]
        if "$ref" in schema:
            found = target(schema["$ref"], self._root)
            if found is None:
                raise Beyond(f"where {str(schema['$ref'])[:80]!r} leads is not known")
            # A value that is described by itself alone has no way to be.
            there = [] if id(found) in passed else self._ways(found, (*passed, id(found)))
            ways = _both(ways, there)
        for one in _listed(schema, "allOf"):
            ways = _both(ways, self._ways(one, passed))
        for key in ("anyOf", "oneOf"):
            if key in schema:
                ways = _both(ways, [way for one in _listed(schema, key) for way in self._ways(one, passed)])
        return ways

    def _sound(self, way: Way) -> Way | None:
        """Without listed values that something else excludes; None where nothing is left."""
        if "enum" not in way:
            return way
        others = {key: value for key, value in way.items() if key not in ("enum", "pattern", "format")}
        listed = [value for value in way["enum"] if fits(value, others, self._root)]
        kept = {key: way[key] for key in ("pattern", "format") if key in way}
        return {**kept, "enum": listed} if listed else None


def kinds_of(way: Way) -> list[str]:
    """The types that its values may have. An object with named properties is meant to be one."""
    if "enum" in way:
        return list(dict.fromkeys(kind_of(value) for value in way["enum"]))
    usual = ["object"] if "properties" in way else [kind for kind in TYPES if kind != "integer"]
    said = way.get("type", usual)
    return [kind for kind in TYPES if kind in said and not _EMPTY.get(kind, lambda _: False)(way)]


def _no_list(way: Way) -> bool:
    least, most = way.get("minItems", 0), way.get("maxItems", math.inf)
    ends = len(way.get("prefixItems", ())) if way.get("items") is False else math.inf
    return least > min(most, ends)


def _no_object(way: Way) -> bool:
    named = way.get("properties", {})
    return any(named.get(name) is False for name in way.get("required", ()))


_EMPTY: dict[str, Callable[[Way], bool]] = {
    "array": _no_list,
    "object": _no_object,
    "string": lambda way: way.get("minLength", 0) > way.get("maxLength", math.inf),
}
"""Where nothing is left of a type."""


def kind_of(value: Any) -> str:
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


def of_kind(way: Way, kind: str) -> Schema:
    """The way's values of this type, as a schema again."""
    keys = _OF.get("number" if kind == "integer" else kind, ())
    said: Way = {"type": kind, **{key: way[key] for key in keys if key in way}}
    if "enum" in way:
        del said["type"]
        said["enum"] = [value for value in way["enum"] if kind_of(value) == kind]
    every = [{key: one} for key in ("pattern", "format") for one in said.pop(key, ())]
    return {**said, **(every[0] if len(every) == 1 else {"allOf": every} if every else {})}


def plain(schema: Schema) -> Way:
    """What it says of the value by itself, as a way."""
    way: Way = {key: value for key, value in schema.items() if key in SAYS}
    if isinstance(said := schema.get("type"), str | list):
        way["type"] = [said] if isinstance(said, str) else said
    if isinstance(listed := schema.get("enum"), list):
        way["enum"] = listed
    if "const" in schema:
        way["enum"] = [one for one in way.get("enum", [schema["const"]]) if same(one, schema["const"])]
    for key in ("pattern", "format"):
        if key in way:
            way[key] = [way[key]]
    if isinstance(way.get("items"), list):
        way["prefixItems"] = way.pop("items")
        if "additionalItems" in schema:
            way["items"] = schema["additionalItems"]
    return way


def _both(some: Sequence[Way], others: Sequence[Way]) -> list[Way]:
    if len(some) * len(others) > MOST_WAYS:
        raise Beyond(f"it has more than {MOST_WAYS} choices")
    found = (merged(one, other) for one, other in product(some, others))
    return [way for way in found if way is not None]


def merged(one: Way, other: Way) -> Way | None:
    """All that the two say; None where that is nothing."""
    if not one or not other:
        return one or other
    way = {**one, **{key: value for key, value in other.items() if key not in one}}
    for key in one.keys() & other.keys() & _MERGED.keys():
        way[key] = _MERGED[key](one[key], other[key])
    if way.get("type") == [] or way.get("enum") == []:
        return None
    way.pop("patternProperties", None)  # names that the other one lists have what these said of them
    return {**way, **_objects(one, other), **_lists(one, other)}


def _objects(one: Way, other: Way) -> Way:
    """What both say of properties: of one that only one of them names, the other says what it says of any."""
    if not any(key in way for way in (one, other) for key in _OBJECT):
        return {}
    one, other = _closed_by(one, other), _closed_by(other, one)
    named, also = one.get("properties", {}), other.get("properties", {})

    def of_property(name: str) -> Any:
        parts = [
            way["properties"][name] if name in way.get("properties", {}) else _of_others(way, name)
            for way in (one, other)
        ]
        return _all([part for part in parts if part is not None])

    way: Way = {"properties": {name: of_property(name) for name in (*named, *also)}} if named or also else {}
    rest = [part["additionalProperties"] for part in (one, other) if "additionalProperties" in part]
    patterns = [part["patternProperties"] for part in (one, other) if "patternProperties" in part]
    names = {pattern: None for part in patterns for pattern in part}
    every = {pattern: _all([part[pattern] for part in patterns if pattern in part]) for pattern in names}
    return {
        **way,
        **({"patternProperties": every} if patterns else {}),
        **({"additionalProperties": _all(rest)} if rest else {}),
    }


def _closed_by(one: Way, other: Way) -> Way:
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


def _parted(patterns: Schema, rest: Any, theirs: Schema, named: Schema) -> Way:
    """Patterns of names, each as those that the other knows, and those of which it says the rest."""
    found: Way = {}
    for pattern, said in patterns.items():
        known, others = (pattern, "") if pattern in theirs else _apart(pattern, (*theirs,), (*named,))
        for one, its in ((known, said), (others, _all([said, rest]))):
            if one:
                found[one] = _all([*([found[one]] if one in found else ()), its])
    return found


@lru_cache(256)
def _apart(pattern: str, patterns: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, str]:
    """Patterns of the names of one that are listed or fit one of these, and of the others; "" for none.
    Raises Beyond.
    """
    looks = Looks(20_000)
    try:
        its = automaton_of(pattern, looks)
        others = at_once(
            [outside(one) for one in (*(automaton_of(one, looks) for one in patterns), listed(names))], looks
        )
        parts = at_once([its, outside(others)], looks), at_once([its, others], looks)
        known, rest = (pattern_of(one) if takes_any(one) else "" for one in parts)
        return known, rest
    except NotUnderstood as why:
        raise Beyond("its patternProperties stand beside properties of other schemas") from why


def _of_others(way: Way, name: str) -> Any:
    """What is said of a property that has no name of its own; None where patterns or nothing say it."""
    return None if _by_pattern(way, name) else way.get("additionalProperties")


def _by_pattern(way: Way, name: str) -> list[Any]:
    try:
        return [one for pattern, one in way.get("patternProperties", {}).items() if _fits(name, pattern)]
    except NotUnderstood as why:
        raise Beyond(f"a pattern in its patternProperties is not understood: {why}") from why


@lru_cache(256)
def _fits(name: str, pattern: str) -> bool:
    return takes(automaton_of(pattern, Looks(20_000)), name)


def _lists(one: Way, other: Way) -> Way:
    if not _LIST & one.keys() or not _LIST & other.keys():
        return {}
    count = max(len(way.get("prefixItems", ())) for way in (one, other))

    def at_place(place: int) -> Any:
        fronts = [(way.get("prefixItems", ()), way.get("items")) for way in (one, other)]
        parts = [front[place] if place < len(front) else rest for front, rest in fronts]
        return _all([part for part in parts if part is not None])

    rest = [way["items"] for way in (one, other) if "items" in way]
    front: Way = {"prefixItems": [at_place(place) for place in range(count)]} if count else {}
    return {**front, **({"items": _all(rest)} if rest else {})}


def _all(parts: list[Any]) -> Any:
    """A schema of all these."""
    some = [part for part in parts if part is not True]
    if any(part is False for part in some):
        return False
    if len(some) > 1:
        some = [*{json.dumps(part, sort_keys=True): part for part in some}.values()]
    return True if not some else some[0] if len(some) == 1 else {"allOf": some}


def _kinds_of_both(one: list[str], other: list[str]) -> list[str]:
    def allows(kinds: list[str], kind: str) -> bool:
        return kind in kinds or (kind == "integer" and "number" in kinds)

    found = [kind for kind in TYPES if allows(one, kind) and allows(other, kind)]
    return [kind for kind in found if kind != "integer" or "number" not in found]


def step_of_both(one: float, other: float) -> float:
    """The least that is a multiple of both."""
    a, b = Fraction(str(one)), Fraction(str(other))
    step = Fraction(
        lcm(a.numerator * b.denominator, b.numerator * a.denominator), a.denominator * b.denominator
    )
    return int(step) if step.denominator == 1 else float(step)


def _listed(schema: Schema, key: str) -> list[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else []


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
