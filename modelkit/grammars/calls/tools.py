"""The tools of a request as a grammar needs them: a name, and what the arguments look like."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from modelkit.errors import RequestError
from modelkit.grammars.rewriting.dialects import with_types_of_json
from modelkit.grammars.rewriting.pipeline import rewritten
from modelkit.grammars.rewriting.unenforced import unenforced_notes
from modelkit.grammars.rules.rules import LONGEST_KEPT, MOST_KEPT
from modelkit.grammars.schemas.traversal import subschemas
from modelkit.python_faults import fault
from runtime.quoting import quoted, sentence
from runtime.records import dataclass

MOST_TOOLS = 512
MOST_CHARACTERS = 2_000_000  # of all schemas together
_NAME = re.compile(r"[^\s\"'<>{}\[\]\\|]{1,256}")

_REMARKS = ("title", "description", "$comment")

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call."""

    name: str
    parameters: Schema
    """A JSON schema of an object."""
    strict: bool = False
    """An answer that cannot be held to the schema is an error, and not only a note."""
    unheld: tuple[str, ...] = ()
    """Sentences on what the schema said before it was prepared, and no grammar holds."""


def read_tools(tools: Sequence[Mapping[str, Any]]) -> tuple[Tool, ...]:
    """As clients write them: `{"type": "function", "function": {"name": .., "parameters": ..}}`, or what
    stands in `function` alone. Raises RequestError for a tool without a usable name, and for too much.
    """
    if len(tools) > MOST_TOOLS:
        raise RequestError(f"{len(tools)} tools were given; at most {MOST_TOOLS} are taken")
    read = tuple(_tool(one, place) for place, one in enumerate(tools))
    size = sum(len(json.dumps(tool.parameters)) for tool in read)
    if size > MOST_CHARACTERS:
        raise RequestError(
            f"the tools' schemas have {size:,} characters; at most {MOST_CHARACTERS:,} are taken"
        )
    return read


def checked(
    tools: Sequence[Tool],
    why_not: Callable[[Schema], str | None],
    least: Callable[[Schema], tuple[Schema, Sequence[str]] | None] = lambda _: None,
) -> tuple[list[Tool], list[str]]:
    """The tools, those whose schemas cannot be used with as much of them as can (`least`) or with any object
    as arguments, and a note on each of these. Of several with one name the last is taken, with a note where
    they differ. why_not: a sentence about a schema that cannot be used.

    Raises RequestError for a strict one.
    """
    last = {tool.name: tool for tool in tools}
    several = dict.fromkeys(tool.name for tool in tools if tool != last[tool.name])
    notes = [f"several tools are called {name}: calls are held to the last of them" for name in several]
    usable = list[Tool]()
    for tool in last.values():
        wrong = why_not(tool.parameters)
        parameters, left = tool.parameters, tool.unheld
        if wrong is not None:
            parameters, more = least(tool.parameters) or ({"type": "object"}, ())
            left = (*left, *more) if more else ()
        if tool.strict and (said := "; ".join(left) or wrong):
            raise RequestError(f"the parameters of the strict tool {tool.name} cannot be enforced: {said}")
        of = f"arguments of {tool.name} are"
        notes += [f"{of} not held to all of its schema: {one}" for one in left] or (
            [] if wrong is None else [f"{of} any object: {wrong}"]
        )
        usable.append(tool if wrong is None else Tool(tool.name, parameters))
    return usable, notes


def _tool(value: Mapping[str, Any], place: int) -> Tool:
    inner = value.get("function")
    fields: Mapping[str, Any] = inner if isinstance(inner, Mapping) else value
    name = fields.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RequestError(
            f"tools[{place}] has the name {quoted(name)}; expected one without blanks and brackets"
        )
    given = fields.get("parameters", fields.get("input_schema"))
    try:
        text = json.dumps(given or {}, allow_nan=False)
        schema, unheld = (_known_schema if len(text) <= LONGEST_KEPT else _read_schema)(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(
            f"the parameters of the tool {name} are not JSON: {sentence(fault(error))}"
        ) from error
    if not isinstance(schema, dict):
        raise RequestError(
            f"the parameters of the tool {name} are {type(schema).__name__}; expected a JSON schema"
        )
    return Tool(name, schema, fields.get("strict") is True, unheld)


def _read_schema(text: str) -> tuple[Any, tuple[str, ...]]:
    """(the schema as a grammar needs it, sentences on what no grammar holds of it)."""
    schema = json.loads(text)
    if not isinstance(schema, dict):
        return schema, ()
    _leave_out_remarks(schema)
    with_types_of_json(schema)
    text = json.dumps(_of_object(schema))
    unheld = unenforced_notes(text)
    return _of_object(json.loads(rewritten(text).text)), tuple(f"{one} ({at})" for one, at in unheld.items())


_known_schema = lru_cache(MOST_KEPT)(_read_schema)  # nobody changes what it returns


def _leave_out_remarks(root: Schema) -> None:
    """In place: most of what an agent's tools say is for the model, and a grammar is made of the rest."""
    for _, schema in subschemas(root):
        for key in _REMARKS:
            if isinstance(schema.get(key), str):
                del schema[key]


def _of_object(schema: Schema) -> Schema:
    """Arguments are an object, whatever the schema leaves open; without a schema, one without members."""
    kinds = schema.get("type", "object")
    schema = schema or {"properties": {}, "additionalProperties": False}
    return {**schema, "type": "object"} if kinds == "object" or _among(kinds) else schema


def _among(kinds: object) -> bool:
    return isinstance(kinds, list) and "object" in kinds
