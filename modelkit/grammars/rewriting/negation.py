"""The cases of a schema, and those of what does not fit it.

What is outside of most keywords is inside of another: a shorter text than minLength is one of maxLength, what
is not of some types is of the others, a property that must not be so is there and is otherwise. Texts that
do not fit a pattern fit another one (`text_sets`). Of a list of which one item must not be so, that is one of
the first MOST_PLACES: no schema says "one of all". Where names may be any, all that are not listed are so
that one must not be, and there is one. What is no multiple lies between two of some that follow each other.
"""

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from modelkit.grammars.patterns.formats import FORMATS
from modelkit.grammars.patterns.syntax import UnsupportedPattern
from modelkit.grammars.patterns.text_sets import pattern_for
from modelkit.grammars.rewriting.cases import (
    MOST_CASES,
    SAYS_NOTHING,
    TYPES,
    Case,
    Work,
    case_of,
    conjunction,
    excludes_values_only,
    item_at,
    of_object,
    schema_of,
)
from modelkit.grammars.rewriting.excluded_values import no_complement
from modelkit.grammars.rewriting.keywords import (
    SIZES,
    TYPE_OF,
    applies_to,
    leaves_fractions,
    of_other_types,
    outside_bound,
)
from modelkit.grammars.schemas.numbers import MOST_BETWEEN, between_multiples
from modelkit.grammars.schemas.traversal import LETTER, NARROWED
from modelkit.grammars.schemas.variant import VARIANT_KEYWORDS, NotExpressible, Schema, Variant, own_variant
from modelkit.json_text import is_number
from modelkit.schema import CLOSED, target
from runtime.quoting import quoted

_OF_OTHERS = frozenset({"unevaluatedProperties", "unevaluatedItems"})
"""What depends on other keywords beside it, however they are written."""
_KEPT = frozenset({LETTER, NARROWED, CLOSED})
"""What is only kept on the way."""
_DEEPEST = 16
_A_LOOK = 20  # of work, at a schema
MOST_PLACES = 16
"""Of a list, where an item that is asked for stands: behind them it may be any, and says nothing more."""
_MOST_NAMES = 3  # of which any may be there
LONGEST = 60_000
"""Characters of what is asked of one list in all these places together, above which fewer are taken."""


def cases_of(schema: Any, root: Schema, work: Work) -> list[Case]:
    """Those of a schema, and of nothing else. root: where references lead to."""
    return _Reading(root, work).cases(schema, 0)


def all_of(schema: Any, root: Schema, work: Work) -> list[Case]:
    """Those of a schema by its letter, in which no object is closed that was not written so; or more."""
    return _Reading(root, work).cases(schema, 0, wide=True)


def none_of(
    schema: Any,
    root: Schema,
    work: Work,
    beside: Variant | None = None,
    names: Collection[str] | None = None,
    *,
    closed: bool = False,
) -> list[Case]:
    """The cases in which a value does not fit the schema. beside: what else is known of it; names: those of
    all properties that it may have, None for any. closed: objects are that are meant to be, not only those
    that are written so. Raises NotExpressible with what in it has no such cases.
    """
    return _Reading(root, work, beside or {}, names, closed=closed).none(schema, 0, _kinds_of(beside))


def _kinds_of(schema: Any) -> Sequence[str]:
    said = schema.get("type", TYPES) if isinstance(schema, Mapping) else TYPES
    return [said] if isinstance(said, str) else said


class _Reading:
    def __init__(
        self,
        root: Schema,
        work: Work,
        beside: Variant | None = None,
        names: Collection[str] | None = None,
        *,
        closed: bool = False,
    ) -> None:
        self._root, self._work, self._names, self._closed = root, work, names, closed
        self._beside: Variant = beside or {}

    def _inside(self, beside: Variant | None = None) -> "_Reading":
        """Of another value."""
        return _Reading(self._root, self._work, beside, closed=self._closed)

    def cases(self, schema: Any, depth: int, *, wide: bool = False) -> list[Case]:
        """wide: rather more than some of them."""
        if not isinstance(schema, Mapping):
            return [] if schema is False else [Case({})]
        self._work.take(_A_LOOK)
        if wide:
            schema = _unclosed(schema.get(LETTER, schema))
        alone = [Case({}, (), (schema,))]
        if [*schema] == ["$ref"] and depth < _DEEPEST:
            found = target(schema["$ref"], self._root)
            cases = alone if found is None else self.cases(found, depth + 1, wide=wide)
            return alone if any(other is found for case in cases for other in case.others) else cases
        self._work.narrowed |= bool(schema.keys() & {LETTER, CLOSED})
        self._work.left_out |= schema.get(NARROWED, {})
        choices = ("anyOf", "oneOf") if wide else ("anyOf",)
        taken = {
            *VARIANT_KEYWORDS,
            "$ref",
            "allOf",
            *choices,
            *SAYS_NOTHING,
            *_KEPT,
            *(("not",) if excludes_values_only(schema) else ()),
        }
        others = {key: value for key, value in schema.items() if key not in taken}
        if depth >= _DEEPEST or others.keys() & _OF_OTHERS:
            return alone
        said = case_of(schema)
        found = [] if said is None else [replace(said, others=(others,)) if others else said]
        every = [*schema.get("allOf", ()), *([{"$ref": schema["$ref"]}] if "$ref" in schema else [])]
        for part in [*([one] for one in every), *(schema[key] for key in choices if key in schema)]:
            inner = [case for one in part for case in self.cases(one, depth + 1, wide=wide)]
            found = conjunction(found, inner, self._work)
        return found

    def none(self, schema: Any, depth: int, kinds: Sequence[str]) -> list[Case]:
        if not isinstance(schema, Mapping):
            return [Case({})] if schema is False else []
        if depth > _DEEPEST:
            raise NotExpressible("it goes too deep")
        self._work.take(_A_LOOK)
        schema = schema.get(LETTER, schema)
        schema = schema if self._closed else _unclosed(schema)
        found = list[Case]()
        for key, value in schema.items():
            if key not in SAYS_NOTHING and key not in _KEPT:
                found += self._none_by(key, value, schema, depth + 1, kinds)
        if len(found) > MOST_CASES:
            raise NotExpressible(f"its conditions make more than {MOST_CASES} cases")
        return found

    def _none_by(self, key: str, value: Any, schema: Schema, depth: int, kinds: Sequence[str]) -> list[Case]:
        if not applies_to(key, kinds):
            return []
        match key:
            case "type":
                said = [value] if isinstance(value, str) else value
                halves, others = leaves_fractions(said, kinds), of_other_types(said, kinds)
                if halves and others:
                    self._work.leave_out("where a value must not be a whole number, no number is taken")
                return self._none_of_multiples(1) if halves and not others else others
            case "const":
                return [Case({}, (value,))]
            case "enum" if isinstance(value, list) and "const" not in schema:
                return [Case({}, tuple(value))]
            case "pattern" if isinstance(value, str):
                return self._none_of_texts(value)
            case "format" if isinstance(value, str):
                return self._none_of_texts(pattern_for(value)) if value in FORMATS else []
            case "allOf" if isinstance(value, list):
                return [case for one in value for case in self.none(one, depth, kinds)]
            case "anyOf" if isinstance(value, list):
                found = [Case({})]
                for one in value:
                    found = conjunction(found, self.none(one, depth, kinds), self._work)
                return found
            case "oneOf" if isinstance(value, list):
                return self._none_or_several(value, depth, kinds)
            case "not":
                return self.cases(value, depth)
            case "if" if schema.keys() & {"then", "else"}:
                return self._none_where(value, schema, depth, kinds)
            case "$ref" if (found := target(value, self._root)) is not None:
                return self.none(found, depth, kinds)
            case "multipleOf" if is_number(value) and value > 0:
                return self._none_of_multiples(value)
            case "prefixItems" | "items" | "additionalItems" | "contains":
                return self._none_of_lists(key, value, schema, depth)
            case _ if TYPE_OF.get(key) == "object" and key not in SIZES:
                return [*self._none_of_objects(key, value, schema, depth)]
            case _:
                return outside_bound(key, value)

    def _none_of_multiples(self, step: float) -> list[Case]:
        between, all_ = between_multiples(step, self._beside)
        if not all_:
            self._work.leave_out(
                f"of numbers that are not a multiple of {step:g}, only those near 0 or a bound are taken "
                f"(between {MOST_BETWEEN} multiples)"
            )
        return [Case({"type": ["number"]}, (), ({"anyOf": between},))] if between else []

    def _none_of_texts(self, pattern: str) -> list[Case]:
        try:
            other = self._work.texts.other_than(pattern, self._beside)
        except UnsupportedPattern as why:
            raise no_complement(f"the pattern {quoted(pattern)}") from why
        if other is None:
            return []
        return [Case({"type": ["string"], **({"pattern": [other]} if other else {})})]

    def _none_where(self, condition: Any, schema: Schema, depth: int, kinds: Sequence[str]) -> list[Case]:
        held = conjunction(
            self.cases(condition, depth), self.none(schema.get("then", True), depth, kinds), self._work
        )
        fails = self.none(schema.get("else", True), depth, kinds)
        return [*held, *(conjunction(self.none(condition, depth, kinds), fails, self._work) if fails else ())]

    def _none_or_several(self, branches: Sequence[Any], depth: int, kinds: Sequence[str]) -> list[Case]:
        found = self.none({"anyOf": branches}, depth, kinds)
        for one, other in combinations(branches, 2):
            found = [*found, *conjunction(self.cases(one, depth), self.cases(other, depth), self._work)]
        return found

    def _none_of_objects(self, key: str, value: Any, schema: Schema, depth: int) -> Iterator[Case]:
        match key:
            case "required":
                yield from (of_object(properties={name: False}) for name in value)
            case "properties":
                yield from self._otherwise(value, depth)
            case "additionalProperties" | "patternProperties" | "propertyNames" if value not in (True, {}):
                names = self._listed(schema) if self._names is None else self._names
                yield from self._otherwise(dict(self._said_of_names(key, value, schema, names, depth)), depth)
                if self._names is None:
                    yield from self._none_of_names(key, value, schema, depth)
            case "dependentRequired" | "dependentSchemas" | "dependencies" if isinstance(value, Mapping):
                for name, what in value.items():
                    needs = {"required": what} if isinstance(what, list) else what
                    there = [of_object(required=[name])]
                    yield from conjunction(there, self.none(needs, depth, ["object"]), self._work)
            case _:
                if value not in (True, {}):
                    raise no_complement(f"`{key}`")

    def _none_of_names(self, key: str, value: Any, schema: Schema, depth: int) -> Iterator[Case]:
        """Of names that may be any: all of them that are not listed are so, and there is one."""
        self._work.leave_out("where one property of any name must not fit, none that is not listed does")
        match key:
            case "propertyNames":
                if names := self._inside().none(value, depth, ["string"]):
                    yield Case(
                        {"type": ["object"], "minProperties": 1}, (), ({"propertyNames": schema_of(names)},)
                    )
            case "patternProperties":
                for pattern, inner in value.items():
                    others = schema_of(self._none_inside(inner, depth))
                    known = [name for name in self._listed(schema) if not self._fits(name, pattern)]
                    yield from _one_more(known, others, {pattern: others}, {"additionalProperties": False})
            case _:
                others = schema_of(self._none_inside(value, depth))
                gone = dict.fromkeys(schema.get("patternProperties", ()), False)
                yield from _one_more(
                    [*schema.get("properties", ())], others, gone, {"additionalProperties": others}
                )

    def _listed(self, schema: Schema) -> list[str]:
        """Names that it has, or what stands beside it."""
        beside = (name for key in ("properties", "required") for name in self._beside.get(key, ()))
        return [*dict.fromkeys((*schema.get("properties", ()), *beside))]

    def _otherwise(self, named: Mapping[str, Any], depth: int) -> Iterator[Case]:
        """A property that is there, and is not so."""
        for name, inner in named.items():
            if self._names is not None and name not in self._names:
                continue
            said = self._beside.get("properties", {}).get(name)
            beside = own_variant(said) if isinstance(said, Mapping) else {}
            for case in self._inside(beside).none(inner, depth, _kinds_of(said)):
                yield of_object(required=[name], properties={name: schema_of([case])})

    def _said_of_names(
        self, key: str, value: Any, schema: Schema, names: Collection[str], depth: int
    ) -> Iterator[tuple[str, Any]]:
        """What a keyword says of properties by their names."""
        named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for name in names:
            match key:
                case "patternProperties":
                    said = [inner for pattern, inner in value.items() if self._fits(name, pattern)]
                case "propertyNames":
                    said = [] if self._names_fit(name, value, depth) else [False]
                case _:
                    free = name not in named and not any(self._fits(name, pattern) for pattern in patterns)
                    said = [value] if free else []
            if said:
                yield name, said[0] if len(said) == 1 else {"allOf": said}

    def _fits(self, text: str, pattern: str) -> bool:
        try:
            return self._work.texts.fits(text, pattern)
        except UnsupportedPattern as why:
            raise no_complement(f"the pattern {quoted(pattern)}") from why

    def _names_fit(self, name: str, schema: Any, depth: int) -> bool:
        text = [Case({"enum": [name]})]
        none = self._inside().none(schema, depth, ["string"])
        return not conjunction(text, none, self._work)

    def _none_inside(self, schema: Any, depth: int) -> list[Case]:
        """Of an item."""
        return self._inside().none(schema, depth, TYPES)

    def _none_of_lists(self, key: str, value: Any, schema: Schema, depth: int) -> list[Case]:
        tuple_ = schema.get("items")  # of drafts up to 2019-09: what others have in prefixItems
        front = tuple_ if isinstance(tuple_, list) else schema.get("prefixItems", ())
        if key == "additionalItems" and front is not tuple_:
            return []
        match "prefixItems" if value is tuple_ and front is tuple_ else key:
            case "contains":
                if schema.get("minContains", 1) != 1 or "maxContains" in schema:
                    raise no_complement("`contains` with a count")
                return [Case({"type": ["array"], "items": schema_of(self._none_inside(value, depth))})]
            case "prefixItems":
                wrong = [(place, self._none_inside(one, depth)) for place, one in enumerate(front)]
            case _:
                others = self._none_inside(value, depth)
                long = len(json.dumps(schema_of(others)))
                self._work.take(long // 100)
                more = min(MOST_PLACES, max(LONGEST // long, 1))
                if others and len(front) + more < self._beside.get("maxItems", math.inf):
                    self._work.leave_out(
                        f"where one item must not fit, it is one of the first {len(front) + more}"
                    )
                wrong = [(len(front) + place, others) for place in range(more)]
        return [item_at(place, schema_of(cases)) for place, cases in wrong if cases]


def _unclosed(schema: Schema) -> Schema:
    if CLOSED not in schema:
        return schema
    return {key: value for key, value in schema.items() if key not in ("additionalProperties", CLOSED)}


def _one_more(names: Sequence[str], said: Any, patterns: Schema, rest: Variant) -> Iterator[Case]:
    """Objects with some of these names, and one more at least. said: of those."""
    if said is False:
        return
    every = [*_some_of(names)] if len(names) <= _MOST_NAMES else [(), tuple(names)]
    for there in every:
        variant: Variant = {"properties": {name: name in there for name in names}} if names else {}
        variant |= {"required": [*there]} if there else {}
        variant |= {"patternProperties": patterns} if patterns else {}
        yield of_object(**variant, **rest, minProperties=len(there) + 1)


def _some_of(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for count in range(len(names) + 1):
        yield from combinations(names, count)
