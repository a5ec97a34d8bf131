"""Lists whose items come once (uniqueItems), where the items are a few values: every such list, by name.

A grammar cannot remember items; of three colours there are sixteen lists without one twice. More than
MOST_LISTS are not written out, and whoever holds a form says that items may come twice (`unenforced`).
"""

from collections.abc import Iterator, Mapping
from itertools import permutations
from math import perm
from typing import Any

from modelkit.grammars.schemas.traversal import Schema
from modelkit.output.reading.validation import same
from modelkit.schema import target

MOST_LISTS = 400
_SAYS_NOTHING = frozenset({"title", "description", "type", "default", "examples", "$comment"})
_OF_LISTS = ("uniqueItems", "items", "minItems", "maxItems")
_OTHERS = frozenset(
    {"prefixItems", "additionalItems", "unevaluatedItems", "contains", "anyOf", "enum", "const"}
)


def unique_lists(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[tuple[Any, ...]] | None:
    """Those that a schema with uniqueItems allows; None where they are not a few."""
    values = None if schema.keys() & _OTHERS else _values_of(schema.get("items"), root)
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    if values is None or schema.get("uniqueItems") is not True or not isinstance(least, int) or least < 0:
        return None
    most = min(most, len(values)) if isinstance(most, int) else len(values)
    sizes = range(least, most + 1)
    if not 0 < sum(perm(len(values), size) for size in sizes) <= MOST_LISTS:
        return None
    return (chosen for size in sizes for chosen in permutations(values, size))


def with_unique_lists(schema: Schema, root: Schema) -> bool:
    """Write them out, in place. Was there any?"""
    said = schema.get("type")
    kinds = [said] if isinstance(said, str) else said
    if not isinstance(kinds, list) or "array" not in kinds or (lists := unique_lists(schema, root)) is None:
        return False
    written: list[Any] = [
        {
            "type": "array",
            "prefixItems": [{"const": one} for one in chosen],
            "items": False,
            "minItems": len(chosen),
        }
        for chosen in lists
    ]
    for key in ("type", *_OF_LISTS):
        schema.pop(key, None)
    others = [kind for kind in kinds if kind != "array"]
    schema["anyOf"] = [*written, *([{"type": others}] if others else [])]
    return True


def _values_of(items: Any, root: Mapping[str, Any]) -> list[Any] | None:
    if isinstance(items, Mapping) and "$ref" in items and not items.keys() - {"$ref", "title", "description"}:
        items = target(items["$ref"], root)
    if not isinstance(items, Mapping):
        return None
    said = {key: value for key, value in items.items() if key not in _SAYS_NOTHING}
    match said:
        case {"enum": [*listed], **more} if not more:
            values = listed
        case {"const": one, **more} if not more:
            values = [one]
        case {**more} if not more and items.get("type") == "boolean":
            return [False, True]
        case _:
            return None
    if len(values) > MOST_LISTS:
        return None
    fitting = [
        one for place, one in enumerate(values) if not any(same(one, other) for other in values[:place])
    ]
    return fitting if _all_of(items.get("type"), fitting) else None


def _all_of(kind: Any, values: list[Any]) -> bool:
    """Are all of the type that is said of them?"""
    types: dict[Any, tuple[type, ...]] = {"string": (str,), "integer": (int,), "number": (int, float)}
    if kind is None:
        return True
    return kind in types and all(isinstance(one, types[kind]) and not isinstance(one, bool) for one in values)
