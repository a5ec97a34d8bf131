"""What the user asks an answer's form to be, checked on its face."""

import json
from collections.abc import Mapping
from typing import Literal

from modelkit.arguments import refused
from modelkit.errors import RequestError
from modelkit.json_text import unique_keys
from modelkit.python_faults import fault
from runtime.quoting import sentence
from runtime.records import dataclass

Kind = Literal["schema", "regex", "lark"]

MOST_CHARACTERS = {"schema": 1_000_000, "regex": 65_536, "lark": 262_144}
ANY_OBJECT = '{"type": "object"}'


@dataclass(frozen=True, slots=True)
class Form:
    """What an answer shall look like."""

    option: str
    """The name by which the user gave it."""
    kind: Kind
    text: str


def read_form(output: object = None, grammar: object = None, regex: object = None) -> Form | None:
    """The one of these that was given, None when none was. Raises RequestError.

    output: "json" for any JSON object, or a JSON schema, as a mapping or as text; users call it `format`.
    grammar: a text in Lark's syntax, or in GBNF, llama.cpp's. regex: a regular expression without
    look-around, which the whole answer matches.
    """
    forms = [
        *([_of_output(output)] if output is not None else []),
        *([_of_text("grammar", "lark", grammar)] if grammar is not None else []),
        *([_of_text("regex", "regex", regex)] if regex is not None else []),
    ]
    if len(forms) > 1:
        names = " and ".join(form.option for form in forms)
        raise RequestError(f"{names} were both given; an answer can follow one of them")
    return forms[0] if forms else None


def _of_output(wanted: object) -> Form:
    if isinstance(wanted, str):
        if wanted == "json":
            return Form("format", "schema", ANY_OBJECT)
        if not wanted.lstrip().startswith("{"):
            raise refused("format", wanted, '"json" or a JSON schema')
        form = _of_text("format", "schema", wanted)
        _refuse_twice(wanted)
        return form
    if not isinstance(wanted, Mapping):
        raise refused("format", wanted, '"json" or a JSON schema')
    try:
        text = json.dumps(wanted, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"format is not a JSON schema: {sentence(fault(error))}") from error
    return _of_text("format", "schema", text)


def _refuse_twice(schema: str) -> None:
    """Raise RequestError where a key is there twice. What else is wrong, who compiles it says."""
    try:
        json.loads(schema, object_pairs_hook=unique_keys)
    except (json.JSONDecodeError, RecursionError):
        return
    except ValueError as error:
        raise RequestError(f"format is not a usable JSON schema: {fault(error)}") from error


def _of_text(option: str, kind: Kind, text: object) -> Form:
    if not isinstance(text, str):
        raise refused(option, text, "a text")
    if len(text) > MOST_CHARACTERS[kind]:
        most = MOST_CHARACTERS[kind]
        raise RequestError(f"{option} has {len(text):,} characters; at most {most:,} are taken")
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise RequestError(f"{option} has a NUL or half a surrogate pair in it")
    return Form(option, kind, text)
