"""A plain description of values: a mapping without references and without anyOf, oneOf and allOf at its top.

`type` is a list there, const an enum of one, `pattern` and `format` are lists, `prefixItems` are the items in
front. What stands in a property or an item is a schema as before, or an allOf of several; references in it
still lead into the root.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from modelkit.output.reading.validation import same

Schema = Mapping[str, Any]
Variant = dict[str, Any]

TYPES = ("string", "number", "integer", "boolean", "null", "object", "array")
_OF = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("minItems", "maxItems", "items", "prefixItems"),
    "object": (
        *("properties", "patternProperties", "additionalProperties", "required"),
        *("minProperties", "maxProperties"),
    ),
}
TYPED_KEYWORDS = frozenset(key for keys in _OF.values() for key in keys)
VARIANT_KEYWORDS = TYPED_KEYWORDS | {"type", "const", "enum", "additionalItems"}
"""All keywords that a variant is made of."""


class NotExpressible(ValueError):
    """A sentence on a schema that is not taken apart."""


def types_of(variant: Variant) -> list[str]:
    """The types that its values may have. An object with named properties is meant to be one."""
    if "enum" in variant:
        return list(dict.fromkeys(type_of(value) for value in variant["enum"]))
    usual = ["object"] if "properties" in variant else [kind for kind in TYPES if kind != "integer"]
    said = variant.get("type", usual)
    return [kind for kind in TYPES if kind in said and not _EMPTY.get(kind, lambda _: False)(variant)]


def _no_list(variant: Variant) -> bool:
    least, most = variant.get("minItems", 0), variant.get("maxItems", math.inf)
    ends = len(variant.get("prefixItems", ())) if variant.get("items") is False else math.inf
    return least > min(most, ends)


def _no_object(variant: Variant) -> bool:
    named = variant.get("properties", {})
    return any(named.get(name) is False for name in variant.get("required", ()))


_EMPTY: dict[str, Callable[[Variant], bool]] = {
    "array": _no_list,
    "object": _no_object,
    "string": lambda variant: variant.get("minLength", 0) > variant.get("maxLength", math.inf),
}
"""Where nothing is left of a type."""


def type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def of_type(variant: Variant, kind: str) -> Schema:
    """The variant's values of this type, as a schema again."""
    keys = _OF.get("number" if kind == "integer" else kind, ())
    said: Variant = {"type": kind, **{key: variant[key] for key in keys if key in variant}}
    if "enum" in variant:
        del said["type"]
        said["enum"] = [value for value in variant["enum"] if type_of(value) == kind]
    every = [{key: one} for key in ("pattern", "format") for one in said.pop(key, ())]
    return {**said, **(every[0] if len(every) == 1 else {"allOf": every} if every else {})}


def own_variant(schema: Schema) -> Variant:
    """What it says of the value by itself, as a variant."""
    variant: Variant = {key: value for key, value in schema.items() if key in TYPED_KEYWORDS}
    if isinstance(said := schema.get("type"), str | list):
        variant["type"] = [said] if isinstance(said, str) else said
    if isinstance(listed := schema.get("enum"), list):
        variant["enum"] = listed
    if "const" in schema:
        variant["enum"] = [
            one for one in variant.get("enum", [schema["const"]]) if same(one, schema["const"])
        ]
    for key in ("pattern", "format"):
        if key in variant:
            variant[key] = [variant[key]]
    if isinstance(variant.get("items"), list):
        variant["prefixItems"] = variant.pop("items")
        if "additionalItems" in schema:
            variant["items"] = schema["additionalItems"]
    return variant
