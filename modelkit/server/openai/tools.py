"""Tools that the model may call, and whether it may or must."""

from collections.abc import Iterable
from typing import Any

from modelkit.chat.template import MOST_TOOLS
from modelkit.server.faults import refused
from modelkit.server.fields import Fields

FIELDS = frozenset({"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"})
_WORDS = ("none", "auto", "required")


def read_tools(body: Fields) -> dict[str, Any]:
    """tools, tool_choice and parallel_tool_calls: keyword arguments of `Model.chat`."""
    if body.raw("functions") and body.raw("function_call") != "none":
        raise refused("invalid_request", "functions is not offered; give them as tools", "functions")
    return chosen(body, [_tool(one) for one in body.each("tools", MOST_TOOLS)])


def chosen(body: Fields, tools: list[dict[str, Any]]) -> dict[str, Any]:
    """With what `tool_choice` and `parallel_tool_calls` say of these tools."""
    choice, allowed = _choice(body)
    names = {tool["function"]["name"] for tool in tools}
    for name in allowed or [choice]:
        if name not in names and name not in _WORDS:
            said = f"tool_choice names {name[:80]!r}, which is none of the tools"
            raise refused("invalid_request", said, "tool_choice")
    if allowed is not None:
        tools = [tool for tool in tools if tool["function"]["name"] in allowed]
    if not tools:
        if choice == "required":
            raise refused("invalid_request", "tool_choice is 'required', and there is no tool", "tool_choice")
        return {}
    found: dict[str, Any] = {"tools": tools}
    if choice != "auto":
        found["tool_choice"] = choice
    if body.flag("parallel_tool_calls") is False:
        found["parallel_tool_calls"] = False
    return found


def function(given: Fields) -> dict[str, Any]:
    """One function in the shape that templates know: name, description, parameters, in this order."""
    name, parameters = given.needed_text("name"), given.fields("parameters")
    written: dict[str, Any] = {"name": name}
    if (description := given.text("description")) is not None:
        written["description"] = description
    plain = {"type": "object", "properties": {}}
    written["parameters"] = dict(parameters.value) if parameters and parameters.value else plain
    if given.flag("strict"):
        written["strict"] = True
    return {"type": "function", "function": written}


def _tool(given: Fields) -> dict[str, Any]:
    kind = given.text("type", "function")
    if kind != "function":
        name = given.name("type")
        raise refused("invalid_request", f"{name} is {kind[:40]!r}; only functions are offered", name)
    return function(given.inner("function"))


def _choice(body: Fields) -> tuple[str, list[str] | None]:
    """A word of _WORDS or a tool's name; and which tools are open, where not all are."""
    value = body.raw("tool_choice")
    if value is None:
        return "auto", None
    if isinstance(value, str):
        return body.choice("tool_choice", _WORDS, "auto"), None
    given = body.inner("tool_choice")
    kind = given.text("type", "function")
    if kind == "function":
        inner = given.fields("function")
        if inner is None and not given.has("name"):
            raise refused("invalid_request", "tool_choice names no function", "tool_choice")
        return (inner or given).needed_text("name"), None
    if kind == "allowed_tools":
        inner = given.fields("allowed_tools") or given
        return inner.choice("mode", ("auto", "required"), "auto"), [*_names(inner)]
    if kind in _WORDS:
        return kind, None
    raise given.wrong("type", "function or allowed_tools")


def _names(given: Fields) -> Iterable[str]:
    """Of functions: tools that run elsewhere are not there, and a request without them goes on."""
    for one in given.each("tools", MOST_TOOLS):
        if one.text("type", "function") == "function":
            yield (one.fields("function") or one).needed_text("name")
