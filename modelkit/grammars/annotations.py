"""Formats of texts that no grammar is known for: `path` and `binary` of pydantic, `password`, `regex`.

By the standard a `format` that a reader does not know says nothing of the value (JSON Schema 2020-12,
validation, 7.2.1), and libraries write many such. It is left out of an answer's schema, and that is said.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from modelkit.grammars.forms import Form
from modelkit.grammars.loosening import parts_of
from modelkit.grammars.patterns import FORMATS


def without_unknown_formats(form: Form) -> tuple[Form, tuple[str, ...]]:
    """(the form as the library takes it, sentences on what is left out of it). A text that is no JSON object
    comes back as it is: whoever compiles it says what is wrong.
    """
    if form.kind != "schema":
        return form, ()
    try:
        root = json.loads(form.text)
    except (ValueError, RecursionError):
        return form, ()
    places = _left_out(root) if isinstance(root, dict) else {}
    if not places:
        return form, ()
    notes = tuple(f"{form.option}: any text is taken for {name!r} ({at})" for name, at in places.items())
    return replace(form, text=json.dumps(root)), notes


def _left_out(root: dict[str, Any]) -> dict[str, str]:
    """Formats that are not known, each with its first place. They are taken out of `root`."""
    places: dict[str, str] = {}
    left = [("$", root)]
    while left:
        at, schema = left.pop()
        name = schema.get("format")
        if isinstance(name, str) and name not in FORMATS and _may_be_text(schema):
            places.setdefault(name, at)
            del schema["format"]
        left += reversed([(f"{at}{name}", inner) for name, inner, _ in parts_of(schema)])
    return places


def _may_be_text(schema: Mapping[str, Any]) -> bool:
    kinds = schema.get("type", "string")
    return kinds == "string" or (isinstance(kinds, list) and "string" in kinds)
