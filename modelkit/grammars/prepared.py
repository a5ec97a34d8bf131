"""A JSON schema as it is meant, in words that a grammar can be made of."""

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from modelkit.grammars.aside import aside
from modelkit.grammars.linked import with_links
from modelkit.grammars.listed import with_known_names
from modelkit.grammars.places import LETTER, as_of_2020, places_in
from modelkit.schema import as_meant
from runtime.records import dataclass

T = TypeVar("T")

_SIZES = frozenset(
    f"{end}{what}" for end in ("min", "max") for what in ("Length", "Items", "Properties", "Contains")
)
_SIZE = re.compile(r'"(?:min|max)(?:Length|Items|Properties|Contains)"\s*:\s*\d+[.eE]')
_FAR = re.compile(r'"(?:exclusiveM|m)(?:in|ax)imum"\s*:\s*-?(?:\d{19}|[\d.]+[eE])')
_FLAGS = re.compile(r'"(?:exclusiveM(?:in|ax)imum|required)"\s*:\s*(?:true|false)')
_CONDITIONS = (
    *('"if"', '"then"', '"else"', '"not"', '"contains"', '"minContains"', '"maxContains"'),
    *('"dependentRequired"', '"dependentSchemas"', '"dependencies"'),
)
_INTO = re.compile(r'"\$ref"\s*:\s*"#/(?!(?:\$defs|definitions)/[^/"]*")')
_UNEVALUATED = ('"unevaluatedProperties"', '"unevaluatedItems"')
_CHOSEN = ('"oneOf"', '"minProperties"', '"maxProperties"')


@dataclass(frozen=True, slots=True)
class Prepared:
    """A schema."""

    text: str
    refused: Mapping[str, str]
    """Conditions that no grammar holds: why, by their JSON pointers."""
    several: str | None
    """Where a value first may fit several ways of a oneOf, as none is told apart by its letter."""


@lru_cache(4)  # several ask, one after the other
def prepared(text: str) -> Prepared:
    """A text that is not a JSON object comes back as it is: whoever compiles it says what is wrong."""
    with aside():
        return _prepared(text)


def _prepared(text: str) -> Prepared:
    first = (_without_letters, _without_flags, with_links, _with_definitions, _with_held_patterns)
    text = _through(text, *first)
    text, unseen = _with_all_evaluated(text)
    text, refused = _without_conditions(_through(text, _with_later_lists, _with_plain_lists))
    text = as_meant(text, marked='"oneOf"' in text)
    text, several = _with_exclusive(_through(text, with_known_names, _with_few_names))
    text = _through(text, _without_letters, _with_later_lists, _with_names_apart)
    text = _through(text, _without_impossible, _without_circles, _with_near_bounds)
    return Prepared(text, unseen or refused, several)


def _through(text: str, *steps: Callable[[str], str]) -> str:
    """One step after the other."""
    for step in steps:
        text = step(text)
    return text


def _changed(text: str, change: Callable[[dict[str, Any]], bool]) -> str:
    """change: works on the schema itself, and says whether there was anything to do."""
    root = json.loads(text)
    return json.dumps(root) if isinstance(root, dict) and change(root) else text


def _changed_with(text: str, change: Callable[[dict[str, Any]], T], otherwise: T) -> tuple[str, T]:
    """change: works on the schema itself, and says what comes of it. otherwise: what comes of no schema."""
    root = json.loads(text)
    if not isinstance(root, dict):
        return text, otherwise
    found = change(root)
    return json.dumps(root), found


def _with_near_bounds(text: str) -> str:
    if not _FAR.search(text):
        return text
    from modelkit.grammars.numbers import with_near_bounds

    return _changed(text, lambda root: sum(with_near_bounds(schema) for _, schema in places_in(root)) > 0)


def _without_flags(text: str) -> str:
    if not _FLAGS.search(text):
        return text
    from modelkit.grammars.dialects import without_flags

    root = json.loads(text)
    if not isinstance(root, dict):
        return text
    without_flags(root)
    return json.dumps(root)


def _without_impossible(text: str) -> str:
    if '"$ref"' not in text:
        return text
    from modelkit.grammars.impossible import without_impossible

    return without_impossible(text)


def _with_held_patterns(text: str) -> str:
    if '"format"' not in text or '"pattern"' not in text:
        return text
    from modelkit.grammars.beside import with_held_patterns

    return _changed(text, with_held_patterns)


def _with_few_names(text: str) -> str:
    if '"patternProperties"' not in text:
        return text
    from modelkit.grammars.named import with_few_names

    return _changed(text, with_few_names)


def _with_names_apart(text: str) -> str:
    if '"patternProperties"' not in text and '"propertyNames"' not in text:
        return text
    from modelkit.grammars.named import with_names_apart

    return _changed(text, with_names_apart)


def _without_circles(text: str) -> str:
    if '"$ref"' not in text:
        return text
    from modelkit.grammars.circles import without_circles

    return without_circles(text)


def _without_letters(text: str) -> str:
    """Without what is only kept on the way, and whatever a schema has of that name."""
    if "u0000letter" not in text:
        return text
    root = json.loads(text)
    for _, schema in places_in(root) if isinstance(root, dict) else ():
        schema.pop(LETTER, None)
    return json.dumps(root)


def _with_definitions(text: str) -> str:
    if not _INTO.search(text):
        return text
    from modelkit.grammars.led import with_definitions

    return _changed(text, with_definitions)


def _with_plain_lists(text: str) -> str:
    """With whole numbers as sizes (2.0 is one), and lists without an item twice written out."""
    if '"uniqueItems"' not in text and not _SIZE.search(text):
        return text
    from modelkit.grammars.once import with_lists_once

    def change(root: dict[str, Any]) -> bool:
        changed = False
        for _, schema in reversed([*places_in(root)]):
            for key in _SIZES & schema.keys():
                if isinstance(size := schema[key], float) and size.is_integer():
                    schema[key], changed = int(size), True
            changed |= "uniqueItems" in schema and with_lists_once(schema, root)
        return changed

    return _changed(text, change)


def _with_all_evaluated(text: str) -> tuple[str, dict[str, str]]:
    if not any(word in text for word in _UNEVALUATED):
        return text, {}
    from modelkit.grammars.evaluated import with_all_evaluated

    return _changed_with(text, with_all_evaluated, {})


def _with_later_lists(text: str) -> str:
    """The library forgets `prefixItems` beside `additionalItems`, which says nothing there, and in schemas of
    earlier drafts, which have it where something was written out.
    """
    if '"additionalItems"' not in text and not ('"prefixItems"' in text and '"$schema"' in text):
        return text

    def change(root: dict[str, Any]) -> bool:
        as_of_2020(root, [*places_in(root)])
        return True

    return _changed(text, change)


def _without_conditions(text: str) -> tuple[str, dict[str, str]]:
    if not any(word in text for word in _CONDITIONS):
        return text, {}
    from modelkit.grammars.conditions import without_conditions

    return _changed_with(text, without_conditions, {})


def _with_exclusive(text: str) -> tuple[str, str | None]:
    if not any(word in text for word in _CHOSEN):
        return text, None
    from modelkit.grammars.exclusive import with_exclusive

    return _changed_with(text, with_exclusive, None)
