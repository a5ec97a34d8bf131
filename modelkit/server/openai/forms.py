"""What an answer shall look like, in the spellings of OpenAI, llama.cpp, vLLM and SGLang."""

import json
import re
from typing import Any

from modelkit.grammars.forms import MOST_CHARACTERS
from modelkit.server import hints
from modelkit.server.faults import refused
from modelkit.server.fields import Fields

FIELDS = frozenset(
    {
        "response_format",
        "json_schema",
        "grammar",
        "structured_outputs",
        "guided_json",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
        "guided_decoding_backend",
        "guided_whitespace_pattern",
        "regex",
        "ebnf",
    }
)
MOST_CHOICES = 1024

# Spelling to what it is; each field's whole name is kept for messages.
_PLAIN = {
    "json_schema": "json",
    "grammar": "grammar",
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "regex": "regex",
    "ebnf": "grammar",
}
_STRUCTURED = {
    "json": "json",
    "regex": "regex",
    "choice": "choice",
    "grammar": "grammar",
    "json_object": "json_object",
}
_OF_STRUCTURED = frozenset({*_STRUCTURED, "disable_fallback", "disable_any_whitespace", "whitespace_pattern"})


def read_form(body: Fields) -> dict[str, Any]:
    """format, grammar or regex: keyword arguments of `Model.chat` and `Model.generate`. At most one."""
    found = [one for one in (_response_format(body), *_plain(body), *_structured(body)) if one]
    if len(found) > 1:
        raise refused("invalid_request", "several fields say what the answer shall look like; give one")
    hints.check_hints(body, {"guided_decoding_backend": hints.text})
    if body.has("guided_whitespace_pattern"):
        raise refused("invalid_request", "guided_whitespace_pattern is not offered by this server")
    return found[0] if found else {}


def read_format(given: Fields) -> dict[str, Any]:
    """`response_format`, and `text.format` of responses, whose schema stands beside the type."""
    kind = given.text("type", "text")
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"format": "json"} if not given.has("schema") else _schema(given, "schema")
    if kind == "json_schema":
        inner = given.fields("json_schema") or given
        inner.nothing("name", "strict")  # an answer is always held to its schema
        if not inner.has("schema"):
            framed = inner is given and given.where == "response_format"  # responses have no frame
            name = inner.name("json_schema" if framed else "schema")
            raise refused("invalid_request", f"{name} is missing, expected a JSON schema", name)
        return _schema(inner, "schema")
    if kind in ("grammar", "regex"):
        field = next((one for one in ("grammar", "definition", "pattern") if given.has(one)), kind)
        return {kind: given.needed_text(field)}
    raise given.wrong("type", "text, json_object or json_schema")


def _response_format(body: Fields) -> dict[str, Any]:
    given = body.fields("response_format")
    return {} if given is None else read_format(given)


def _plain(body: Fields) -> list[dict[str, Any]]:
    return [_read(body, field, kind) for field, kind in _PLAIN.items() if body.has(field)]


def _structured(body: Fields) -> list[dict[str, Any]]:
    """vLLM's newer object."""
    given = body.fields("structured_outputs")
    if given is None:
        return []
    for field in given.peek:
        if field not in _OF_STRUCTURED:
            given.refuse(field, "this is not offered")
    return [_read(given, field, kind) for field, kind in _STRUCTURED.items() if given.has(field)]


def _read(given: Fields, field: str, kind: str) -> dict[str, Any]:
    if kind == "json":
        return _schema(given, field)
    if kind == "json_object":
        return {"format": "json"} if given.flag(field) else {}
    if kind == "choice":
        words = given.texts(field, MOST_CHOICES)
        return {"regex": "|".join(f"({re.escape(word)})" for word in words)} if words else {}
    text = given.text(field)
    return {kind: text} if text else {}


def _schema(given: Fields, field: str) -> dict[str, Any]:
    """An object, or its JSON text. `true` and {} allow any JSON; what is asked for is then an object."""
    value, most = given.raw(field), MOST_CHARACTERS["schema"]
    if isinstance(value, str):
        if len(value) > most:  # what a text holds, the body's own bounds do not count
            raise given.wrong(field, f"a JSON schema of at most {most:,} characters")
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise given.wrong(field, "a JSON schema, as an object or as its JSON text") from error
    if not isinstance(value, dict):
        raise given.wrong(field, "a JSON schema")
    return {"format": value or "json"}
