"""How a chat template wants to be given a conversation: found out by rendering, as `capabilities` does.

Templates agree on messages with a role and a text, and on little else. One wants a call's arguments as an
object, another as its JSON text; one writes calls only where the content is null; one refuses two calls in a
message, ids that are not nine letters and digits, a system message in the middle, or text beside thinking.
Each such habit is tried with a small conversation that carries marks: a way counts as the template's where
all marks arrive in the prompt.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from modelkit.chat.time_limit import TimeLimit
from modelkit.errors import TemplateError
from runtime.records import dataclass

Render = Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]] | None], str]
"""Messages and tools as the template reads them, to the prompt. Raises TemplateError."""

_MARK = "markofkit"
_NAME, _KEY, _VALUE = f"{_MARK}name", f"{_MARK}key", f"{_MARK}value"
_SAID, _THOUGHT, _RULE, _OTHER = f"{_MARK}said", f"{_MARK}thought", f"{_MARK}rule", f"{_MARK}other"
_USER = {"role": "user", "content": f"{_MARK}user"}
_NINE = "abcdef123", "abcdef124"
_LONG = "call_Ab12Cd34Ef56"
_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "Looks up the weather.",
        "parameters": {
            "type": "object",
            "properties": {_KEY: {"type": "string", "description": "Name of a city."}},
            "required": [_KEY],
        },
    },
}


@dataclass(frozen=True, slots=True)
class Habits:
    """What is said here is what holds for a template of the usual kind."""

    calls: bool = True
    """Does it write the assistant's calls at all?"""
    arguments: Literal["object", "text"] = "object"
    """As what it takes a call's arguments: the object, or its JSON text."""
    null_beside_calls: bool = False
    """Does it write calls only where the content beside them is null, not the empty text?"""
    text_beside_calls: bool = True
    """Does it write both the text and the calls of one message? Also true of one that leaves out the text and
    takes no two messages of the assistant in a row."""
    text_beside_thinking: bool = True
    """Does it take thinking and text in one message with calls?"""
    many_calls: bool = True
    """Does it take more than one call in a message?"""
    ids: Literal["any", "some", "nine", "numbered"] = "any"
    """Which ids of calls it takes. any: and none. some: there has to be one. nine: nine letters and digits
    (Mistral). numbered: functions.NAME:NUMBER with a number that counts through the conversation (Kimi).
    """
    developer: bool = False
    """Does it know the role "developer"?"""
    system_anywhere: bool = True
    """Does it write system messages that are not the very first message?"""
    bare_tools: bool = True
    """Does it take tools that have no description, no parameters, none of these named, or not described?"""
    null_types: bool = True
    """Does it take parameters of type ["string", "null"]?"""
    tools_in_system: bool = False
    """Does it read tools from the system message, as JSON text under the key "tools" (Phi-4)?"""
    thinking: Literal["field", "parts"] = "field"
    """Where it reads thinking: a field of the message, or a part of its content (Ministral)."""


def find_habits(render: Render, source: str) -> Habits:
    """`render` without anything adapted. Some dozen renderings of a few messages."""
    probe = _Probe(render)
    calls = _calls(probe)
    return Habits(
        **(calls or {"calls": False}),
        ids=_ids(probe, source, calls),
        developer='"developer"' in source or "'developer'" in source,
        system_anywhere=_system_anywhere(probe),
        bare_tools=all(probe.takes(tool) for tool in _bare()),
        null_types=probe.takes(_of_type(["string", "null"], description="Name of a city.")),
        tools_in_system=_tools_in_system(probe),
        thinking=_thinking(probe, calls),
    )


def _bare() -> Iterator[dict[str, Any]]:
    """The tool without one thing or another."""
    whole: dict[str, Any] = _TOOL["function"]
    for key in ("description", "parameters"):
        yield {"type": "function", "function": {name: one for name, one in whole.items() if name != key}}
    yield {"type": "function", "function": {**whole, "parameters": {"type": "object"}}}
    yield _of_type("string")


def _of_type(said: str | list[str], **more: str) -> dict[str, Any]:
    """The tool with one parameter."""
    parameters = {"type": "object", "properties": {_KEY: {"type": said, **more}}, "required": [_KEY]}
    return {"type": "function", "function": {**_TOOL["function"], "parameters": parameters}}


class _Probe:
    def __init__(self, render: Render) -> None:
        self._render, self._time_limit = render, TimeLimit()

    def has(self, messages: Sequence[Mapping[str, Any]], *marks: str, tools: bool = False) -> bool:
        """Do the marks arrive, and nothing as Python would print it or as JSON within JSON?"""
        if self._time_limit.over:
            return False
        try:
            text = self._render(messages, [_TOOL] if tools else None)
        except TemplateError:
            return False
        said = text.rpartition(_USER["content"])[2]  # before it the tools, in whatever form
        wrong = (f"{{'{_KEY}'", f'{{\\"{_KEY}', "'type': 'thinking'", '"type": "thinking"')
        return all(mark in text for mark in marks) and not any(one in said for one in wrong)

    def takes(self, tool: Mapping[str, Any]) -> bool:
        """True also where it takes no tools at all."""
        if self._time_limit.over:
            return True
        try:
            self._render([_USER], [_TOOL])
        except TemplateError:
            return True
        try:
            return _NAME in self._render([_USER], [tool]) or _NAME not in self._render([_USER], [_TOOL])
        except TemplateError:
            return False

    def calls(self, *marks: str, calls: int = 1, **given: Any) -> bool:
        """Does a conversation with calls and their results arrive?"""
        ids: Sequence[str | None] = given.pop("ids", _NINE)
        results = [
            {"role": "tool", "content": f"{_MARK}r{n}", "name": _NAME, **_given("tool_call_id", ids[n])}
            for n in range(calls)
        ]
        wanted = (_NAME, _KEY, *(f"{_VALUE}{n}" for n in range(calls)), *marks)
        return self.has([_USER, asking(ids, calls, **given), *results], *wanted, tools=True)

    def apart(self, **given: Any) -> bool:
        """Do a text and calls arrive as two messages of the assistant, and what follows them?"""
        said, answered = ({"role": "assistant", "content": mark} for mark in (_SAID, _OTHER))
        result = {"role": "tool", "content": f"{_MARK}r0", "name": _NAME, "tool_call_id": _NINE[0]}
        talk = [_USER, said, asking(_NINE, 1, **given), result, answered, _USER]
        return self.has(talk, _SAID, _NAME, f"{_VALUE}0", _OTHER, tools=True)


def _given(key: str, value: str | None) -> dict[str, str]:
    return {} if value is None else {key: value}


def asking(
    ids: Sequence[str | None], calls: int, *, text: bool, content: str | None, **more: Any
) -> dict[str, Any]:
    """An assistant's message with calls."""
    written = [f'{{"{_KEY}": "{_VALUE}{number}"}}' for number in range(calls)]
    made = [
        {
            **_given("id", ids[number]),
            "type": "function",
            "function": {
                "name": _NAME,
                "arguments": written[number] if text else {_KEY: f"{_VALUE}{number}"},
            },
        }
        for number in range(calls)
    ]
    return {"role": "assistant", "content": content, "tool_calls": made, **more}


def _calls(probe: _Probe) -> dict[str, Any] | None:
    """How calls arrive; None where they do not in any way."""
    for content in ("", None):
        for text in (False, True):
            if not probe.calls(text=text, content=content):
                continue
            both: dict[str, Any] = {"thinking": _THOUGHT, "reasoning_content": _THOUGHT}
            return {
                "arguments": "text" if text else "object",
                "null_beside_calls": content is None,
                "text_beside_calls": probe.calls(_SAID, text=text, content=_SAID)
                or not probe.apart(text=text, content=content),
                "text_beside_thinking": probe.calls(text=text, content=_SAID, **both)
                or not probe.calls(text=text, content=content, **both),
                "many_calls": probe.calls(text=text, content=content, calls=2),
            }
    return None


def _ids(
    probe: _Probe, source: str, calls: Mapping[str, Any] | None
) -> Literal["any", "some", "nine", "numbered"]:
    if "<|tool_call_argument_begin|>" in source:
        return "numbered"
    if calls is None:
        return "any"
    content = None if calls["null_beside_calls"] else ""

    def takes(one: str | None) -> bool:
        return probe.calls(text=calls["arguments"] == "text", content=content, ids=[one])

    return "nine" if not takes(_LONG) else "any" if takes(None) else "some"


def _tools_in_system(probe: _Probe) -> bool:
    holding = {"role": "system", "content": _RULE, "tools": _NAME}
    return probe.has([holding, _USER], _RULE, _NAME) and not probe.has([_USER], _NAME, tools=True)


def _system_anywhere(probe: _Probe) -> bool:
    """Or has it no system messages at all: then nothing would be won by moving them."""
    first, late = ({"role": "system", "content": mark} for mark in (_RULE, _OTHER))
    answer = {"role": "assistant", "content": _SAID}
    return probe.has([first, late, _USER], _RULE, _OTHER) and probe.has([_USER, answer, late, _USER], _OTHER)


def _thinking(probe: _Probe, calls: Mapping[str, Any] | None) -> Literal["field", "parts"]:
    fields: dict[str, Any] = {
        "content": _SAID,
        "thinking": _THOUGHT,
        "reasoning_content": _THOUGHT,
        "reasoning": _THOUGHT,
    }
    parts = [{"type": "thinking", "thinking": _THOUGHT}, {"type": "text", "text": _SAID}]

    def arrives(message: dict[str, Any]) -> bool:
        if probe.has([_USER, {"role": "assistant", **message}], _THOUGHT, _SAID):
            return True
        return calls is not None and probe.calls(_THOUGHT, text=calls["arguments"] == "text", **message)

    return "parts" if not arrives(fields) and arrives({"content": parts}) else "field"
