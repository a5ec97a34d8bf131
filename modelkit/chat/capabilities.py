"""What a chat template can do, found out by rendering with it when a model is created.

Each feature is tried with a small conversation that carries marks; a mark that does not arrive in the
prompt, or an error, means that the template does not have the feature. A template that cannot even put a
user's message into a prompt is an error: better now than in the first chat.
"""

from collections.abc import Container, Sequence
from typing import Any

from modelkit.chat.message import Message, ToolCall
from modelkit.chat.styles.choice import Choice, choose
from modelkit.chat.styles.thinking import Thinking, thinking_of
from modelkit.chat.template import ChatTemplate
from modelkit.errors import TemplateError
from runtime.records import dataclass

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


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a template renders."""

    system: bool
    """Does a system message reach the prompt?"""
    tools: bool
    """Do tools, calls of them and their results, and is it known how the model writes calls?"""
    style: Choice
    """How the model's answers are marked."""
    thinks: Thinking
    """What thinking it offers."""
    variables: tuple[str, ...]
    """All variables that a caller may set."""

    @property
    def thinking(self) -> bool:
        """Does the model think?"""
        return self.thinks.can


def check_template(
    source: str,
    *,
    bos_token: str | None = None,
    eos_token: str | None = None,
    parser: str | None = None,
    tokens: Container[str] = (),
) -> Capabilities:
    """Compile a template and try it out. Raises TemplateError when a plain conversation fails in it."""
    return try_out(ChatTemplate(source, bos_token=bos_token, eos_token=eos_token), parser, tokens)


def try_out(template: ChatTemplate, parser: str | None = None, tokens: Container[str] = ()) -> Capabilities:
    """parser, tokens: as `choose` takes them. Raises TemplateError when a plain conversation fails in the
    template.
    """
    for messages, marks in (((_USER,), "1"), ((_USER, _ANSWER, _USER), "12")):
        if not _has(template.render(messages), marks):
            raise TemplateError("the chat template leaves out messages of a plain conversation")
    choice = choose(template, parser, tokens)
    template.style = choice.style
    calls = choice.style is not None and choice.style.form is not None
    return Capabilities(
        system=_renders(template, (_SYSTEM, _USER), "13"),
        tools=calls
        and _renders(template, (_USER,), "14", tools=True)
        and _renders(template, (_USER, _CALL, _RESULT), "1456", tools=True),
        style=choice,
        thinks=thinking_of(choice.style, template),
        variables=tuple(sorted(template.variables)),
    )


def _has(text: str, marks: str) -> bool:
    return all(_MARK + mark in text for mark in marks)


def _renders(template: ChatTemplate, messages: Sequence[Message], marks: str, *, tools: bool = False) -> bool:
    try:
        return _has(template.render(messages, tools=[_TOOL] if tools else None), marks)
    except TemplateError:
        return False
