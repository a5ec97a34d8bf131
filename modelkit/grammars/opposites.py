"""The cases of a schema, and those of what does not fit it.

What is outside of most keywords is inside of another: a shorter text than minLength is one of maxLength, what
is not of some types is of the others, a property that must not be so is there and is otherwise. What is
outside of a pattern, a format or a multiple has no such schema, and is said by name.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from modelkit.grammars.cases import (
    KINDS,
    MOST_CASES,
    SAYS_NOTHING,
    Case,
    Work,
    both,
    lists_only,
    said_of,
    schema_of,
)
from modelkit.grammars.unlisted import no_other
from modelkit.grammars.ways import SAID, Beyond, Schema, Way
from modelkit.schema import target

_PARTS = ("allOf", "anyOf")
_OF_OTHERS = frozenset(
    {"unevaluatedProperties", "unevaluatedItems", "minContains", "maxContains", "then", "else"}
)
"""What depends on other keywords beside it."""
_DEEPEST = 16
_SIZES = {
    "minLength": ("string", "maxLength", -1),
    "maxLength": ("string", "minLength", 1),
    "minItems": ("array", "maxItems", -1),
    "maxItems": ("array", "minItems", 1),
    "minProperties": ("object", "maxProperties", -1),
    "maxProperties": ("object", "minProperties", 1),
}
"""By keyword: the type it is of, the keyword of what is outside of it, and how far that lies."""
_BOUNDS = {
    "minimum": "exclusiveMaximum",
    "maximum": "exclusiveMinimum",
    "exclusiveMinimum": "maximum",
    "exclusiveMaximum": "minimum",
}


def cases_of(schema: Any, root: Schema, work: Work) -> list[Case]:
    """Those of a schema. root: where references lead to."""
    return _Reading(root, work).cases(schema, 0)


def none_of(
    schema: Any, root: Schema, work: Work, beside: Way | None = None, names: Collection[str] | None = None
) -> list[Case]:
    """The cases in which a value does not fit the schema. beside: what else is known of it; names: those of
    all properties that it may have, None for any. Raises Beyond with what in it has no such cases.
    """
    return _Reading(root, work, beside or {}, names).none(schema, 0, _kinds_of(beside))


def of_object(**said: Any) -> Case:
    return Case({"type": ["object"], **said})


def _kinds_of(schema: Any) -> Sequence[str]:
    said = schema.get("type", KINDS) if isinstance(schema, Mapping) else KINDS
    return [said] if isinstance(said, str) else said


class _Reading:
    def __init__(
        self, root: Schema, work: Work, beside: Way | None = None, names: Collection[str] | None = None
    ) -> None:
        self._root, self._work, self._names = root, work, names
        self._named = (beside or {}).get("properties", {})

    def cases(self, schema: Any, depth: int) -> list[Case]:
        if not isinstance(schema, Mapping):
            return [] if schema is False else [Case({})]
        alone = [Case({}, (), (schema,))]
        if [*schema] == ["$ref"] and depth < _DEEPEST:
            found = target(schema["$ref"], self._root)
            cases = alone if found is None else self.cases(found, depth + 1)
            return alone if any(other is found for case in cases for other in case.others) else cases
        taken = {*SAID, *_PARTS, *SAYS_NOTHING, *(("not",) if lists_only(schema) else ())}
        others = {key: value for key, value in schema.items() if key not in taken}
        if depth >= _DEEPEST or others.keys() & _OF_OTHERS:
            return alone
        said = said_of(schema)
        found = [] if said is None else [replace(said, others=(others,)) if others else said]
        for one in schema.get("allOf", ()):
            found = both(found, self.cases(one, depth + 1), self._work)
        if "anyOf" in schema:
            found = both(
                found, [case for one in schema["anyOf"] for case in self.cases(one, depth + 1)], self._work
            )
        return found

    def none(self, schema: Any, depth: int, kinds: Sequence[str]) -> list[Case]:
        if not isinstance(schema, Mapping):
            return [Case({})] if schema is False else []
        if depth > _DEEPEST:
            raise Beyond("it goes too deep")
        found = list[Case]()
        for key, value in schema.items():
            if key not in SAYS_NOTHING:
                found += self._none_by(key, value, schema, depth + 1, kinds)
        if len(found) > MOST_CASES:
            raise Beyond(f"its conditions make more than {MOST_CASES} cases")
        return found

    def _none_by(self, key: str, value: Any, schema: Schema, depth: int, kinds: Sequence[str]) -> list[Case]:
        match key:
            case "type":
                return _of_other_types([value] if isinstance(value, str) else value, kinds)
            case "const":
                return [Case({}, (value,))]
            case "enum" if isinstance(value, list) and "const" not in schema:
                return [Case({}, tuple(value))]
            case "required" if isinstance(value, list):
                return [of_object(properties={name: False}) for name in value]
            case "properties" if isinstance(value, Mapping):
                return [*self._none_of_properties(value, depth)]
            case "additionalProperties":
                return self._none_of_others(value, schema)
            case "allOf" if isinstance(value, list):
                return [case for one in value for case in self.none(one, depth, kinds)]
            case "anyOf" if isinstance(value, list):
                found = [Case({})]
                for one in value:
                    found = both(found, self.none(one, depth, kinds), self._work)
                return found
            case "oneOf" if isinstance(value, list):
                return self._none_or_several(value, depth, kinds)
            case "not":
                return self.cases(value, depth)
            case "$ref" if (found := target(value, self._root)) is not None:
                return self.none(found, depth, kinds)
            case "$defs" | "definitions" | "$schema" | "$id":
                return []
            case _:
                return _outside(key, value)

    def _none_or_several(self, ways: Sequence[Any], depth: int, kinds: Sequence[str]) -> list[Case]:
        found = self.none({"anyOf": ways}, depth, kinds)
        for one, other in combinations(ways, 2):
            found = [*found, *both(self.cases(one, depth), self.cases(other, depth), self._work)]
        return found

    def _none_of_properties(self, named: Mapping[str, Any], depth: int) -> Iterator[Case]:
        for name, inner in named.items():
            if self._names is not None and name not in self._names:
                continue
            for case in self.none(inner, depth, _kinds_of(self._named.get(name))):
                yield of_object(required=[name], properties={name: schema_of([case])})

    def _none_of_others(self, value: Any, schema: Schema) -> list[Case]:
        if value is True or value == {}:
            return []
        if value is not False or self._names is None or "patternProperties" in schema:
            raise no_other("`additionalProperties`")
        known = schema.get("properties", {})
        return [of_object(required=[name]) for name in self._names if name not in known]


def _of_other_types(said: Any, kinds: Sequence[str]) -> list[Case]:
    if not isinstance(said, list):
        raise no_other("its `type`")
    # Numbers that are not whole have no schema: of other types than a whole number they are left out.
    half = "integer" in said and "number" in kinds and "number" not in said
    taken = {*said, *(("number", "integer") if half or "number" in said else ())}
    left = [kind for kind in kinds if kind not in taken]
    if half and not left:
        raise no_other("whole numbers, among numbers,")
    return [Case({"type": left})] if left else []


def _outside(key: str, value: Any) -> list[Case]:
    """What does not keep a bound."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise no_other(f"`{key}`")
    if key in _SIZES:
        kind, outer, away = _SIZES[key]
        return [Case({"type": [kind], outer: int(value) + away})] if int(value) + away >= 0 else []
    if key in _BOUNDS:
        return [Case({"type": ["number"], _BOUNDS[key]: value})]
    raise no_other(f"`{key}`")
