"""What a value may be, case by case: two cases that hold at once are one, or none; and what is no case of a
schema is cases again.

    not {"required": ["a"], "properties": {"b": {"const": 1}}}
        = no "a"  |  a "b" that is not 1  |  no object

A case is a way (`ways`), with a list of values that it is not, and beside it schemas that are taken as they
are. Of two that contradict each other in a type, a listed value, a bound, or a property that must be there
and must not, nothing is left: that keeps the cases of many conditions few.
"""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from modelkit.grammars.possible import number_between
from modelkit.grammars.texts import Texts
from modelkit.grammars.ways import SAID, Beyond, Schema, Way, merged, plain
from modelkit.output.reading.fitting import fits, same
from runtime.records import dataclass

MOST_CASES = 256
MOST_WRITTEN = 500_000  # characters of all that is written out in one schema
MOST_WORK = 300_000  # for all cases of one schema, about a microsecond each
_FEW = 8
KINDS = ("string", "number", "boolean", "null", "object", "array")
SAYS_NOTHING = frozenset(
    {"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly"}
)


@dataclass(frozen=True, slots=True)
class Case:
    """One of them."""

    way: Way
    no: tuple[Any, ...] = ()
    """Values that it is not."""
    others: tuple[Schema, ...] = ()
    """Schemas of the same value that nothing is known of."""


def of_object(**said: Any) -> Case:
    return Case({"type": ["object"], **said})


def item_at(place: int, schema: Any) -> Case:
    """A list with this item."""
    return Case({"type": ["array"], "prefixItems": [*[True] * place, schema], "minItems": place + 1})


class Work:
    """What is left of it: schemas come from anyone, and cases multiply."""

    def __init__(self) -> None:
        self._left, self._characters = MOST_WORK, MOST_WRITTEN
        self.texts = Texts()
        self.narrowed = False
        """Has something been left out that a schema allows?"""

    def take(self, count: int) -> None:
        """Raises Beyond."""
        self._left -= count
        if self._left < 0:
            raise Beyond("its conditions are too many to be written as cases")

    def write(self, schema: Any) -> None:
        """Raises Beyond where too much was written before it."""
        if self._characters > 0:
            self._characters -= len(json.dumps(schema))
        if self._characters <= 0:
            raise Beyond("written out, its conditions are too long")


def both(some: Sequence[Case], more: Sequence[Case], work: Work) -> list[Case]:
    """One of the first and one of the others at once. Raises Beyond for more than MOST_CASES."""
    found = list[Case]()
    for one, other in product(some, more):
        work.take(1 + len(one.way.get("required", ())) // 8)
        if not _apart(one.way, other.way):
            work.take(_size(one) + _size(other))
            found += [case] if (case := at_once(one, other, work.texts)) is not None else []
    if len(found) > MOST_CASES:
        raise Beyond(f"its conditions make more than {MOST_CASES} cases")
    return found


def _size(case: Case) -> int:
    return 2 + len(case.way.get("properties", ())) + len(case.no)


def _apart(one: Way, other: Way) -> bool:
    """Are they seen to contradict each other at once, by a property that tells objects apart?"""
    if ["object"] not in (one.get("type"), other.get("type")):
        return False
    mine, its = one.get("properties", {}), other.get("properties", {})
    return any(
        bool(listed := _few(mine.get(name)))
        and bool(also := _few(its.get(name)))
        and not any(same(value, known) for value in listed for known in also)
        and name in other.get("required", ())
        for name in one.get("required", ())
    )


def _few(schema: Any) -> list[Any]:
    """The values that a property may have, where they are a few."""
    if not isinstance(schema, Mapping):
        return []
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    return listed if isinstance(listed, list) and len(listed) <= _FEW else []


def at_once(one: Case, other: Case, texts: Texts | None = None) -> Case | None:
    """Both; None where they contradict each other. texts: knows patterns, where these are compared."""
    way = merged(one.way, other.way)
    no = (*one.no, *(value for value in other.no if not any(same(value, known) for known in one.no)))
    return None if way is None else sound(Case(way, no, (*one.others, *other.others)), texts)


def sound(case: Case, texts: Texts | None = None) -> Case | None:
    """The same without what contradicts itself in it; None where nothing is left."""
    way, no = dict(case.way), case.no
    if "properties" in way:
        way["properties"] = {name: _simple(inner, texts) for name, inner in way["properties"].items()}
        if any(way["properties"].get(name) is False for name in way.get("required", ())):
            way["type"] = [kind for kind in way.get("type", KINDS) if kind != "object"]
    if "enum" in way:
        others = {key: value for key, value in way.items() if key != "enum"}
        left = [value for value in way["enum"] if not any(same(value, known) for known in no)]
        way["enum"], no = [value for value in left if fits(value, others, {})], ()
        way["enum"] = texts.among(way["enum"], way) if texts else way["enum"]
    elif texts and len(way.get("pattern", ())) > 1 and texts.any_of(way):
        way["pattern"] = texts.needed(way["pattern"])
    kinds = [kind for kind in way.get("type", ()) if not _empty(way, kind, texts)]
    if way.get("enum") == [] or ("type" in way and not kinds):
        return None
    return Case({**way, "type": kinds} if kinds else way, no, case.others)


def _empty(way: Way, kind: str, texts: Texts | None) -> bool:
    if kind == "string" and texts and not texts.any_of(way):
        return True
    if kind in ("number", "integer"):
        return not number_between(way, whole=kind == "integer")
    sizes = {"string": "Length", "array": "Items", "object": "Properties"}
    size = sizes.get(kind)
    return size is not None and way.get(f"min{size}", 0) > way.get(f"max{size}", math.inf)


def _simple(schema: Any, texts: Texts | None) -> Any:
    """A property's schema with the parts of an allOf as one, as far as they can be."""
    if not isinstance(schema, Mapping) or [*schema] != ["allOf"]:
        return schema
    case: Case | None = Case({})
    for part in schema["allOf"]:
        if part is True:
            continue
        if (
            not isinstance(part, Mapping)
            or part.keys() - SAID - SAYS_NOTHING - {"not"}
            or not lists_only(part)
        ):
            return schema
        case = case and (said := said_of(part)) and at_once(case, said, texts)
    return False if case is None else schema_of([case])


def names_in(cases: Sequence[Case]) -> set[str] | None:
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


def said_of(schema: Schema) -> Case | None:
    """All that a schema says in keywords that a way has, as a case; None where that is nothing."""
    listed = tuple(schema["not"]["enum"]) if "not" in schema and lists_only(schema) else ()
    return sound(Case(plain({key: value for key, value in schema.items() if key in SAID}), listed))


def lists_only(schema: Schema) -> bool:
    """Is its `not`, if it has any, a list of values?"""
    return "not" not in schema or (
        isinstance(schema["not"], Mapping)
        and [*schema["not"]] == ["enum"]
        and isinstance(schema["not"]["enum"], list)
    )


def schema_of(cases: Sequence[Case]) -> Any:
    """The cases as a schema, in which what a value is not is `{"not": {"enum": [..]}}`."""
    found = [written_of(case) for case in cases]
    return False if not found else found[0] if len(found) == 1 else {"anyOf": found}


def written_of(case: Case) -> dict[str, Any]:
    """The same of one."""
    said = dict(case.way)
    if len(said.get("type", ())) == 1:
        said["type"] = said["type"][0]
    every: list[Any] = [{key: one} for key in ("pattern", "format") for one in said.pop(key, ())]
    if len(every) == 1:
        said |= every.pop()
    if case.no:
        said["not"] = {"enum": [*case.no]}
    every += case.others
    return {**said, "allOf": every} if every else said
