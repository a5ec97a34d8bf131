"""What a chat template can do, found out by rendering with it when a model is created.

Each feature is tried with a small conversation that carries marks; a mark that does not arrive in the
prompt, or an error, means that the template does not have the feature. A template that cannot even put a
user's message into a prompt is an error: better now than in the first chat.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from modelkit.chat.message import Message, ToolCall
from modelkit.chat.template import ChatTemplate
from modelkit.errors import TemplateError

_MARK = "markofkit"
_USER = Message("user", f"user {_MARK}1")
_ANSWER = Message("assistant", f"answer {_MARK}2")
_SYSTEM = Message("system", f"system {_MARK}3")
_CALL = Message("assistant", tool_calls=(ToolCall(f"{_MARK}4", {"city": f"{_MARK}5"}, "abcdef123"),))
_RESULT = Message("tool", f"result {_MARK}6", name=f"{_MARK}4", tool_call_id="abcdef123")
_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": f"{_MARK}4",
        "description": "Looks up the weather.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Name of a city."}},
            "required": ["city"],
        },
    },
}
_SWITCHES: dict[str, tuple[Any, Any]] = {
    "enable_thinking": (False, True),
    "thinking": (False, True),
    "reasoning_effort": ("low", "high"),
}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a template renders."""

    system: bool
    """Does a system message reach the prompt?"""
    tools: bool
    """Do tools, calls of them and their results?"""
    thinking: bool
    """Can the assistant's thinking be switched, or is it told apart?"""
    thinking_switch: str | None
    """The variable that turns thinking on and off, or sets its effort; None if there is none."""
    variables: tuple[str, ...]
    """All variables that a caller may set."""


def check_template(
    source: str, *, bos_token: str | None = None, eos_token: str | None = None
) -> Capabilities:
    """Compile a template and try it out. Raises TemplateError when a plain conversation fails in it."""
    return try_out(ChatTemplate(source, bos_token=bos_token, eos_token=eos_token))


def try_out(template: ChatTemplate) -> Capabilities:
    """Raises TemplateError when a plain conversation fails in the template."""
    source = template.source
    for messages, marks in (((_USER,), "1"), ((_USER, _ANSWER, _USER), "12")):
        if not _has(template.render(messages), marks):
            raise TemplateError("the chat template leaves out messages of a plain conversation")
    switch = next(
        (name for name in _SWITCHES if name in template.variables and _switches(template, name)), None
    )
    return Capabilities(
        system=_renders(template, (_SYSTEM, _USER), "13"),
        tools=_renders(template, (_USER,), "14", tools=True)
        and _renders(template, (_USER, _CALL, _RESULT), "1456", tools=True),
        thinking=switch is not None or "reasoning_content" in source or "<think>" in source,
        thinking_switch=switch,
        variables=tuple(sorted(template.variables)),
    )


def _has(text: str, marks: str) -> bool:
    return all(_MARK + mark in text for mark in marks)


def _renders(template: ChatTemplate, messages: Sequence[Message], marks: str, *, tools: bool = False) -> bool:
    try:
        return _has(template.render(messages, tools=[_TOOL] if tools else None), marks)
    except TemplateError:
        return False


def _switches(template: ChatTemplate, name: str) -> bool:
    off, on = _SWITCHES[name]
    try:
        return template.render([_USER], variables={name: off}) != template.render(
            [_USER], variables={name: on}
        )
    except TemplateError:
        return False
