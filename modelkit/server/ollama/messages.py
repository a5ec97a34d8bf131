"""The conversation and the tools of `/api/chat`.

Fields that carry nothing are let pass; what carries pictures is refused by its place.
"""

from typing import Any

from modelkit.chat.message import MOST_CALLS, MOST_MESSAGES, ROLES, Message, ToolCall
from modelkit.chat.template import MOST_TOOLS
from modelkit.server.conversation import call_of, without_blank_end
from modelkit.server.faults import refused
from modelkit.server.fields import Fields

_MEDIA = ("images", "audio", "videos")
_TEXT_ONLY = "this server reads text only"


def read_messages(body: Fields) -> list[Message]:
    """`messages`, [] where there are none."""
    found = [_message(one) for one in body.each("messages", MOST_MESSAGES)]
    return without_blank_end(found) if found else []


def read_tools(body: Fields) -> list[dict[str, Any]]:
    """`tools` as templates have them, [] where there are none."""
    return [_tool(one) for one in body.each("tools", MOST_TOOLS)]


def refuse_media(given: Fields) -> None:
    for field in _MEDIA:
        given.refuse(field, _TEXT_ONLY)


def _message(given: Fields) -> Message:
    role = given.choice("role", ROLES)
    if role is None:
        raise given.wrong("role", f"one of {', '.join(ROLES)}")
    refuse_media(given)
    content = given.text("content", "")
    if role == "tool":
        name = given.text("tool_name") or given.text("name")
        return Message(role, content, name=name or None, tool_call_id=given.text("tool_call_id") or None)
    if role != "assistant":
        return Message(role, content)
    return Message(role, content, given.text("thinking") or None, tuple(_calls(given)))


def _calls(given: Fields) -> list[ToolCall]:
    return [_call(one) for one in given.each("tool_calls", MOST_CALLS)]


def _call(given: Fields) -> ToolCall:
    given.nothing("type")
    function = given.inner("function")
    function.nothing("index")
    written, where = function.raw("arguments"), function.name("arguments")
    return call_of(function.needed_text("name"), written, given.text("id") or None, where)


def _tool(given: Fields) -> dict[str, Any]:
    """As it came: templates print schemas, and clients know what their models were trained on."""
    if given.text("type", "function") != "function":
        raise refused("invalid_request", f"{given.name('type')} must be 'function'", given.name("type"))
    function = given.inner("function")
    function.needed_text("name")
    if (parameters := function.fields("parameters")) is not None:
        parameters.nothing(*parameters.peek)  # as it came, too
    written = {key: value for key, value in function.value.items() if value is not None}
    return {"type": "function", "function": written}
