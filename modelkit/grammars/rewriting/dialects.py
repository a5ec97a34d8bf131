"""Schemas in the words of other dialects than the present standard's: OpenAPI 3.0 and draft 4 leave a bound
out by a flag, in draft 3 a property says of itself that it is required, and the types of tools have names of
Gemini's (`STRING`) and of Python's (`int`).
"""

from modelkit.grammars.schemas.traversal import Schema, subschemas
from modelkit.schema import type_named

_BOUNDS = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))


def without_flags(root: Schema) -> None:
    """What flags say, in the words of the standard, in place."""
    for _, schema in subschemas(root):
        for out, bound in _BOUNDS:
            if isinstance(left_out := schema.get(out), bool):
                del schema[out]
                if left_out and bound in schema:
                    schema[out] = schema.pop(bound)
        _require_by_flags(schema)


def _require_by_flags(schema: Schema) -> None:
    named, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(named, dict) or not isinstance(required, list):
        return
    flagged = {
        name: inner.pop("required")
        for name, inner in named.items()
        if isinstance(inner, dict) and isinstance(inner.get("required"), bool)
    }
    if must := [name for name, needed in flagged.items() if needed and name not in required]:
        schema["required"] = [*required, *must]


def with_types_of_json(root: Schema) -> None:
    """Types by their names in JSON, in place; `any` says nothing."""
    for _, schema in subschemas(root):
        said = schema.get("type")
        if isinstance(said, str) and said.lower() == "any":
            del schema["type"]
        elif isinstance(said, str):
            schema["type"] = type_named(said)
        elif isinstance(said, list):
            schema["type"] = [type_named(one) if isinstance(one, str) else one for one in said]
