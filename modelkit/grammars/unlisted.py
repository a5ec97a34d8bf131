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

from modelkit.grammars.cases import KINDS, Case, lists_only, sound, written_of
from modelkit.grammars.places import Schema, places_in
from modelkit.grammars.ways import SAID, Beyond, Way, merged, plain
from modelkit.output.reading.fitting import same

NOTHING: Schema = {"allOf": [False]}
"""A schema of no value, where there must be one that can be changed."""
_OTHERS = frozenset({"items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems"})
_LONGEST = 20_000  # characters of a pattern


def no_other(what: str) -> Beyond:
    return Beyond(f"what does not fit {what} has no schema of its own")


def alternatives(cases: Sequence[Case], beside: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cases as schemas that can be spelt, each with the same beside it. Raises Beyond."""
    also = beside.get("allOf", ())
    rest = {key: value for key, value in beside.items() if key != "allOf"}
    written = (written_of(replace(case, others=(*also, *case.others))) for case in cases)
    # The library writes properties in the order in which it comes to them: the schema's own come first.
    return [{**one, **rest} for one in written if spelt(one) is not False]


def spelt(schema: Any) -> Any:
    """Without `{"not": {"enum": [..]}}` anywhere in what these cases are made of. Raises Beyond."""
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, Any] = dict(schema)
    for key in ("anyOf", "allOf"):
        if key in found:
            found[key] = [spelt(one) for one in found[key]]
    if isinstance(named := found.get("properties"), Mapping):
        found["properties"] = {name: spelt(inner) for name, inner in named.items()}
    if "not" not in found or not lists_only(found):
        return found
    listed = found.pop("not")["enum"]
    said = found.get("type", [*KINDS])
    kinds = [said] if isinstance(said, str) else said
    ways = [way for kind in kinds for way in _of_kind(kind, listed)]
    merge = [merged(plain({k: v for k, v in found.items() if k in SAID}), way) for way in ways]
    rest = {key: value for key, value in found.items() if key not in SAID and key != "allOf"}
    also = tuple(found.get("allOf", ()))
    made = [
        {**written_of(replace(case, others=also)), **rest}
        for way in merge
        if way is not None and (case := sound(Case(way))) is not None
    ]
    return False if not made else made[0] if len(made) == 1 else {"anyOf": made}


def spell(root: dict[str, Any]) -> None:
    """The same of all schemas in one, in place, as far as there are schemas for it."""
    for _, schema in reversed([*places_in(root)]):
        if "not" in schema and lists_only(schema):
            with suppress(Beyond):
                whole = spelt(schema)
                schema.clear()
                schema |= NOTHING if whole is False else whole
        for key in _OTHERS & schema.keys():
            if schema[key] == NOTHING:  # zod's additionalProperties of {"not": {}}
                schema[key] = False


def _of_kind(kind: str, listed: Sequence[Any]) -> list[Way]:
    """The values of a type that are not listed."""
    match kind:
        case "null":
            return [] if None in listed else [{"type": [kind]}]
        case "boolean":
            left = [one for one in (True, False) if not any(same(one, other) for other in listed)]
            return [{"type": [kind], "enum": left}] if left else []
        case "string":
            texts = sorted({one for one in listed if isinstance(one, str)})
            return [{"type": [kind], **({"pattern": [other_texts(texts)]} if texts else {})}]
        case "number" | "integer":
            return _between(kind, sorted({one for one in listed if _is_number(one)}))
        case _:
            if any(isinstance(one, dict if kind == "object" else list) for one in listed):
                raise no_other(f"listed values of the type {kind}")
            return [{"type": [kind]}]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _between(kind: str, numbers: Sequence[float]) -> list[Way]:
    ends = [-math.inf, *numbers, math.inf]
    found = list[Way]()
    for low, high in pairwise(ends):
        way: Way = {"type": [kind]}
        if low > -math.inf:
            way["exclusiveMinimum"] = low
        if high < math.inf:
            way["exclusiveMaximum"] = high
        found.append(way)
    return found


def other_texts(listed: Sequence[str]) -> str:
    """A pattern of all texts but these, by where a text leaves all of them. Raises Beyond for long lists."""
    follows: dict[str, dict[str, None]] = {"": {}}
    for text in listed:
        for place, char in enumerate(text):
            follows.setdefault(text[:place], {})[char] = None
            follows.setdefault(text[: place + 1], {})
    ways, size = list[str](), 0
    for begun, next_ in follows.items():
        front = "".join(map(_escaped, begun))
        if begun not in listed:
            ways.append(front)
        ways.append(f"{front}[^{''.join(map(_escaped, next_))}][^]*")
        size += len(ways[-1]) + len(front)
        if size > _LONGEST:
            raise no_other("so many listed texts")
    return f"^(?:{'|'.join(ways)})$"


def _escaped(char: str) -> str:
    return char if char.isascii() and char.isalnum() else rf"\u{{{ord(char):x}}}"
