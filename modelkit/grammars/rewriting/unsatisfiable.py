"""Definitions of which no value is, left out where something refers to them.

    {"properties": {"a": {"$ref": "#/$defs/never"}, "b": {}}, "$defs": {"never": {"not": {}}}}

What no value fits is not written where it may be left out, and is not a choice of several. The library knows
that of a schema in its place, and refuses the whole where the same is referred to. So references to what is
impossible become schemas of nothing. Which definitions these are is found from the leaves up; one that only
requires itself has no end instead, and is refused with its circle (`infinite_values`).
"""

import json
from collections.abc import Mapping
from typing import Any

from modelkit.grammars.rewriting.cases import Case, case_of, conjoined
from modelkit.grammars.rewriting.excluded_values import NOTHING
from modelkit.grammars.schemas.traversal import Schema, subschemas
from modelkit.grammars.schemas.variant import VARIANT_KEYWORDS
from modelkit.schema import target

_DEEPEST = 4
_MOST_ROUNDS = 6


def without_unsatisfiable(text: str) -> str:
    """A text that is not a JSON object comes back as it is."""
    root = json.loads(text)
    if not isinstance(root, dict):
        return text
    places = [schema for _, schema in subschemas(root) if isinstance(schema.get("$ref"), str)]
    looking = _Looking(root, {schema["$ref"] for schema in places})
    if not looking.nothing:
        return text
    for schema in places:
        if schema["$ref"] in looking.nothing:
            around = {key: value for key, value in schema.items() if key in ("$defs", "definitions")}
            schema.clear()
            schema |= NOTHING | around
    return json.dumps(root)


class _Looking:
    """nothing: the references to what no value fits."""

    def __init__(self, root: Schema, references: set[str]) -> None:
        self.nothing: set[str] = set()
        targets = {one: found for one in sorted(references) if (found := target(one, root)) is not None}
        for _ in range(_MOST_ROUNDS):  # each finds what refers to what was found before
            before = len(self.nothing)
            for one, schema in targets.items():
                if one not in self.nothing and self._of(schema, 0):
                    self.nothing.add(one)
            if len(self.nothing) == before:
                break

    def _of(self, schema: Any, depth: int) -> bool:
        """Is there no value of it, as far as that is seen at once?"""
        if not isinstance(schema, Mapping):
            return schema is False
        if depth > _DEEPEST:
            return False
        try:
            return schema.get("$ref") in self.nothing or self._by_parts(schema, depth + 1)
        except (TypeError, AttributeError, LookupError):  # no schema: the library says what is wrong
            return False

    def _by_parts(self, schema: Mapping[str, Any], depth: int) -> bool:
        every = schema.get("allOf", ())
        if any(self._of(one, depth) for one in every):
            return True
        for key in ("anyOf", "oneOf"):
            if key in schema and all(self._of(one, depth) for one in schema[key]):
                return True
        case: Case | None = Case({})
        for part in (schema, *every):
            said = (
                {key: value for key, value in part.items() if key in VARIANT_KEYWORDS}
                if isinstance(part, Mapping)
                else {}
            )
            case = case and (its := case_of(said)) and conjoined(case, its)
        return case is None or self._by_members(case.variant, depth)

    def _by_members(self, variant: Mapping[str, Any], depth: int) -> bool:
        match variant.get("type"):
            case ["object"]:
                named = variant.get("properties", {})
                return any(self._of(named.get(name, True), depth) for name in variant.get("required", ()))
            case ["array"]:
                front, least = variant.get("prefixItems", ()), variant.get("minItems", 0)
                needed = [*front[:least], *([variant.get("items", True)] if least > len(front) else [])]
                return any(self._of(one, depth) for one in needed)
            case _:
                return False
