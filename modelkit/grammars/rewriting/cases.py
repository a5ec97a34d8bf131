"""What a value may be, case by case: two cases that hold at once are one, or none; and what is no case of a
schema is cases again.

    not {"required": ["a"], "properties": {"b": {"const": 1}}}
        = no "a"  |  a "b" that is not 1  |  no object

A case is a variant (`variants`), with a list of values that it is not, and beside it schemas that are taken
as they are. Of two that contradict each other in a type, a listed value, a bound, or a property that must be
there and must not, nothing is left: that keeps the cases of many conditions few.
"""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from modelkit.grammars.patterns.text_sets import TextSets
from modelkit.grammars.schemas.merging import merged
from modelkit.grammars.schemas.satisfiability import number_between
from modelkit.grammars.schemas.traversal import LETTER, NARROWED
from modelkit.grammars.schemas.variant import VARIANT_KEYWORDS, NotExpressible, Schema, Variant, own_variant
from modelkit.output.reading.validation import fits, same
from runtime.records import dataclass

MOST_CASES = 256
MOST_WRITTEN = 500_000  # characters of all that is written out in one schema
MOST_WORK = 300_000  # for all cases of one schema, about a microsecond each
_FEW = 8
TYPES = ("string", "number", "boolean", "null", "object", "array")
SAYS_NOTHING = frozenset(
    {"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly"}
)


@dataclass(frozen=True, slots=True)
class Case:
    """One of them."""

    variant: Variant
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
        self.texts = TextSets()
        self.narrowed = False
        """Has something been left out that a schema allows?"""
        self.left_out: dict[str, str | None] = {}
        """Sentences on it, where that was meant to be allowed. Each with the JSON pointer of what was meant,
        if that is not what is being written out.
        """

    def start(self) -> None:
        """With another schema."""
        self.narrowed, self.left_out = False, {}

    def leave_out(self, sentence: str) -> None:
        """What is written is less than a schema allows."""
        self.narrowed = True
        self.left_out.setdefault(sentence, None)

    def note(self, schema: dict[str, Any], letter: Schema, at: str) -> None:
        """What has been left out, beside a schema that was written out. letter: the schema as it was; at: its
        JSON pointer.
        """
        if self.narrowed:
            schema.setdefault(LETTER, letter)
        if self.left_out:
            said = {sentence: where or at for sentence, where in self.left_out.items()}
            schema[NARROWED] = schema.get(NARROWED, {}) | said

    def take(self, count: int) -> None:
        """Raises NotExpressible."""
        self._left -= count
        if self._left < 0:
            raise NotExpressible("its conditions are too many to be written as cases")

    def write(self, schema: Any) -> None:
        """Raises NotExpressible where too much was written before it."""
        if self._characters > 0:
            self._characters -= len(json.dumps(schema))
        if self._characters <= 0:
            raise NotExpressible("written out, its conditions are too long")


def conjunction(some: Sequence[Case], more: Sequence[Case], work: Work) -> list[Case]:
    """One of the first and one of the others at once. Raises NotExpressible for more than MOST_CASES."""
    found = list[Case]()
    for one, other in product(some, more):
        work.take(1 + len(one.variant.get("required", ())) // 8)
        if not _apart(one.variant, other.variant):
            work.take(_size(one) + _size(other))
            found += [case] if (case := conjoined(one, other, work.texts)) is not None else []
    if len(found) > MOST_CASES:
        raise NotExpressible(f"its conditions make more than {MOST_CASES} cases")
    return found


def _size(case: Case) -> int:
    return 2 + len(case.variant.get("properties", ())) + len(case.no)


def _apart(one: Variant, other: Variant) -> bool:
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


def conjoined(one: Case, other: Case, texts: TextSets | None = None) -> Case | None:
    """Both; None where they contradict each other. texts: knows patterns, where these are compared."""
    variant = merged(one.variant, other.variant)
    no = (*one.no, *(value for value in other.no if not any(same(value, known) for known in one.no)))
    return None if variant is None else consistent(Case(variant, no, (*one.others, *other.others)), texts)


def consistent(case: Case, texts: TextSets | None = None) -> Case | None:
    """The same without what contradicts itself in it; None where nothing is left."""
    variant, no = dict(case.variant), case.no
    if "properties" in variant:
        variant["properties"] = {name: _simple(inner, texts) for name, inner in variant["properties"].items()}
        if any(variant["properties"].get(name) is False for name in variant.get("required", ())):
            variant["type"] = [kind for kind in variant.get("type", TYPES) if kind != "object"]
    if "enum" in variant:
        others = {key: value for key, value in variant.items() if key != "enum"}
        left = [value for value in variant["enum"] if not any(same(value, known) for known in no)]
        variant["enum"], no = [value for value in left if fits(value, others, {})], ()
        variant["enum"] = texts.among(variant["enum"], variant) if texts else variant["enum"]
    elif texts and len(variant.get("pattern", ())) > 1 and texts.any_of(variant):
        variant["pattern"] = texts.needed(variant["pattern"])
    kinds = [kind for kind in variant.get("type", ()) if not _empty(variant, kind, texts)]
    if variant.get("enum") == [] or ("type" in variant and not kinds):
        return None
    return Case({**variant, "type": kinds} if kinds else variant, no, case.others)


def _empty(variant: Variant, kind: str, texts: TextSets | None) -> bool:
    if kind == "string" and texts and not texts.any_of(variant):
        return True
    if kind in ("number", "integer"):
        return not number_between(variant, whole=kind == "integer")
    sizes = {"string": "Length", "array": "Items", "object": "Properties"}
    size = sizes.get(kind)
    return size is not None and variant.get(f"min{size}", 0) > variant.get(f"max{size}", math.inf)


def _simple(schema: Any, texts: TextSets | None) -> Any:
    """A property's schema with the parts of an allOf as one, as far as they can be."""
    if not isinstance(schema, Mapping) or [*schema] != ["allOf"]:
        return schema
    case: Case | None = Case({})
    for part in schema["allOf"]:
        if part is True:
            continue
        if (
            not isinstance(part, Mapping)
            or part.keys() - VARIANT_KEYWORDS - SAYS_NOTHING - {"not"}
            or not excludes_values_only(part)
        ):
            return schema
        case = case and (said := case_of(part)) and conjoined(case, said, texts)
    return False if case is None else schema_of([case])


def names_in(cases: Sequence[Case]) -> set[str] | None:
    """Of all properties that there may be; None for any."""
    names = set[str]()
    for case in cases:
        if (
            case.variant.get("additionalProperties") is not False
            or "patternProperties" in case.variant
            or case.others
        ):
            return None
        names.update(name for name, inner in case.variant.get("properties", {}).items() if inner is not False)
    return names


def case_of(schema: Schema) -> Case | None:
    """All that a schema says in keywords that a variant has, as a case; None where that is nothing."""
    listed = tuple(schema["not"]["enum"]) if "not" in schema and excludes_values_only(schema) else ()
    return consistent(
        Case(own_variant({key: value for key, value in schema.items() if key in VARIANT_KEYWORDS}), listed)
    )


def excludes_values_only(schema: Schema) -> bool:
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
    said = dict(case.variant)
    if len(said.get("type", ())) == 1:
        said["type"] = said["type"][0]
    every: list[Any] = [{key: one} for key in ("pattern", "format") for one in said.pop(key, ())]
    if len(every) == 1:
        said |= every.pop()
    if case.no:
        said["not"] = {"enum": [*case.no]}
    every += case.others
    return {**said, "allOf": every} if every else said
