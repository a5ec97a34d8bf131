"""Where the schemas within a schema stand, as JSON pointers."""

from collections.abc import Iterator, Sequence
from typing import Any

Schema = dict[str, Any]

LETTER = "\0letter"
"""Beside cases that leave something out which a schema allows: the schema itself. Of that is asked what does
not fit.
"""
NARROWED = "\0narrowed"
"""Beside it: sentences on what is left out, each with the JSON pointer of what was meant."""
_BEFORE_2020 = ("draft-0", "2019-09")
_DEFINITIONS = ("$defs", "definitions")
_NAMED = (*_DEFINITIONS, "properties", "patternProperties", "dependentSchemas", "dependencies")
_LISTED = ("prefixItems", "items", "anyOf", "oneOf", "allOf")
_SINGLE = (
    *("items", "additionalItems", "additionalProperties", "contains", "propertyNames"),
    *("unevaluatedItems", "unevaluatedProperties", "if", "then", "else", "not"),
)


def subschemas(root: Schema) -> Iterator[tuple[str, Schema]]:
    """All schemas with their pointers, each behind those that it stands in, definitions last."""
    left, apart = [("#", root)], list[tuple[str, Schema]]()
    while left or apart:
        at, schema = left.pop() if left else apart.pop()
        yield at, schema
        within = [*children(at, schema)]
        left += [one for one, defines in reversed(within) if not defines]
        apart += [one for one, defines in reversed(within) if defines]


def as_of_2020(root: Schema, places: Sequence[tuple[str, Schema]]) -> bool:
    """With items in front of a list as later drafts have them, in place, and without the name of another
    draft, which the library goes by. places: all in it. Was it one of before?
    """
    named = str(root.pop("$schema", ""))
    for _, schema in places:
        if isinstance(schema.get("items"), list):
            schema["prefixItems"] = schema.pop("items")
            if "additionalItems" in schema:
                schema["items"] = schema["additionalItems"]
        schema.pop("additionalItems", None)  # beside anything else it says nothing
    return any(draft in named for draft in _BEFORE_2020)


def children(at: str, schema: Schema) -> Iterator[tuple[tuple[str, Schema], bool]]:
    """Schemas within one, as they are written, and whether they are definitions."""
    for key, value in schema.items():
        if key in _SINGLE and isinstance(value, dict):
            yield (f"{at}/{key}", value), False
        elif key in _LISTED and isinstance(value, list):
            for number, one in enumerate(value):
                if isinstance(one, dict):
                    yield (f"{at}/{key}/{number}", one), False
        elif key in _NAMED and isinstance(value, dict):
            for name, one in value.items():
                if isinstance(one, dict):
                    yield (f"{at}/{key}/{pointer_escaped(name)}", one), key in _DEFINITIONS


def pointer_escaped(name: str) -> str:
    """As a JSON pointer has a name."""
    return name.replace("~", "~0").replace("/", "~1")
