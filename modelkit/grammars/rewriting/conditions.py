"""Conditions of a JSON schema (if, then, else, not, dependentRequired, dependentSchemas, contains) as cases.

    {"properties": {"kind": {"enum": ["a", "b"]}, "x": {}}, "required": ["kind"],
     "if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["x"]}}
        = anyOf: kind "a" with x  |  kind "b" with or without x

A grammar has choices and no conditions. Each condition is a choice of cases, all conditions of one value
together are those that do not contradict each other, and each case has all that the schema says beside them,
so that objects can be closed one by one (`schema.as_meant`). Those that stand alone in an allOf are the
schema's own. What has no such cases stays as it was written, and is refused for it by name and place.

References lead to the root and to definitions (`definitions`): what is inside a case has no pointer any more.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from math import comb
from typing import Any

from modelkit.grammars.rewriting.cases import (
    SAYS_NOTHING,
    TYPES,
    Case,
    Work,
    case_of,
    conjunction,
    names_in,
    schema_of,
)
from modelkit.grammars.rewriting.definitions import is_to_definition
from modelkit.grammars.rewriting.excluded_values import NOTHING, schemas_of_cases, write_exclusions
from modelkit.grammars.rewriting.negation import LONGEST, MOST_PLACES, cases_of, none_of
from modelkit.grammars.schemas.traversal import Schema, as_of_2020, pointer_escaped, subschemas
from modelkit.grammars.schemas.variant import VARIANT_KEYWORDS, NotExpressible, Variant
from runtime.quoting import quoted
from runtime.records import dataclass

_CONDITIONS = frozenset(
    {"if", "then", "else", "not", "dependentRequired", "dependentSchemas", "dependencies"}
)
_COUNTED = frozenset({"contains", "minContains", "maxContains"})
_KEYS = _CONDITIONS | _COUNTED
_AROUND = SAYS_NOTHING | {"$schema", "$id", "$anchor", "$defs", "definitions"}

_MOST_CONTAINED = 64
_MOST_CHOSEN = 64  # ways for them to stand

_Choice = tuple[str, Callable[[], list[Case]]]


@dataclass(frozen=True, slots=True)
class _Holder:
    """Of conditions."""

    at: str
    """A JSON pointer."""
    schema: Schema


def without_conditions(root: Schema) -> dict[str, str]:
    """Write out conditions, in place. Returned are those that stay: why, by their JSON pointers."""
    places = [*subschemas(root)]
    if not any(schema.keys() & _KEYS for _, schema in places):
        return {}
    where = {id(schema): at for at, schema in places}
    as_of_2020(root, places)  # a way has the items in front of a list so
    lifted = {id(one) for _, schema in places for one in _alone(schema)}
    astray = next((led for _, schema in places if not is_to_definition(led := schema.get("$ref", "#"))), None)
    writing = _Writing(root, astray)
    for at, schema in reversed(places):
        if id(schema) not in lifted:
            writing.write_out(
                schema, [_Holder(at, schema), *(_Holder(where[id(one)], one) for one in _alone(schema))]
            )
    write_exclusions(root)
    # What stood within a condition that was written out may be there no more.
    left = {
        (key, id(value)) for _, schema in subschemas(root) for key, value in schema.items() if key in _KEYS
    }
    return {at: why for at, (key, value, why) in writing.refused.items() if (key, id(value)) in left}


def _alone(schema: Schema) -> list[Schema]:
    """Members of its allOf that are nothing but conditions."""
    every = schema.get("allOf")
    return [
        one
        for one in (every if isinstance(every, list) else ())
        if isinstance(one, dict) and one.keys() & _CONDITIONS and not one.keys() - _CONDITIONS - SAYS_NOTHING
    ]


def _names(schema: Schema) -> bool:
    """Has it properties, and says nothing of others?"""
    return "properties" in schema and "additionalProperties" not in schema


class _Writing:
    """Changes schemas within `root`, in place. astray: a reference that would lead elsewhere."""

    def __init__(self, root: Schema, astray: Any) -> None:
        self.refused: dict[str, tuple[str, Any, str]] = {}
        """By JSON pointers: a keyword, what it says, and why that stays."""
        self._root, self._astray, self._work = root, astray, Work()

    def write_out(self, schema: Schema, holders: list[_Holder]) -> None:
        if not any(holder.schema.keys() & _KEYS for holder in holders):
            return
        self._work.start()
        last = next((holder, key) for holder in holders for key in holder.schema if key in _KEYS)
        try:
            own = case_of({key: value for key, value in schema.items() if key != "not"})
            cases, said = ([], {}) if own is None else ([own], own.variant)
            names = names_in(cases)
            for holder in holders:
                for key, choice in self._choices(holder.schema, said, names):
                    last = holder, key
                    if self._astray is not None:
                        led = self._astray
                        raise NotExpressible(f"{quoted(led)} leads to nothing in the schema, or to too much")
                    cases = conjunction(cases, choice(), self._work)
            self._replace(schema, holders, cases)
        except NotExpressible as why:
            holder, key = last
            word = key.partition("/")[0]
            said = holder.schema[word], f"`{word}` cannot be enforced: {why}"
            self.refused[f"{holder.at}/{key}"] = word, *said
        except (TypeError, AttributeError, LookupError):  # no schema: the library says what is wrong
            return

    def _replace(self, schema: Schema, holders: list[_Holder], cases: list[Case]) -> None:
        lifted = [holder.schema for holder in holders[1:]]
        around = {key: value for key, value in schema.items() if key in _AROUND}
        letter = {key: value for key, value in schema.items() if key not in _AROUND}
        beside = {key: value for key, value in letter.items() if key not in VARIANT_KEYWORDS | _KEYS}
        if lifted:
            kept = [one for one in schema["allOf"] if not any(one is other for other in lifted)]
            beside = {key: value for key, value in beside.items() if key != "allOf"}
            beside |= {"allOf": kept} if kept else {}
        made = schemas_of_cases(cases, beside)
        if not schema.keys() & {"properties", "additionalProperties"}:  # an object of no names is an open one
            made = [{**one, "additionalProperties": True} if _names(one) else one for one in made]
        self._work.write(made)
        schema.clear()
        schema |= around
        if len(made) == 1:
            schema |= made[0]
        else:
            schema |= {"anyOf": made} if made else NOTHING
        self._work.note(schema, letter, holders[0].at)

    def _choices(self, schema: Schema, said: Variant, names: set[str] | None) -> Iterator[_Choice]:
        """Each condition by its keyword, as cases that one of must hold."""
        if "not" in schema:
            yield "not", partial(none_of, schema["not"], self._root, self._work, said, names)
        if "if" in schema and schema.keys() & {"then", "else"}:
            yield "if", partial(self._either, schema, said, names)
        for key in ("dependentRequired", "dependentSchemas", "dependencies"):
            for name, what in schema.get(key, {}).items():
                yield f"{key}/{pointer_escaped(name)}", partial(self._where, name, what)
        if "contains" in schema:
            yield "contains", partial(self._contained, schema, said)

    def _either(self, schema: Schema, said: Variant, names: set[str] | None) -> list[Case]:
        condition = schema["if"]
        held, fails = self._of(condition), none_of(condition, self._root, self._work, said, names)
        then, otherwise = self._of(schema.get("then", True)), self._of(schema.get("else", True))
        return [*conjunction(held, then, self._work), *conjunction(fails, otherwise, self._work)]

    def _of(self, schema: Any) -> list[Case]:
        return cases_of(schema, self._root, self._work)

    def _where(self, name: str, what: Any) -> list[Case]:
        """What there is where a property is."""
        if isinstance(what, list):
            there = [Case({"required": [name, *(one for one in what if one != name)]})]
        else:
            there = conjunction([Case({"required": [name]})], self._of(what), self._work)
        return [Case({"properties": {name: False}}), *there]

    def _contained(self, schema: Schema, said: Variant) -> list[Case]:
        """Items that fit stand in some of the first places; behind them, any may."""
        item, least = schema["contains"], int(schema.get("minContains", 1))
        longest = said.get("maxItems", math.inf)
        most = schema.get("maxContains", longest)
        free = min(longest, MOST_PLACES)
        if most >= longest:
            rest, counts = True, [least] if least else []
        else:
            rest, counts = schema_of(none_of(item, self._root, self._work)), range(least, int(most) + 1)
        if not counts and rest is True:
            return [Case({})]
        if least > _MOST_CONTAINED:
            raise NotExpressible(f"so many items that fit are not counted; at most {_MOST_CONTAINED} are")
        long = len(json.dumps([item, rest]))
        places = max((n for n in range(free + 1) if _written(n, counts[: n + 1]) * long < LONGEST), default=0)
        if longest > places:
            self._work.leave_out(f"an item that fits contains is one of the first {places}")
        if rest is not True and most > places:
            raise NotExpressible(f"items that fit are counted to {places} here")
        others = [Case({"type": [kind for kind in TYPES if kind != "array"]})]
        for count in counts:
            for chosen in combinations(range(max(places, least)), count):
                front = [
                    item if place in chosen else rest for place in range(chosen[-1] + 1 if chosen else 0)
                ]
                found = {"type": ["array"], "prefixItems": front, "minItems": len(front)}
                others.append(Case(found if rest is True else {**found, "items": rest}))
        return others


def _written(places: int, counts: Sequence[int]) -> float:
    """How many items are written for all choices of so many places; infinite for too many choices."""
    choices = sum(comb(places, count) for count in counts)
    return choices * (places + 1) if choices < _MOST_CHOSEN else math.inf
