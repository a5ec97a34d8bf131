"""Messages and tools as the data that Ollama gives to a template, in the shapes of its types.

A Record is a Go struct: fields with names, which print and become JSON in their order. A `Printed` list or
object prints as JSON, as the types with a String method do. What a tool's schema says beyond the fields that
Ollama knows stays: it is printed behind them.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of struct."""

    name: str
    keys: Mapping[str, str]
    """Field to its key in JSON, which is left out where it begins with "?" and the value is empty."""
    prints_json: bool = False
    """Does it print as JSON?"""


class Record(dict[str, Any]):
    """A struct: its fields by name. `more`: members that only its JSON has."""

    def __init__(self, kind: Kind, fields: Mapping[str, Any], more: Mapping[str, Any] | None = None) -> None:
        super().__init__(fields)
        self.kind, self.more = kind, more or {}


class PrintedMap(dict[str, Any]):
    """Prints as JSON."""


class PrintedList(list[Any]):
    """Prints as JSON; where there is none, as null."""


class NilList(list[Any]):
    """None of a type's elements: prints as an empty list, and is null in JSON."""


class TypeNames(list[str]):
    """A schema's `type`: prints as the name where there is one."""


def _same(name: str, fields: str) -> Kind:
    return Kind(name, {field: field for field in fields.split()})


MESSAGE = _same("Message", "Role Content Thinking Images ToolCalls ToolName ToolCallID")
CALL = _same("ToolCall", "ID Function")
CALL_FUNCTION = _same("ToolCallFunction", "Index Name Arguments")
TOOL = Kind("Tool", {"Type": "type", "Items": "?items", "Function": "function"}, prints_json=True)
FUNCTION = Kind("ToolFunction", {"Name": "name", "Description": "description", "Parameters": "parameters"})
PARAMETERS = Kind(
    "ToolFunctionParameters",
    {
        "Type": "type",
        "Defs": "?$defs",
        "Items": "?items",
        "Required": "?required",
        "Properties": "properties",
    },
)
PROPERTY = Kind(
    "ToolProperty",
    {
        "AnyOf": "?anyOf",
        "Type": "?type",
        "Items": "?items",
        "Description": "?description",
        "Enum": "?enum",
        "Properties": "?properties",
        "Required": "?required",
    },
)


def modern(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    think: object = None,
    level: object = None,
) -> dict[str, Any]:
    """What a template that reads .Messages is given. Consecutive messages of one role are one, but for
    tools; `.System` is all that the system says, which also stays among the messages.
    """
    merged: list[Record] = []
    for message in map(_message, messages):
        if merged and merged[-1]["Role"] == message["Role"] != "tool":
            merged[-1]["Content"] += "\n\n" + message["Content"]
        else:
            merged.append(message)
    system = "\n\n".join(one["content"] or "" for one in messages if one["role"] == "system")
    return {
        "System": system,
        "Messages": merged,
        "Tools": PrintedList(map(_tool, tools or ())),
        "Response": "",
        **_thinking(think, level),
    }


def turns(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    think: object = None,
    level: object = None,
) -> list[dict[str, Any]]:
    """What a template that reads .System, .Prompt and .Response is given, once for each turn, the last of
    which is to be answered.
    """
    del tools  # it has no place for them
    said: list[dict[str, Any]] = []
    now = {"System": "", "Prompt": "", "Response": ""}
    for message in modern(messages, None)["Messages"]:
        match message["Role"]:
            case "system":
                if now["Prompt"] or now["Response"]:
                    said, now = [*said, now], dict.fromkeys(now, "")
                now["System"] = message["Content"]
            case "user":
                if now["Response"]:
                    said, now = [*said, now], dict.fromkeys(now, "")
                now["Prompt"] = message["Content"]
            case "assistant":
                now["Response"] = message["Content"]
            case _:
                pass
    return [{**turn, **_thinking(think, level)} for turn in (*said, now)]


def _thinking(think: object, level: object) -> dict[str, Any]:
    return {
        "Think": bool(think) or bool(level),
        "ThinkLevel": level if isinstance(level, str) else "",
        "IsThinkSet": isinstance(think, bool) or bool(level),
    }


def _message(message: Mapping[str, Any]) -> Record:
    calls = [_call(place, call) for place, call in enumerate(message.get("tool_calls") or ())]
    values = (
        message["role"],
        message["content"] or "",
        message.get("thinking") or "",
        NilList(),
        calls or NilList(),
        message.get("name") or "" if message["role"] == "tool" else "",
        message.get("tool_call_id") or "",
    )
    return Record(MESSAGE, dict(zip(MESSAGE.keys, values, strict=True)))


def _call(place: int, call: Mapping[str, Any]) -> Record:
    function = call["function"]
    given = function["arguments"]
    arguments = PrintedMap(json.loads(given) if isinstance(given, str) else given)
    made = {"Index": place, "Name": function["name"], "Arguments": arguments}
    return Record(CALL, {"ID": call.get("id") or "", "Function": Record(CALL_FUNCTION, made)})


def _tool(tool: Mapping[str, Any]) -> Record:
    function = tool["function"]
    parameters = function.get("parameters") or {}
    made = {
        "Name": function["name"],
        "Description": function.get("description") or "",
        "Parameters": Record(
            PARAMETERS,
            {
                "Type": parameters.get("type") or "",
                "Defs": parameters.get("$defs"),
                "Items": parameters.get("items"),
                "Required": parameters.get("required") or [],
                "Properties": _properties(parameters.get("properties")),
            },
            _others(parameters, PARAMETERS),
        ),
    }
    return Record(
        TOOL,
        {
            "Type": tool.get("type") or "",
            "Items": tool.get("items"),
            "Function": Record(FUNCTION, made, _others(function, FUNCTION)),
        },
    )


def _properties(given: object) -> PrintedMap:
    if not isinstance(given, Mapping):
        return PrintedMap()
    return PrintedMap({name: _property(one) for name, one in sorted(given.items())})


def _property(given: object) -> Any:
    if not isinstance(given, Mapping):
        return given  # `true`, which allows all
    kinds = given.get("type")
    names = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    below = given.get("properties")
    return Record(
        PROPERTY,
        {
            "AnyOf": [_property(one) for one in _listed(given.get("anyOf"))],
            "Type": TypeNames(str(name) for name in names),
            "Items": given.get("items"),
            "Description": given.get("description") or "",
            "Enum": _listed(given.get("enum")),
            "Properties": None if below is None else _properties(below),
            "Required": _listed(given.get("required")),
        },
        _others(given, PROPERTY),
    )


def _listed(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _others(given: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    """Members that the type has no field for."""
    known = {key.removeprefix("?") for key in kind.keys.values()}
    return {key: value for key, value in given.items() if key not in known}
