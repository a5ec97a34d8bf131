"""Tools that a client knows otherwise than the model does, for which every tool is a function.

A custom one takes a text: the model knows it as a function with that text for its only argument. One of a
namespace has its name behind the namespace's.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from modelkit.server.fields import Fields
from runtime.records import dataclass

BETWEEN = "__"
"""Between a namespace and a name, as programs call the tools of MCP servers."""
_OPENING = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_WRITTEN = re.compile(
    r'(?:[^"\\]|\\[^u]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\u[dD][89abAB]..\\u[0-9a-fA-F]{4})*'
)


@dataclass(frozen=True, slots=True)
class ClientTool:
    """What the client calls it."""

    name: str
    namespace: str | None = None
    custom: bool = False

    @property
    def named(self) -> dict[str, str]:
        """The fields of a call that say which tool it is."""
        return {"name": self.name} | ({"namespace": self.namespace} if self.namespace else {})


ClientTools = Mapping[str, ClientTool]
"""By the name that the model knows. A name of none of them, that a model makes up, is a function's."""


def inner_name(name: str, namespace: str | None) -> str:
    """What the model knows it by."""
    return f"{namespace}{BETWEEN}{name}" if namespace else name


def client_tool_of(client_tools: ClientTools, name: str) -> ClientTool:
    return client_tools.get(name) or ClientTool(name)


def custom(given: Fields) -> tuple[dict[str, Any], str | None]:
    """A custom tool as a function, and a sentence on what its text is not held to."""
    name, form = given.needed_text("name"), given.fields("format")
    told, text, note = {"name": name}, {"type": "string"}, None
    if (description := given.text("description")) is not None:
        told["description"] = description
    if form is not None and form.choice("type", ("text", "grammar"), "text") == "grammar":
        inner = form.fields("grammar") or form
        definition, syntax = inner.needed_text("definition"), inner.choice("syntax", ("lark", "regex"))
        if syntax is None:
            raise inner.wrong("syntax", "lark or regex")
        if syntax == "regex":
            text["pattern"] = f"^(?:{definition})$"
        else:
            text["description"] = f"A text that this grammar, in Lark's syntax, allows:\n\n{definition}"
            note = (
                f"the input of {name} is not held to its grammar, which is lark's: only a regex is enforced"
            )
    schema = {"type": "object", "properties": {"input": text}, "required": ["input"]}
    parameters = {**schema, "additionalProperties": False}
    return {"type": "function", "function": {**told, "parameters": parameters}}, note


class Input:
    """The text of a custom tool's call, as the JSON of its arguments comes."""

    def __init__(self) -> None:
        self._inside, self._rest = False, ""

    @property
    def whole(self) -> bool:
        return self._inside and self._rest.startswith('"')

    def add(self, part: str) -> str:
        """What this part of the JSON adds to it."""
        self._rest += part
        if not self._inside and (found := _OPENING.match(self._rest)):
            self._inside, self._rest = True, self._rest[found.end() :]
        said = _WRITTEN.match(self._rest) if self._inside else None
        if said is None:
            return ""
        self._rest = self._rest[said.end() :]
        return json.loads(f'"{said[0]}"', strict=False)
