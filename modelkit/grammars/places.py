"""Where the schemas within a schema stand, as JSON pointers."""

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

_NAMED = ("$defs", "definitions", "properties", "patternProperties", "dependentSchemas", "dependencies")
_LISTED = ("prefixItems", "items", "anyOf", "oneOf", "allOf")
_SINGLE = (
    *("items", "additionalItems", "additionalProperties", "contains", "propertyNames"),
    *("unevaluatedItems", "unevaluatedProperties", "if", "then", "else", "not"),
)


def places_in(root: Schema) -> Iterator[tuple[str, Schema]]:
    """All schemas with their pointers, each behind those that it stands in, definitions last."""
    left, apart = [("#", root)], list[tuple[str, Schema]]()
    while left or apart:
        at, schema = left.pop() if left else apart.pop()
        yield at, schema
        for key in _SINGLE:
            if isinstance(value := schema.get(key), dict):
                left.append((f"{at}/{key}", value))
        for key in _LISTED:
            value = schema.get(key)
            for number, one in enumerate(value if isinstance(value, list) else ()):
                if isinstance(one, dict):
                    left.append((f"{at}/{key}/{number}", one))
        for key in _NAMED:
            value = schema.get(key)
            for name, one in value.items() if isinstance(value, dict) else ():
                if isinstance(one, dict):
                    into = apart if key in ("$defs", "definitions") else left
                    into.append((f"{at}/{key}/{escaped(name)}", one))


def escaped(name: str) -> str:
    """As a JSON pointer has a name."""
    return name.replace("~", "~0").replace("/", "~1")
