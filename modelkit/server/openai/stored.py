"""Responses that a later request may go on from (`previous_response_id`), or that are read again.

They are in memory only, and the oldest leave when there are too many: a help for clients that rely on it, no
archive.
"""

import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request

from modelkit.chat.message import Message
from runtime.records import dataclass

MOST_RESPONSES = 256
MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Entry:
    written: dict[str, Any]
    """The object of the response."""
    said: Sequence[Message]
    """The conversation with its answer, without instructions."""
    nbytes: int
    """About what it takes."""


class Kept:
    """On the event loop's thread only."""

    def __init__(self, most: int = MOST_RESPONSES, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._bytes = 0

    def keep(self, written: dict[str, Any], said: Sequence[Message]) -> None:
        nbytes = len(json.dumps(written)) + sum(_size(message) for message in said)
        self._entries[written["id"]] = _Entry(written, said, nbytes)
        self._bytes += nbytes
        while len(self._entries) > self._most or self._bytes > self._most_bytes:
            self._bytes -= self._entries.popitem(last=False)[1].nbytes

    def conversation(self, id: str) -> Sequence[Message] | None:  # noqa: A002
        """None for a response that is not here (any more)."""
        entry = self._entries.get(id)
        return None if entry is None else entry.said

    def response(self, id: str) -> dict[str, Any] | None:  # noqa: A002
        """Its object; None for one that is not here."""
        entry = self._entries.get(id)
        return None if entry is None else entry.written

    def forget(self, id: str) -> dict[str, Any] | None:  # noqa: A002
        """What to say of it; None for one that is not here."""
        entry = self._entries.pop(id, None)
        if entry is None:
            return None
        self._bytes -= entry.nbytes
        return {"id": id, "object": "response", "deleted": True}


def kept_of(request: Request) -> Kept:
    """The server's own."""
    state = request.app.state
    if not hasattr(state, "responses"):
        state.responses = Kept()
    return state.responses


def _size(message: Message) -> int:
    calls = sum(len(str(call.arguments)) for call in message.tool_calls)
    return len(message.content) + len(message.thinking or "") + calls + 200
