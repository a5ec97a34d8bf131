"""One message of a conversation, and how it is read from outside.

The shapes of Ollama and OpenAI are both read: `thinking` may be called `reasoning_content` or `reasoning`, a
tool message's `name` may be `tool_name`, tool arguments may be an object or its JSON text, and `content` may
be a list of text parts. Anything else is an error: a key that is
passed over in silence would hide a mistake.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from modelkit import arguments as at_door
from modelkit.arguments import elements, refused
from modelkit.chat.plain_data import plain
from modelkit.errors import RequestError
from modelkit.python_faults import fault
from runtime.quoting import quoted
from runtime.records import dataclass

ROLES = ("system", "developer", "user", "assistant", "tool")
MOST_MESSAGES = 10_000
MOST_CALLS = 256
_MOST_MARKS = 300_000

_THINKING = ("thinking", "reasoning_content", "reasoning")
_KEYS = frozenset({"role", "content", "tool_calls", "name", "tool_name", "tool_call_id", *_THINKING})
_MEDIA = frozenset({"images", "audio", "videos"})


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The assistant's wish to call a function."""

    name: str
    """Of the function."""
    arguments: Mapping[str, Any]
    """A JSON object."""
    id: str | None = None
    """Ties the answer to the call."""
    written: str | None = None
    """What the model wrote for arguments, where that is not a JSON object; `arguments` is empty then."""

    def __post_init__(self) -> None:
        if not _text(self.name, "the tool call's name"):
            raise RequestError("a tool call has no name")
        _text(self.id, "the tool call's id")
        _text(self.written, "what was written for the tool call")
        if not isinstance(self.arguments, Mapping):
            raise refused("the tool call's arguments", self.arguments, "an object")
        object.__setattr__(self, "arguments", plain(self.arguments, "the tool call's arguments"))

    @classmethod
    def read(cls, value: object, where: str) -> "ToolCall":
        """From `{"function": {"name", "arguments"}}`, with or without `id` and `type`."""
        call = _object(value, where, {"id", "type", "function"})
        function = _object(call.get("function"), f"{where}.function", {"name", "arguments", "index"})
        name = _text(function.get("name"), f"{where}.function.name")
        if not name:
            raise RequestError(f"{where}.function.name is missing")
        if call.get("type", "function") != "function":
            raise refused(f"{where}.type", call["type"], "'function'")
        arguments = _arguments(function.get("arguments"), f"{where}.function.arguments")
        return cls(name, arguments, _text(call.get("id"), f"{where}.id"))

    def as_template(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": dict(self.arguments)}
        return {**({"id": self.id} if self.id else {}), "type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str
    """One of ROLES."""
    content: str = ""
    thinking: str | None = None
    """What the assistant thought before this answer."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Only of the assistant."""
    name: str | None = None
    """Of a tool message: the function whose result it is."""
    tool_call_id: str | None = None
    """Of a tool message: the `id` of the call that it answers."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "role", _role(self.role, "the message"))
        object.__setattr__(self, "content", at_door.text(self.content, "the message's content"))
        for field in ("thinking", "name", "tool_call_id"):
            object.__setattr__(self, field, _text(getattr(self, field), f"the message's {field}"))
        calls = tuple(elements(self.tool_calls, "the message's tool_calls", "ToolCalls"))
        for place, call in enumerate(calls):
            if not isinstance(call, ToolCall):
                raise refused(f"the message's tool_calls[{place}]", call, "a ToolCall")
        object.__setattr__(self, "tool_calls", calls)
        if self.tool_calls and self.role != "assistant":
            raise RequestError(f"a {self.role} message has tool_calls; only the assistant calls tools")

    @classmethod
    def read(cls, value: "Message | Mapping[str, Any]", where: str = "the message") -> "Message":
        """A Message as it is, or one from a dict. Raises RequestError, naming `where`."""
        if isinstance(value, Message):
            return value
        given = _object(value, where, _KEYS)
        thoughts = [
            at_door.text(given[key], f"{where}.{key}") for key in _THINKING if given.get(key) is not None
        ]
        # Clients send an empty reasoning_content beside the reasoning itself.
        thinking = next(filter(None, thoughts), "" if thoughts else None)
        name = given.get("name") if given.get("name") is not None else given.get("tool_name")
        return cls(
            role=_role(given.get("role"), where),
            content=_content(given.get("content"), f"{where}.content"),
            thinking=thinking,
            tool_calls=_tool_calls(given.get("tool_calls"), f"{where}.tool_calls"),
            name=_text(name, f"{where}.name"),
            tool_call_id=_text(given.get("tool_call_id"), f"{where}.tool_call_id"),
        )

    def as_template(self) -> dict[str, Any]:
        """The dict that a chat template reads. Keys not set are left out: templates ask what is defined.

        Thinking stands under all names that templates use for it.
        """
        message: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.thinking is not None:
            message |= dict.fromkeys(_THINKING, self.thinking)
        if self.tool_calls:
            message["tool_calls"] = [call.as_template() for call in self.tool_calls]
        if self.name is not None:
            message["name"] = self.name
        if self.tool_call_id is not None:
            message["tool_call_id"] = self.tool_call_id
        return message


def arguments_of(written: str) -> dict[str, Any] | None:
    """The arguments that a call was written with. None where they are no JSON object, or one that no prompt
    and no answer can hold: nested too deep, or with a number beyond a float's.
    """
    where = "the tool call's arguments"
    try:
        value = _loads(written, where)  # "" is none: the answer was cut off before the arguments
        return plain(value, where) if isinstance(value, dict) else None
    except (ValueError, RecursionError, RequestError):
        return None


def call_as_written(name: str, written: str, id: str | None) -> ToolCall:  # noqa: A002
    """A call with what was written for its arguments, whatever that is: what a model wrote once is no reason
    to lose its answer, nor the conversation behind it.
    """
    arguments = arguments_of(written)
    return ToolCall(name, {}, id, written) if arguments is None else ToolCall(name, arguments, id)


def read_messages(values: Iterable[Message | Mapping[str, Any]]) -> tuple[Message, ...]:
    """A conversation. Raises RequestError where one message is wrong, or when there are too many or none."""
    messages: list[Message] = []
    for number, value in enumerate(elements(values, "messages", "messages with a role and content")):
        if number == MOST_MESSAGES:
            raise RequestError(f"a conversation may have at most {MOST_MESSAGES:,} messages")
        messages.append(Message.read(value, f"messages[{number}]"))
    if not messages:
        raise RequestError(
            "messages is empty, expected at least one",
            hint='Give at least one: {"role": "user", "content": "..."}.',
        )
    return tuple(messages)


def _object(value: object, where: str, keys: Iterable[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise refused(where, value, "an object")
    for key in value:
        if not isinstance(key, str):
            raise refused(f"a key of {where}", key, "a text")
        if key in _MEDIA:
            raise RequestError(f"{where} has {key}, and this version reads text only")
        if key not in keys:
            raise RequestError(f"{where} has an unknown key {quoted(key)}; known: {', '.join(sorted(keys))}")
    return value


def _role(value: object, where: str) -> str:
    if not isinstance(value, str) or value not in ROLES:
        raise RequestError(f"{where}.role is {quoted(value)}; roles are {', '.join(ROLES)}")
    return str.__str__(value)


def _text(value: object, where: str) -> str | None:
    return at_door.optional(at_door.text, value, where)


def _content(value: object, where: str) -> str:
    """Text, or a list of text parts put together; nothing is the empty text."""
    if not isinstance(value, list | tuple):
        return _text(value, where) or ""
    texts: list[str] = []
    for number, part in enumerate(value):
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind != "text":
            raise RequestError(f"{where}[{number}] is of type {quoted(kind)}; only text parts are read")
        text = _text(
            _object(part, f"{where}[{number}]", {"type", "text"}).get("text"), f"{where}[{number}].text"
        )
        texts.append(text or "")
    return "".join(texts)


def _tool_calls(value: object, where: str) -> tuple[ToolCall, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or len(value) > MOST_CALLS:
        raise refused(where, value, f"a list of at most {MOST_CALLS} calls")
    return tuple(ToolCall.read(call, f"{where}[{number}]") for number, call in enumerate(value))


def _loads(written: str, where: str) -> Any:
    """JSON that stands in a text, where no bound of a request's body counts it. Its reader holds the
    interpreter's lock from the first byte to the last: what holds more than any call does is not read.
    """
    if sum(map(written.count, "{[:,")) > _MOST_MARKS:
        raise RequestError(f"{where}: more than {_MOST_MARKS:,} fields and values are not read")
    return json.loads(written)


def _arguments(value: object, where: str) -> dict[str, Any]:
    """An object, or the JSON text of one (OpenAI's way); nothing is the empty object."""
    if isinstance(value, str):
        try:
            value = _loads(value, where) if value.strip() else {}
        except (ValueError, RecursionError) as error:
            raise RequestError(f"{where} is not valid JSON: {fault(error)}") from error
    if not isinstance(value, Mapping | None):
        raise refused(where, value, "an object")
    return plain(value or {}, where)
