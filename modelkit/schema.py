"""JSON schemas as people mean them: an object whose properties are named has these and no others.

To the letter, a schema that lists `properties` and says nothing of `additionalProperties` allows any others
too, and a model that is free to invent properties goes on inventing them until it is cut off. llama.cpp,
Ollama and OpenAI's strict mode take such a schema as closed, and so does this; who wants an open one says
`additionalProperties: true`. So it is where patterns describe the names and nothing else is said of any:
pydantic writes `dict[Annotated[str, Field(pattern=..)], int]` so, and reads no other names.

`unevaluatedProperties` and `unevaluatedItems` are `additionalProperties` and `items` where nothing but the
schema itself describes the value. Where other parts of it do, they are written out before
(`modelkit.grammars.rewriting.unevaluated`).

OpenAPI's `nullable` is the type null beside the one that is named, as its version 3.0.3 has it.

An object stays as it was written where closing it could contradict what else is said of the same value: by
allOf or by $ref beside its own properties, by patternProperties beside them, by a required name that is not
listed.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

_CHILDREN = ("items", "additionalItems", "prefixItems", "contains", "additionalProperties")
_NAMED_CHILDREN = ("properties", "patternProperties")
_SAYS = (
    *("additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames"),
    *("dependencies", "dependentRequired", "dependentSchemas"),
)
_CONDITIONS = ("if", "then", "else", "not", "dependentSchemas", "$dynamicRef", "$recursiveRef")
_PARTS = ("allOf", "anyOf", "oneOf", "$ref", *_CONDITIONS)
_UNEVALUATED = {
    "unevaluatedProperties": ("additionalProperties", _PARTS),
    "unevaluatedItems": ("items", (*_PARTS, "contains")),
}
"""(the same where a schema has none of those others, which may look at some)."""
_NULLABLE = "nullable"
_VALUES = frozenset({"const", "enum", "default", "examples", "example"})
_NAMING = frozenset({*_NAMED_CHILDREN, "$defs", "definitions"})

_TYPES = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
_OTHER_NAMES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "double": "number",
    "bool": "boolean",
    "dict": "object",
    "list": "array",
    "tuple": "array",
    "none": "null",
}

_Schema = dict[str, Any]


CLOSED = "\0closed"
"""Beside what is closed here, where that is asked for."""


def as_meant(text: str, *, marked: bool = False) -> str:
    """The schema with its objects closed, and null as a type. A text that is no JSON object, or none that can
    be written again, comes back as it is: whoever compiles it says what is wrong. marked: with CLOSED.
    """
    try:
        root = json.loads(text)
        everywhere = [*_schemas(root)] if any(word in text for word in (_NULLABLE, *_UNEVALUATED)) else []
        renamed = [_without_unevaluated(schema) for schema in everywhere]
        nullable = [
            one for one in everywhere if one.get(_NULLABLE) is True and isinstance(one.get("type"), str)
        ]
        closing = _closing(root) if isinstance(root, dict) else []
        for schema in closing:
            schema |= {"additionalProperties": False, **({CLOSED: True} if marked else {})}
        for schema in nullable:
            schema["type"] = named_types(schema)
        return json.dumps(root, allow_nan=False) if closing or nullable or any(renamed) else text
    except (ValueError, RecursionError):
        return text


def named_types(schema: Mapping[str, Any]) -> list[str]:
    """The types that a schema names, as it is meant; none where it names none."""
    said = schema.get("type")
    if isinstance(said, str):
        return [type_named(said), "null"] if schema.get(_NULLABLE) is True else [type_named(said)]
    return [type_named(one) for one in said if isinstance(one, str)] if isinstance(said, list) else []


def type_named(name: str) -> str:
    """JSON's name of a type that Gemini's API (`STRING`) or Python (`int`) names; any other name as it is."""
    low = name.lower()
    return low if low in _TYPES else _OTHER_NAMES.get(low, name)


def _without_unevaluated(schema: _Schema) -> bool:
    """Put what is meant in the place of words for what no part of a schema has looked at, where there is only
    one part. Was there any?
    """
    found = False
    for key, (meant, others) in _UNEVALUATED.items():
        if (
            key in schema
            and not any(one in schema for one in others)
            and not isinstance(schema.get(meant), list)
        ):
            schema.setdefault(meant, schema.pop(key))
            found = True
    return found


def _schemas(root: Any) -> Iterator[_Schema]:
    """All in it."""
    left: list[tuple[Any, bool]] = [(root, False)]
    while left:
        value, named = left.pop()  # named: its keys are names, and their values schemas
        if isinstance(value, dict):
            if not named:
                yield value
            inner = (
                value.items() if named else ((key, one) for key, one in value.items() if key not in _VALUES)
            )
            left += [(one, not named and key in _NAMING) for key, one in inner]
        elif isinstance(value, list):
            left += [(one, False) for one in value]


def _closing(root: _Schema) -> list[_Schema]:
    """The schemas in it that shall be closed: all that are reached, and never as one of several parts of a
    description.
    """
    alone: dict[int, _Schema] = {}
    joined: set[int] = set()
    left: list[tuple[Any, bool]] = [(root, False)]
    seen: set[tuple[int, bool]] = set()
    while left:
        schema, shared = left.pop()
        if not isinstance(schema, dict) or (id(schema), shared) in seen:
            continue
        seen.add((id(schema), shared))
        parts = list(_parts(schema, root))
        shared = shared or len(parts) + any(key in schema for key in _NAMED_CHILDREN) > 1
        alone[id(schema)] = schema
        if shared:
            joined.add(id(schema))
        left += [(member, shared) for part in parts for member in part]
        left += [(child, False) for child in _children(schema)]
    return [schema for key, schema in alone.items() if key not in joined and _open_by_omission(schema)]


def _open_by_omission(schema: _Schema) -> bool:
    properties, required = schema.get("properties"), schema.get("required", [])
    said = [key for key in _SAYS if key in schema]
    if said == ["patternProperties"] and properties is None:
        return bool(schema["patternProperties"]) and required == []
    if not isinstance(properties, dict) or said:
        return False
    least = schema.get("minProperties", 0)
    if not isinstance(least, int) or least > len(properties):
        return False
    return isinstance(required, list) and all(
        isinstance(name, str) and name in properties for name in required
    )


def _parts(schema: _Schema, root: _Schema) -> Iterator[list[Any]]:
    """What else describes the same value, and may name properties: each member of allOf is a part of its own,
    the choices of an anyOf or a oneOf are one.
    """
    groups = [[one] for one in branches(schema, "allOf")]
    groups += [branches(schema, key) for key in ("anyOf", "oneOf")]
    if "$ref" in schema:
        groups.append([target(schema["$ref"], root)])
    groups += [[schema[key]] for key in _CONDITIONS if key in schema]
    for group in groups:
        if any(_may_name(one, root) for one in group):
            yield group


def _may_name(start: Any, root: _Schema) -> bool:
    """May this schema, or what it stands for, name properties? True for a reference that leads elsewhere."""
    left, seen = [start], set[int]()
    while left:
        schema = left.pop()
        if schema is None:
            return True
        if not isinstance(schema, dict) or id(schema) in seen:
            continue
        seen.add(id(schema))
        if "properties" in schema or any(key in schema for key in (*_SAYS, *_CONDITIONS)):
            return True
        left += [one for key in ("allOf", "anyOf", "oneOf") for one in branches(schema, key)]
        if "$ref" in schema:
            left.append(target(schema["$ref"], root))
    return False


def _children(schema: _Schema) -> Iterator[Any]:
    """Schemas of other values: of properties and items."""
    for key in _CHILDREN:
        child = schema.get(key)
        yield from child if isinstance(child, list) else [child]
    for key in _NAMED_CHILDREN:
        named = schema.get(key)
        yield from named.values() if isinstance(named, dict) else []


def target(reference: object, root: Mapping[str, Any]) -> Any:
    """What a reference within this schema points to; None for any other, and where there is nothing."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    found: Any = root
    for part in unquote(reference[1:]).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(key)
        elif isinstance(found, list) and key.isdecimal() and len(key) < 8 and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found


def branches(schema: Mapping[str, Any], key: str) -> list[Any]:
    """What an allOf, an anyOf or a oneOf lists; nothing where it is not there, or is no list."""
    value = schema.get(key)
    return value if isinstance(value, list) else []
