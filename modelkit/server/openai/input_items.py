"""The items of a response's input, put together into messages."""

from collections.abc import Iterable

from modelkit.chat.message import MOST_CALLS, MOST_MESSAGES, Message, ToolCall
from modelkit.server.conversation import call_of
from modelkit.server.faults import refused
from modelkit.server.fields import Fields
from modelkit.server.openai.client_tools import inner_name
from modelkit.server.openai.messages import text_of
from modelkit.server.openai.response_items import SEAL
from modelkit.server.openai.updates import UPDATE
from runtime.quoting import quoted

ROLES = ("system", "developer", "user", "assistant")
ADDED = "additional_tools"
"""An item that says nothing: from there on, there are these too."""
_CALLS = ("function_call", "custom_tool_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")


class Turns:
    """Messages, the last of which may be the assistant's that items are still added to."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[ToolCall] = []

    @property
    def messages(self) -> list[Message]:
        self._end()
        return self._messages

    def add(self, message: Message) -> None:
        """A whole one, of somebody else."""
        self._end()
        self._messages.append(message)

    def think(self, text: str) -> None:
        if self._text or self._calls:
            self._end()  # it begins the next turn
        self._thinking.append(text)

    def say(self, text: str) -> None:
        if self._calls:
            self._end()
        self._text.append(text)

    def call(self, call: ToolCall) -> None:
        self._calls.append(call)

    def _end(self) -> None:
        if self._text or self._calls or self._thinking:
            thinking = "\n".join(self._thinking) or None
            content = "".join(self._text)
            self._messages.append(Message("assistant", content, thinking, tuple(self._calls)))
        self._text, self._thinking, self._calls = [], [], []


def read_items(items: Iterable[Fields], turns: Turns) -> None:
    """In their order. Raises Refused for one that carries what this server cannot read."""
    calls = 0
    for number, item in enumerate(items):
        kind = item.text("type", "message")
        calls += kind in _CALLS
        if number == MOST_MESSAGES or calls > MOST_CALLS * 16:
            raise refused("invalid_request", f"input has more than {MOST_MESSAGES:,} items", "input")
        _item(item, kind, turns)


def _item(item: Fields, kind: str, turns: Turns) -> None:
    if kind == "message":
        _message(item, turns)
    elif kind in _CALLS:
        turns.call(_call(item, kind))
    elif kind in _RESULTS:
        output = text_of(item, "output")
        turns.add(Message("tool", output, tool_call_id=item.needed_text("call_id")))
    elif kind == "reasoning":
        if thought := _thought(item):
            turns.think(thought)
    elif kind == "compaction":
        turns.add(Message("system", f"Summary of the conversation so far:\n\n{_summary(item)}"))
    elif kind == ADDED:
        item.nothing("role")
    elif kind == UPDATE:  # it says nothing; `updates` reads it
        return
    else:
        where = item.name("type")
        raise refused("invalid_request", f"{where} is {quoted(kind)}, which this server does not read", where)


def _message(item: Fields, turns: Turns) -> None:
    role = item.choice("role", ROLES)
    if role is None:
        raise item.wrong("role", f"one of {', '.join(ROLES)}")
    text = text_of(item, "content")
    if role == "assistant":
        turns.say(text)
    else:
        turns.add(Message(role, text))


def _call(item: Fields, kind: str) -> ToolCall:
    name, id = item.needed_text("name"), item.text("call_id") or None  # noqa: A001
    name = inner_name(name, item.text("namespace"))
    if kind == "custom_tool_call":
        return ToolCall(name, {"input": item.text("input", "")}, id)
    return call_of(name, item.raw("arguments"), id, item.name("arguments"))


def _thought(item: Fields) -> str:
    """Its own text, else what this server has put into the sealed field, else the summary."""
    if text := text_of(item, "content"):
        return text
    sealed = item.text("encrypted_content", "")
    if sealed.startswith(SEAL):
        return sealed.removeprefix(SEAL)
    return text_of(item, "summary")


def _summary(item: Fields) -> str:
    """What `/v1/responses/compact` has put into it."""
    sealed = item.needed_text("encrypted_content")
    if not sealed.startswith(SEAL):
        where = item.name("encrypted_content")
        raise refused("invalid_request", f"{where}: only who has made a compaction can read it", where)
    return sealed.removeprefix(SEAL)
