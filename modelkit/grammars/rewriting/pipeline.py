"""A JSON schema as it is meant, in words that a grammar can be made of."""

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from modelkit.grammars.rewriting.identifiers import with_local_references
from modelkit.grammars.rewriting.property_names import without_property_names
from modelkit.grammars.schemas.traversal import LETTER, NARROWED, as_of_2020, subschemas
from modelkit.grammars.thread_switching import short_switch_interval
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
_MARKS = re.compile(r"u0000(?:letter|narrowed)")
_BEYOND = "no number beyond 64 bits is taken where a bound lies there"
_CHOSEN = ('"oneOf"', '"minProperties"', '"maxProperties"')


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A schema."""

    text: str
    refused: Mapping[str, str]
    """Conditions that no grammar holds: why, by their JSON pointers."""
    several: str | None
    """Where a value first may fit several ways of a oneOf, as none is told apart by its letter."""
    narrowed: Mapping[str, str]
    """Sentences on what the schema allows and its grammar does not, each with the first place of it."""


@lru_cache(4)  # several ask, one after the other
def rewritten(text: str) -> Rewritten:
    """A text that is not a JSON object comes back as it is: whoever compiles it says what is wrong."""
    with short_switch_interval():
        return _rewritten(text)


def _rewritten(text: str) -> Rewritten:
    text, _ = _without_marks(text)
    first = (
        _without_flags,
        with_local_references,
        _with_definitions,
        _with_enforced_patterns,
    )
    text = _through(text, *first)
    text, unseen = _without_unevaluated(text)
    text, refused = _without_conditions(_through(text, _with_later_lists, _with_plain_lists))
    text = as_meant(text, marked='"oneOf"' in text)
    text, several = _without_one_of(_through(text, without_property_names, _with_few_names))
    text, narrowed = _without_marks(text)
    text = _through(text, _with_later_lists, _with_disjoint_names)
    text, far = _with_near_bounds(_through(text, _without_unsatisfiable, _without_circles))
    return Rewritten(text, unseen or refused, several, narrowed | far)


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


def _with_near_bounds(text: str) -> tuple[str, dict[str, str]]:
    if not _FAR.search(text):
        return text, {}
    from modelkit.grammars.schemas.numbers import with_near_bounds

    root = json.loads(text)
    places = subschemas(root) if isinstance(root, dict) else ()
    found = [(at, *with_near_bounds(schema)) for at, schema in places]
    less = next((at for at, _, less in found if less), None)
    text = json.dumps(root) if any(changed for _, changed, _ in found) else text
    return text, {} if less is None else {_BEYOND: less}


def _without_flags(text: str) -> str:
    if not _FLAGS.search(text):
        return text
    from modelkit.grammars.rewriting.dialects import without_flags

    root = json.loads(text)
    if not isinstance(root, dict):
        return text
    without_flags(root)
    return json.dumps(root)


def _without_unsatisfiable(text: str) -> str:
    if '"$ref"' not in text:
        return text
    from modelkit.grammars.rewriting.unsatisfiable import without_unsatisfiable

    return without_unsatisfiable(text)


def _with_enforced_patterns(text: str) -> str:
    if '"format"' not in text or '"pattern"' not in text:
        return text
    from modelkit.grammars.rewriting.format_patterns import with_enforced_patterns

    return _changed(text, with_enforced_patterns)


def _with_few_names(text: str) -> str:
    if '"patternProperties"' not in text:
        return text
    from modelkit.grammars.rewriting.pattern_properties import with_few_names

    return _changed(text, with_few_names)


def _with_disjoint_names(text: str) -> str:
    if '"patternProperties"' not in text and '"propertyNames"' not in text:
        return text
    from modelkit.grammars.rewriting.pattern_properties import with_disjoint_names

    return _changed(text, with_disjoint_names)


def _without_circles(text: str) -> str:
    if '"$ref"' not in text:
        return text
    from modelkit.grammars.rewriting.circular_references import without_circles

    return without_circles(text)


def _without_marks(text: str) -> tuple[str, dict[str, str]]:
    """(the schema without what is only kept on the way, and whatever it has of these names; what it had of
    NARROWED).
    """
    if not _MARKS.search(text):
        return text, {}
    root = json.loads(text)
    said = dict[str, str]()
    for _, schema in subschemas(root) if isinstance(root, dict) else ():
        schema.pop(LETTER, None)
        narrowed = schema.pop(NARROWED, None)
        said = narrowed | said if isinstance(narrowed, dict) else said
    return json.dumps(root), said


def _with_definitions(text: str) -> str:
    if not _INTO.search(text):
        return text
    from modelkit.grammars.rewriting.definitions import with_definitions

    return _changed(text, with_definitions)


def _with_plain_lists(text: str) -> str:
    """With whole numbers as sizes (2.0 is one), and lists without an item twice written out."""
    if '"uniqueItems"' not in text and not _SIZE.search(text):
        return text
    from modelkit.grammars.rewriting.unique_items import with_unique_lists

    def change(root: dict[str, Any]) -> bool:
        changed = False
        for _, schema in reversed([*subschemas(root)]):
            for key in _SIZES & schema.keys():
                if isinstance(size := schema[key], float) and size.is_integer():
                    schema[key], changed = int(size), True
            changed |= "uniqueItems" in schema and with_unique_lists(schema, root)
        return changed

    return _changed(text, change)


def _without_unevaluated(text: str) -> tuple[str, dict[str, str]]:
    if not any(word in text for word in _UNEVALUATED):
        return text, {}
    from modelkit.grammars.rewriting.unevaluated import without_unevaluated

    return _changed_with(text, without_unevaluated, {})


def _with_later_lists(text: str) -> str:
    """The library forgets `prefixItems` beside `additionalItems`, which says nothing there, and in schemas of
    earlier drafts, which have it where something was written out.
    """
    if '"additionalItems"' not in text and not ('"prefixItems"' in text and '"$schema"' in text):
        return text

    def change(root: dict[str, Any]) -> bool:
        as_of_2020(root, [*subschemas(root)])
        return True

    return _changed(text, change)


def _without_conditions(text: str) -> tuple[str, dict[str, str]]:
    if not any(word in text for word in _CONDITIONS):
        return text, {}
    from modelkit.grammars.rewriting.conditions import without_conditions

    return _changed_with(text, without_conditions, {})


def _without_one_of(text: str) -> tuple[str, str | None]:
    if not any(word in text for word in _CHOSEN):
        return text, None
    from modelkit.grammars.rewriting.one_of import without_one_of

    return _changed_with(text, without_one_of, None)
