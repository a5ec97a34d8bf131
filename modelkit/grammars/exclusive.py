"""Choices of which exactly one may fit (oneOf), and objects that have so many of their properties, as cases.

Where no value fits two ways of a oneOf, it is an anyOf. Where one may, each way is written without what fits
another one: "a, and no b" or "b, and no a". Of an object whose properties are all named, at least two of
three are "the first two, or the first and the third, or ...". The objects are closed already
(`schema.as_meant`), so what is left open here is meant to be. What has no such cases stays as it was written.
"""

from collections.abc import Sequence
from itertools import combinations
from math import comb
from typing import Any

from modelkit.grammars.cases import MOST_CASES, Case, Work, both, said_of
from modelkit.grammars.opposites import cases_of, none_of
from modelkit.grammars.places import Schema, places_in
from modelkit.grammars.unlisted import alternatives, spell
from modelkit.grammars.ways import Beyond

_MOST_WAYS = 64
_MOST_COUNTED = 300
_MOST_NAMED = 2_400  # in all ways together: each takes four of the parser's items
_COUNTS = ("minProperties", "maxProperties")


def with_exclusive(root: Schema) -> bool:
    """Write them out, in place. Was there any?"""
    found, work = False, Work()
    for _, schema in reversed([*places_in(root)]):
        try:
            found |= "oneOf" in schema and _Choice(schema, root, work).write_out()
            found |= bool(schema.keys() & {*_COUNTS}) and _count(schema, work)
        except (Beyond, TypeError, AttributeError, LookupError):  # as it is: the library says what is wrong
            continue
    if found:
        spell(root)
    return found


class _Choice:
    """A oneOf of a schema. work: what is left of it for all of them."""

    def __init__(self, schema: Schema, root: Schema, work: Work) -> None:
        self._schema, self._root, self._work = schema, root, work
        self._own = said_of(schema)
        listed = schema["oneOf"]
        self._ways = [self._told_apart(way) for way in listed] if isinstance(listed, list) else []
        said = [] if self._own is None else [self._own]
        self._every = [both(said, self._of(way), work) for way in self._ways]

    def write_out(self) -> bool:
        if not 1 <= len(self._ways) <= _MOST_WAYS:
            return False
        made = [self._alone(place) for place in range(len(self._ways))]
        del self._schema["oneOf"]
        _add(self._schema, made)
        return True

    def _of(self, way: Any) -> list[Case]:
        return cases_of(way, self._root, self._work)

    def _told_apart(self, way: Any) -> Any:
        """With the property that tells the ways apart, which OpenAPI asks for: pydantic writes one that has a
        default as if it might be left out, and does not read such an object.
        """
        said = self._schema.get("discriminator")
        name = said.get("propertyName") if isinstance(said, dict) else None
        if not isinstance(name, str):
            return way
        cases = [case.way for case in self._of(way)]
        named = all(name in one.get("properties", ()) for one in cases)
        needed = all(name in one.get("required", ()) for one in cases)
        return {"allOf": [way, {"required": [name]}]} if named and not needed else way

    def _alone(self, place: int) -> Any:
        """One way, without what fits others."""
        own = self._every[place]
        others = [number for number, cases in enumerate(self._every) if both(own, cases, self._work)]
        if others == [place]:
            return self._ways[place]
        cases, beside = self._of(self._ways[place]), own[0].way if len(own) == 1 else {}
        for other in others:
            if other != place:
                none = none_of(self._ways[other], self._root, self._work, beside, _names(own))
                cases = both(cases, none, self._work)
        made = alternatives(cases, {})
        return made[0] if len(made) == 1 else {"anyOf": made} if made else False


def _names(cases: Sequence[Case]) -> set[str] | None:
    """Of all properties that there may be; None for any."""
    names = set[str]()
    for case in cases:
        if (
            case.way.get("additionalProperties") is not False
            or "patternProperties" in case.way
            or case.others
        ):
            return None
        names.update(name for name, inner in case.way.get("properties", {}).items() if inner is not False)
    return names


def _count(schema: Schema, work: Work) -> bool:
    """Of an object all of whose properties are named."""
    own = said_of(schema)
    said = {} if own is None else own.way
    if said.get("additionalProperties") is not False or "patternProperties" in said:
        return False
    named = [name for name, inner in said.get("properties", {}).items() if inner is not False]
    must = [name for name in named if name in said.get("required", ())]
    free = [name for name in named if name not in must]
    least = max(schema.get("minProperties", 0) - len(must), 0)
    surplus = max(len(named) - schema.get("maxProperties", len(named)), 0)
    if least > len(free) or surplus > len(free):
        return False
    most = _MOST_COUNTED if 0 in (least, surplus) else MOST_CASES
    ways = comb(len(free), least) * comb(len(free), surplus)
    if ways > most or ways * len(named) > _MOST_NAMED:
        return False
    there = [Case({"required": [*chosen]}) for chosen in combinations(free, int(least))]
    gone = [Case({"properties": dict.fromkeys(chosen, False)}) for chosen in combinations(free, int(surplus))]
    made = alternatives(both(there, gone, work) if least and surplus else gone if surplus else there, {})
    for key in _COUNTS:
        schema.pop(key, None)
    if made != [{}]:
        _add(schema, made)
    return True


def _add(schema: Schema, ways: list[Any]) -> None:
    """One of these must hold, too."""
    if "anyOf" in schema:
        schema["allOf"] = [*schema.get("allOf", ()), {"anyOf": ways}]
    else:
        schema["anyOf"] = ways
