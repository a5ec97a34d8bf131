"""All values but those that are listed, as schemas: a pattern of other texts, numbers between the listed.

Cases (`cases`) keep `{"not": {"enum": [..]}}` as it is while they are combined, since a value that is listed
beside it says all; what is left of it at the end is written here.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

from modelkit.grammars.rewriting.cases import TYPES, Case, consistent, excludes_values_only, written_of
from modelkit.grammars.schemas.merging import merged
from modelkit.grammars.schemas.traversal import Schema, subschemas
from modelkit.grammars.schemas.variant import VARIANT_KEYWORDS, NotExpressible, Variant, own_variant
from modelkit.json_text import is_number
from modelkit.output.reading.validation import same

NOTHING: Schema = {"allOf": [False]}
"""A schema of no value, where there must be one that can be changed."""
_OTHERS = frozenset({"items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems"})
_LONGEST = 20_000  # characters of a pattern


def no_complement(what: str) -> NotExpressible:
    return NotExpressible(f"what does not fit {what} has no schema of its own")


def schemas_of_cases(cases: Sequence[Case], beside: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cases as schemas that can be spelt, each with the same beside it. Raises NotExpressible."""
    also = beside.get("allOf", ())
    rest = {key: value for key, value in beside.items() if key != "allOf"}
    written = (written_of(replace(case, others=(*also, *case.others))) for case in cases)
    # The library writes properties in the order in which it comes to them: the schema's own come first.
    return [{**one, **rest} for one in written if without_exclusions(one) is not False]


def without_exclusions(schema: Any) -> Any:
    """Without `{"not": {"enum": [..]}}` anywhere in what these cases are made of. Raises NotExpressible."""
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, Any] = dict(schema)
    for key in ("anyOf", "allOf"):
        if key in found:
            found[key] = [without_exclusions(one) for one in found[key]]
    if isinstance(named := found.get("properties"), Mapping):
        found["properties"] = {name: without_exclusions(inner) for name, inner in named.items()}
    if "not" not in found or not excludes_values_only(found):
        return found
    listed = found.pop("not")["enum"]
    said = found.get("type", [*TYPES])
    kinds = [said] if isinstance(said, str) else said
    variants = [variant for kind in kinds for variant in _of_kind(kind, listed)]
    merge = [
        merged(own_variant({k: v for k, v in found.items() if k in VARIANT_KEYWORDS}), variant)
        for variant in variants
    ]
    rest = {key: value for key, value in found.items() if key not in VARIANT_KEYWORDS and key != "allOf"}
    also = tuple(found.get("allOf", ()))
    made = [
        {**written_of(replace(case, others=also)), **rest}
        for variant in merge
        if variant is not None and (case := consistent(Case(variant))) is not None
    ]
    return False if not made else made[0] if len(made) == 1 else {"anyOf": made}


def write_exclusions(root: dict[str, Any]) -> None:
    """The same of all schemas in one, in place, as far as there are schemas for it."""
    for _, schema in reversed([*subschemas(root)]):
        if "not" in schema and excludes_values_only(schema):
            with suppress(NotExpressible):
                whole = without_exclusions(schema)
                schema.clear()
                schema |= NOTHING if whole is False else whole
        for key in _OTHERS & schema.keys():
            if schema[key] == NOTHING:  # zod's additionalProperties of {"not": {}}
                schema[key] = False


def _of_kind(kind: str, listed: Sequence[Any]) -> list[Variant]:
    """The values of a type that are not listed."""
    match kind:
        case "null":
            return [] if None in listed else [{"type": [kind]}]
        case "boolean":
            left = [one for one in (True, False) if not any(same(one, other) for other in listed)]
            return [{"type": [kind], "enum": left}] if left else []
        case "string":
            texts = sorted({one for one in listed if isinstance(one, str)})
            return [{"type": [kind], **({"pattern": [pattern_of_others(texts)]} if texts else {})}]
        case "number" | "integer":
            return _between(kind, sorted({one for one in listed if is_number(one)}))
        case _:
            if any(isinstance(one, dict if kind == "object" else list) for one in listed):
                raise no_complement(f"listed values of the type {kind}")
            return [{"type": [kind]}]


def _between(kind: str, numbers: Sequence[float]) -> list[Variant]:
    ends = [-math.inf, *numbers, math.inf]
    found = list[Variant]()
    for low, high in pairwise(ends):
        variant: Variant = {"type": [kind]}
        if low > -math.inf:
            variant["exclusiveMinimum"] = low
        if high < math.inf:
            variant["exclusiveMaximum"] = high
        found.append(variant)
    return found


def pattern_of_others(listed: Sequence[str]) -> str:
    """A pattern of all texts but these, by where a text leaves all of them. Raises NotExpressible for long
    lists.
    """
    follows: dict[str, dict[str, None]] = {"": {}}
    for text in listed:
        for place, char in enumerate(text):
            follows.setdefault(text[:place], {})[char] = None
            follows.setdefault(text[: place + 1], {})
    variants, size = list[str](), 0
    for begun, next_ in follows.items():
        front = "".join(map(_escaped, begun))
        if begun not in listed:
            variants.append(front)
        variants.append(f"{front}[^{''.join(map(_escaped, next_))}][^]*")
        size += len(variants[-1]) + len(front)
        if size > _LONGEST:
            raise no_complement("so many listed texts")
    return f"^(?:{'|'.join(variants)})$"


def _escaped(char: str) -> str:
    return char if char.isascii() and char.isalnum() else rf"\u{{{ord(char):x}}}"
