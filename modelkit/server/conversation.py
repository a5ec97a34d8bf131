"""What all dialects do with a conversation that a client sends: calls and their results, its end, its size,
and the wish for a summary of it.
"""

import json
from collections.abc import Sequence
from dataclasses import replace

from modelkit.chat.message import Message, ToolCall, call_as_written
from modelkit.server.fields import wrong

_ASKED = (
    "Write a summary of the conversation up to here. It takes the place of the conversation, so put into it "
    "what was asked for, what was found, decided and done, with names and numbers as they are, and what is "
    "still to do. Answer with the summary alone."
)


class Calls:
    """Those of a conversation, as far as it was read. The services refuse a result that belongs to none:
    models were never trained on one, and a client that sends it has lost a part of the conversation.
    """

    def __init__(self) -> None:
        self._ids = set[str | None]()

    def lack(self, message: Message) -> bool:
        """Read one message more: is it a result without a call in front of it? A call that has no id, as
        older clients write it, may be any result's; and so may any call where the result has none.
        """
        self._ids.update(call.id or None for call in message.tool_calls)
        if message.role != "tool" or None in self._ids:
            return False
        return message.tool_call_id not in self._ids if message.tool_call_id else not self._ids


def call_of(name: str, written: object, id: str | None, where: str) -> ToolCall:  # noqa: A002
    """A call of a tool. Arguments that are no JSON object, or one that no prompt can hold, stay as they were
    written: an answer that went wrong once would otherwise end the conversation for good.
    """
    if written is not None and not isinstance(written, str | dict):
        raise wrong(where, written, "an object, or its JSON text")
    text = json.dumps(written) if isinstance(written, dict) else written or ""
    return call_as_written(name, text if text.strip() else "{}", id)


def without_blank_end(messages: list[Message]) -> list[Message]:
    """A last message of the assistant that says nothing is not the beginning of an answer."""
    last = replace(messages[-1], content=messages[-1].content.strip())
    return messages[:-1] if len(messages) > 1 and last == Message("assistant") else messages


def with_wish(messages: Sequence[Message], wish: str = "") -> list[Message]:
    """The conversation with the wish for a summary of it; "" for our own words."""
    last, wish = messages[-1], wish or _ASKED
    if last.role == "user":
        return [*messages[:-1], replace(last, content=f"{last.content}\n\n{wish}")]
    return [*messages, Message("user", wish)]


def message_size(message: Message) -> int:
    """About what it takes, in bytes."""
    calls = sum(len(str(call.arguments)) for call in message.tool_calls)
    return len(message.content) + len(message.thinking or "") + calls + 200
