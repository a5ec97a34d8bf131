"""Tools that the model may call, and whether it may or must."""

from collections.abc import Iterable
from dataclasses import field
from typing import Any

from modelkit.chat.template import MOST_TOOLS
from modelkit.server import hints
from modelkit.server.faults import refused
from modelkit.server.fields import Fields
from modelkit.server.openai.client_tools import ClientTool, custom, inner_name
from runtime.quoting import quoted
from runtime.records import dataclass

FIELDS = frozenset({"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"})
_WORDS = ("none", "auto", "required")
KINDS = ("function", "custom")


@dataclass(frozen=True, slots=True)
class Offered:
    """The tools of a request."""

    functions: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """As the model knows them."""
    client_tools: dict[str, ClientTool] = field(default_factory=dict[str, ClientTool])
    notes: list[str] = field(default_factory=list[str])
    """What cannot be enforced of them."""

    def add(self, given: Fields, kind: str, space: Fields | None = None) -> None:
        """One of KINDS. space: the namespace that it stands in. Refuses another tool under a name that the
        model knows already: of its calls nobody could say whose they are.
        """
        tool, note = custom(given) if kind == "custom" else (function(given), None)
        told, namespace = tool["function"], None if space is None else space.needed_text("name")
        client_tool = ClientTool(told["name"], namespace, kind == "custom")
        told["name"] = inner_name(client_tool.name, namespace)
        if space is not None and (about := space.text("description")):
            told["description"] = "\n\n".join(filter(None, (about, told.get("description"))))
        if self.client_tools.setdefault(told["name"], client_tool) != client_tool:
            said = f"two tools are {quoted(told['name'])} to the model; give one of them another name"
            raise refused("invalid_request", said, given.name("name"))
        self.functions.append(tool)
        self.notes.extend([note] if note else [])


def read_tools(body: Fields) -> Offered:
    """Of chat completions."""
    if body.raw("functions") and body.raw("function_call") != "none":
        raise refused("invalid_request", "functions is not offered; give them as tools", "functions")
    hints.check_hints(body, {"function_call": hints.text_or_thing})
    offered = Offered()
    for one in body.each("tools", MOST_TOOLS):
        kind = one.text("type", "function")
        if kind not in KINDS:
            name = one.name("type")
            said = f"{name} is {quoted(kind)}; only functions and custom tools are offered"
            raise refused("invalid_request", said, name)
        offered.add(one.inner(kind), kind)
    return offered


def chosen(body: Fields, offered: Offered) -> dict[str, Any]:
    """tools, tool_choice and parallel_tool_calls: keyword arguments of `Model.chat`."""
    tools, (choice, allowed) = offered.functions, _choice(body)
    together = body.flag("parallel_tool_calls")
    names = {tool["function"]["name"] for tool in tools}
    for name in allowed or [choice]:
        if name not in names and name not in _WORDS:
            said = f"tool_choice names {quoted(name)}, which is none of the tools"
            raise refused("invalid_request", said, "tool_choice")
    if allowed is not None:
        tools = [tool for tool in tools if tool["function"]["name"] in allowed]
    if not tools:
        body.idle("parallel_tool_calls")
        if choice == "required":
            raise refused("invalid_request", "tool_choice is 'required', and there is no tool", "tool_choice")
        return {}
    found: dict[str, Any] = {"tools": tools}
    if choice != "auto":
        found["tool_choice"] = choice
    if together is False:
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


def _choice(body: Fields) -> tuple[str, list[str] | None]:
    """A word of _WORDS or a tool's name; and which tools are open, where not all are."""
    value = body.raw("tool_choice")
    if value is None:
        return "auto", None
    if isinstance(value, str):
        return body.choice("tool_choice", _WORDS, "auto"), None
    given = body.inner("tool_choice")
    kind = given.text("type", "function")
    if kind in KINDS:
        inner = given.fields(kind)
        if inner is None and not given.has("name"):
            raise refused("invalid_request", f"tool_choice names no {kind}", "tool_choice")
        return _named(inner or given), None
    if kind == "allowed_tools":
        inner = given.fields("allowed_tools") or given
        return inner.choice("mode", ("auto", "required"), "auto"), [*_names(inner)]
    if kind in _WORDS:
        return kind, None
    raise given.wrong("type", "function, custom or allowed_tools")


def _names(given: Fields) -> Iterable[str]:
    """Tools that run elsewhere are not there, and a request without them goes on."""
    for one in given.each("tools", MOST_TOOLS):
        if (kind := one.text("type", "function")) in KINDS:
            yield _named(one.fields(kind) or one)


def _named(given: Fields) -> str:
    return inner_name(given.needed_text("name"), given.text("namespace"))
