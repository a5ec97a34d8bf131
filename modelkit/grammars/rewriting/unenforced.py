"""What an answer's schema may say that no grammar here holds. It is left out of the schema, and that is said.

Formats of texts that no grammar is known for: `path` and `binary` of pydantic, `password`, `regex`. By the
standard a `format` that a reader does not know says nothing of the value (JSON Schema 2020-12, validation,
7.2.1), and libraries write many such.

What a text is a writing of: `contentMediaType` of pydantic's `Json`, `contentEncoding`. It is no more than a
remark by the standard (8.3 and 8.4), so it may stay.

`uniqueItems` where items are more than a few values (`unique_items`): pydantic writes it for every set, and
makes a set of what comes. A grammar would have to remember each item. llama.cpp leaves it out without a word.

`minProperties` of an object that may have several properties of any name: nothing keeps one name from being
written twice, and it is counted as often as it is written.

`oneOf` of ways that overlap to the letter in all they have (`one_of`): each is what it is meant to be.

What is held, and more than is asked for: conditions whose cases are without end, of which some are written
(`negation`, `conditions`), and bounds of numbers that lie beyond 64 bits.

Other keywords that are not held are refused (`refusals`): nobody writes them without a mind to it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from modelkit.grammars.forms import Form
from modelkit.grammars.patterns.formats import FORMATS
from modelkit.grammars.rewriting.pipeline import rewritten
from modelkit.grammars.rewriting.unique_items import unique_lists
from modelkit.grammars.schemas.infinite_values import Values
from modelkit.grammars.schemas.loosening import parts_of
from modelkit.grammars.thread_switching import short_switch_interval
from modelkit.schema import target
from runtime.quoting import quoted

_TWICE = "a name may be written twice, minProperties counts it as often"
_SEVERAL = "a value may fit several ways of oneOf, which tell objects apart by what others do not have"

_MANY = re.compile(r'"minProperties"\s*:\s*(?:[2-9]|\d\d)')
_UNIQUE = "uniqueItems"
_CONTENT = ("contentEncoding", "contentMediaType")


def without_unenforced(form: Form) -> tuple[Form, tuple[str, ...]]:
    """(the form as the library takes it, sentences on what is left out of it). A text that is no JSON object
    comes back as it is: whoever compiles it says what is wrong.
    """
    if form.kind != "schema":
        return form, ()
    with short_switch_interval():
        return _without(form)


def _without(form: Form) -> tuple[Form, tuple[str, ...]]:
    try:
        root = json.loads(form.text)
    except (ValueError, RecursionError):
        return form, ()
    if not isinstance(root, dict):
        return form, ()
    places = _left_out(root)
    said = {**(places or {}), **unenforced_notes(form.text)}
    if places is None and not said:
        return form, ()
    notes = tuple(f"{form.option}: {one} ({at})" for one, at in said.items())
    return replace(form, text=json.dumps(root)), notes


def unenforced_notes(text: str) -> dict[str, str]:
    """Sentences on what a schema says and is not held by a grammar that is made of it, each with its first
    place.
    """
    try:
        its = rewritten(text)
        counted = Values(json.loads(its.text)).unnamed() if _MANY.search(text) else None
    except (ValueError, RecursionError, TypeError, AttributeError, LookupError):  # no schema: see above
        return {}
    said = {_TWICE: counted, _SEVERAL: its.several, **its.narrowed}
    return {one: at for one, at in said.items() if at is not None}


def _left_out(root: dict[str, Any]) -> dict[str, str] | None:
    """What is said of all that is not held, each with its first place. It is taken out of `root`; None where
    there was nothing to take.
    """
    places: dict[str, str] = {}
    changed = False
    left, seen = [("$", root)], set[int]()
    while left:
        at, schema = left.pop()
        if id(schema) in seen:
            continue
        seen.add(id(schema))
        name = schema.get("format")
        # A pattern says what is meant (`format_patterns`).
        silent = isinstance(name, str) and name not in FORMATS and "pattern" not in schema
        if silent and _may_be(schema, "string"):
            places.setdefault(f"any text is taken for {quoted(name)}", at)
            del schema["format"]
            changed = True
        for said in (schema.get(key) for key in _CONTENT):
            if isinstance(said, str) and said != name and _may_be(schema, "string"):
                places.setdefault(f"any text is taken for {quoted(said)}", at)
        if isinstance(schema.get(_UNIQUE), bool) and not _held_once(schema, root):
            if schema.pop(_UNIQUE) and _may_be(schema, "array"):
                places.setdefault("an item may come twice, uniqueItems is not enforced", at)
            changed = True
        left += reversed([(f"{at}{name}", inner) for name, inner, _ in parts_of(schema)])
        if isinstance(there := target(schema.get("$ref"), root), dict):  # wherever it stands
            left.insert(0, (str(schema["$ref"]), there))
    return places if changed or places else None


def _held_once(schema: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    """Are its lists a few, that are written out (`unique_items`)?"""
    return schema.get("type") is not None and unique_lists(schema, root) is not None


def _may_be(schema: Mapping[str, Any], kind: str) -> bool:
    kinds = schema.get("type", kind)
    return kinds == kind or (isinstance(kinds, list) and kind in kinds)
