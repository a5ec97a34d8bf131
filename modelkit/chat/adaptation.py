"""A conversation in the form that its template takes: `Habits` says which, this brings it there.

Nothing that a message says is lost, and nothing is added: texts move into a neighbouring message, calls and
their results are told apart, ids are rewritten, the same way each time. What needs no change goes as it is.
Messages that a template has no place for at all are not this room's matter (`placed` refuses them).
"""

import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import count, groupby, takewhile
from typing import Any

from modelkit.chat.habits import Habits
from modelkit.chat.message import Message, ToolCall

_SYSTEM = ("system", "developer")
_NINE = re.compile(r"[a-zA-Z0-9]{9}")
_NUMBERED = re.compile(r"functions\..+:\d+")


Write = Callable[[Sequence[ToolCall]], str | None]


def adapted(messages: Sequence[Message], habits: Callable[[], Habits], write: Write) -> list[dict[str, Any]]:
    """The dicts that the template reads. habits: asked only where something may have to change. write: calls
    as the model writes them, for a template that has no place for calls; None where that is not known.
    """
    if not any(_unusual(message, place) for place, message in enumerate(messages)):
        return [message.as_template() for message in messages]
    found = habits()
    talk = [*messages]
    if not found.developer:
        talk = [replace(one, role="system") if one.role == "developer" else one for one in talk]
    if not found.system_anywhere:
        talk = _folded(talk)
    talk = _with_ids(_answered(talk), found)
    if not found.calls:
        talk = [_spelt(message, write) for message in talk]
    elif not found.many_calls:
        talk = _one_by_one(talk)
    talk = [part for message in talk for part in _apart(message, found)]
    return [_rendered(message, found) for message in talk]


def _unusual(message: Message, place: int) -> bool:
    """Might some template want it otherwise?"""
    return (
        bool(message.tool_calls or message.thinking)
        or message.role in ("tool", "developer")
        or (message.role == "system" and place > 0)
    )


def _folded(messages: Sequence[Message]) -> list[Message]:
    """One system message, the first. A later one is text of the user's message before it, else of the one
    behind it, else a user's message of its own.

    What stands before decides first: so it reads the same once the conversation has gone on, and what was
    computed of it is found again.
    """
    first = [*takewhile(lambda message: message.role in _SYSTEM, messages)]
    talk = [replace(first[0], content=_joined(*(one.content for one in first)))] if first else []
    own, waiting = len(talk), list[str]()
    for message in messages[len(first) :]:
        if message.role in _SYSTEM:
            if len(talk) > own and talk[-1].role == "user":
                talk[-1] = replace(talk[-1], content=_joined(talk[-1].content, message.content))
            else:
                waiting.append(message.content)
        elif message.role == "user":
            talk.append(replace(message, content=_joined(*waiting, message.content)))
            waiting = []
        else:
            talk += [Message("user", _joined(*waiting)), message] if waiting else [message]
            waiting = []
    return [*talk, Message("user", _joined(*waiting))] if waiting else talk


def _joined(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)


def _answered(messages: Sequence[Message]) -> list[Message]:
    """Each result with the name of its function and the id of its call, where the conversation tells them:
    by the one that is there, else by the order of the calls. In that order they come, too: many templates
    write nothing else to tell them apart by.
    """
    calls: Sequence[ToolCall] = ()
    open_calls: list[ToolCall] = []
    talk: list[tuple[Message, int]] = []
    for message in messages:
        place = 0
        if message.tool_calls:
            calls, open_calls = message.tool_calls, [*message.tool_calls]
        if message.role == "tool":
            call, place = _call_of(message, open_calls), len(calls)
            if call is not None:
                open_calls.remove(call)
                place = next(at for at, one in enumerate(calls) if one is call)
                message = replace(
                    message, name=message.name or call.name, tool_call_id=message.tool_call_id or call.id
                )
        talk.append((message, place))
    turns = groupby(talk, lambda one: one[0].role)
    return [message for _, turn in turns for message, _ in sorted(turn, key=lambda one: one[1])]


def _call_of(result: Message, calls: Sequence[ToolCall]) -> ToolCall | None:
    if result.tool_call_id:
        tied = next((call for call in calls if call.id == result.tool_call_id), None)
        if tied is not None or any(call.id for call in calls):
            return tied
    if result.name:
        return next((call for call in calls if call.name == result.name), None)
    return next(iter(calls), None)


def _with_ids(messages: Sequence[Message], habits: Habits) -> list[Message]:
    """Ids of the kind that the template insists on, the same for a call and its result."""
    if habits.ids == "any":
        return [*messages]
    new = {"numbered": _numbered, "nine": _nine, "some": _some}[habits.ids]
    calls = [call for message in messages for call in message.tool_calls]
    whole = habits.ids == "numbered" and all(call.id and _NUMBERED.fullmatch(call.id) for call in calls)
    if whole:  # they count what this conversation may not have any more: nobody else could
        return [*messages]
    numbers, unnamed = count(), deque[str]()
    known: dict[str, str] = {}
    talk: list[Message] = []
    for message in messages:
        if message.tool_calls:
            unnamed.clear()
        made: list[ToolCall] = []
        for call in message.tool_calls:
            made.append(replace(call, id=new(call, next(numbers))))
            if call.id:
                known[call.id] = made[-1].id or ""
            else:
                unnamed.append(made[-1].id or "")
        tied = message.tool_call_id
        if message.role == "tool":
            tied = known.get(tied, tied) if tied else unnamed.popleft() if unnamed else None
            if habits.ids == "nine" and tied is not None:
                tied = _nine_of(tied)
        talk.append(replace(message, tool_calls=tuple(made), tool_call_id=tied))
    return talk


def _numbered(call: ToolCall, number: int) -> str:
    return f"functions.{call.name}:{number}"


def _some(call: ToolCall, number: int) -> str:
    return call.id or f"call_{number}"


def _nine(call: ToolCall, number: int) -> str:
    return _nine_of(call.id or f"{number}")


def _nine_of(text: str) -> str:
    return text if _NINE.fullmatch(text) else sha256(text.encode()).hexdigest()[:9]


def _one_by_one(messages: Sequence[Message]) -> list[Message]:
    """A message for each call, each with its own result behind it."""
    talk: list[Message] = []
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if len(message.tool_calls) < 2:
            talk.append(message)
            continue
        results = [*takewhile(lambda one: one.role == "tool", messages[place:])]
        place += len(results)
        talk.extend(_spread(message, results))
    return talk


def _spread(message: Message, results: Sequence[Message]) -> Iterator[Message]:
    left = [*results]
    for number, call in enumerate(message.tool_calls):
        yield (
            replace(message, tool_calls=(call,)) if number == 0 else Message("assistant", tool_calls=(call,))
        )
        tied = next((one for one in left if one.tool_call_id == call.id and call.id), None)
        if tied is None and left and not call.id:
            tied = left[0]
        if tied is not None:
            left.remove(tied)
            yield tied
    yield from left


def _spelt(message: Message, write: Write) -> Message:
    """With its calls as text."""
    text = write(message.tool_calls) if message.tool_calls else None
    if text is None:
        return message
    return replace(
        message, content=message.content + (text if message.content else text.lstrip()), tool_calls=()
    )


def _apart(message: Message, habits: Habits) -> list[Message]:
    """A message with calls in the form that the template writes whole."""
    if not message.tool_calls or not message.content.strip():
        return [message]
    if message.thinking and not habits.text_beside_thinking:
        return [replace(message, content="", thinking=_joined(message.thinking, message.content))]
    if not habits.text_beside_calls:
        return [replace(message, tool_calls=()), replace(message, content="", thinking=None)]
    return [message]


def _rendered(message: Message, habits: Habits) -> dict[str, Any]:
    made = message.as_template()
    if message.tool_calls:
        if habits.arguments == "text":
            for call, one in zip(message.tool_calls, made["tool_calls"], strict=True):
                one["function"]["arguments"] = _written(call)
        if habits.null_beside_calls and not message.content:
            made["content"] = None
    if message.thinking and habits.thinking == "parts":
        made["content"] = [
            {"type": "thinking", "thinking": message.thinking},
            *([{"type": "text", "text": message.content}] if message.content else []),
        ]
    return made


def _written(call: ToolCall) -> str:
    if call.written is not None:
        return call.written
    arguments: Mapping[str, Any] = call.arguments
    return json.dumps(arguments, ensure_ascii=False)
