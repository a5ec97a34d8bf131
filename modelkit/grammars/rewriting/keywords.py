"""Keywords of a JSON schema, one by one: of which type each says something, and what does not keep it."""

from collections.abc import Sequence
from typing import Any

from modelkit.grammars.rewriting.cases import Case
from modelkit.grammars.rewriting.excluded_values import no_complement
from modelkit.json_text import is_number

OF_OTHERS = frozenset(
    {"unevaluatedProperties", "unevaluatedItems", "minContains", "maxContains", "then", "else"}
)
"""What depends on other keywords beside it."""
_NO_CASES = OF_OTHERS | {
    "$dynamicRef",
    "$recursiveRef",
    "$ref",
    "type",
    "const",
    "enum",
    "allOf",
    "anyOf",
    "oneOf",
}
SIZES = {
    "minLength": ("string", "maxLength", -1),
    "maxLength": ("string", "minLength", 1),
    "minItems": ("array", "maxItems", -1),
    "maxItems": ("array", "minItems", 1),
    "minProperties": ("object", "maxProperties", -1),
    "maxProperties": ("object", "minProperties", 1),
}
"""By keyword: the type it is of, the keyword of what is outside of it, and how far that lies."""
_BOUNDS = {
    "minimum": "exclusiveMaximum",
    "maximum": "exclusiveMinimum",
    "exclusiveMinimum": "maximum",
    "exclusiveMaximum": "minimum",
}
TYPE_OF = {
    **dict.fromkeys(("minLength", "maxLength", "pattern", "format"), "string"),
    **dict.fromkeys((*_BOUNDS, "multipleOf"), "number"),
    **dict.fromkeys(("minItems", "maxItems", "uniqueItems", "prefixItems", "items"), "array"),
    **dict.fromkeys(("additionalItems", "contains", "unevaluatedItems"), "array"),
    **dict.fromkeys(("minProperties", "maxProperties", "required", "properties"), "object"),
    **dict.fromkeys(("additionalProperties", "patternProperties", "propertyNames"), "object"),
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "dependencies"), "object"),
    "unevaluatedProperties": "object",
}
"""The type that a keyword says something of."""

ASSERTS = frozenset(TYPE_OF) | _NO_CASES | {"not", "if", "then", "else", "minContains", "maxContains"}
"""All that say something of a value; others are remarks."""


def applies_to(key: str, kinds: Sequence[str]) -> bool:
    """Does a keyword say anything of values of these types?"""
    kind = TYPE_OF.get(key)
    return kind is None or kind in kinds or (kind == "number" and "integer" in kinds)


def of_other_types(said: Any, kinds: Sequence[str]) -> list[Case]:
    """But for numbers that are not whole (`leaves_fractions`)."""
    if not isinstance(said, list):
        raise no_complement("its `type`")
    taken = {*said, *(("number", "integer") if leaves_fractions(said, kinds) or "number" in said else ())}
    left = [kind for kind in kinds if kind not in taken]
    return [Case({"type": left})] if left else []


def leaves_fractions(said: Any, kinds: Sequence[str]) -> bool:
    """Are numbers that are not whole of other types than these?"""
    return "integer" in said and "number" in kinds and "number" not in said


def outside_bound(key: str, value: Any) -> list[Case]:
    """What does not keep a bound."""
    if key not in TYPE_OF and key not in _NO_CASES:
        return []  # a remark, or said by another keyword beside it
    if not is_number(value):
        raise no_complement(f"`{key}`")
    if key in SIZES:
        kind, outer, away = SIZES[key]
        return [Case({"type": [kind], outer: int(value) + away})] if int(value) + away >= 0 else []
    if key in _BOUNDS:
        return [Case({"type": ["number"], _BOUNDS[key]: value})]
    raise no_complement(f"`{key}`")
