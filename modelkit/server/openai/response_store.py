"""Responses that a later request may go on from (`previous_response_id`), or that are read again.

They are in memory only, and the oldest leave when there are too many: a help for clients that rely on it, no
archive.
"""

import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from starlette.requests import Request

from modelkit.chat.message import Message
from modelkit.server.conversation import message_size
from runtime.records import dataclass

MOST_RESPONSES = 256
MOST_BYTES = 64 * 1024 * 1024
Items = Mapping[str, bytes]
"""Items of a conversation in their order, by their ids: each as its JSON."""


@dataclass(frozen=True, slots=True)
class _Entry:
    written: dict[str, Any]
    """The object of the response."""
    said: Sequence[Message] | None
    """The conversation with its answer, without instructions; None for an answer that has no end."""
    items: Items
    """The same as it is listed, the answer's items included."""
    events: Sequence[bytes]
    """Those of its stream, by their numbers, where they are kept."""
    nbytes: int
    """About what it takes."""


class Coming(Protocol):
    """A response on its way."""

    @property
    def items(self) -> Items:
        """Those of its input."""
        ...

    def written(self) -> dict[str, Any]:
        """Its object, as far as it is."""
        ...

    def watch(self, place: int, heartbeat_s: float) -> AsyncIterator[bytes]:
        """The events of its stream from that number on, to its end."""
        ...

    async def cancel(self) -> None:
        """Until it has ended, and is kept."""
        ...


class Kept:
    """On the event loop's thread only, but for what only looks. running: responses that are not kept yet, by
    their ids.
    """

    def __init__(self, most: int = MOST_RESPONSES, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._bytes = 0
        self.running: dict[str, Coming] = {}

    def keep(
        self,
        written: dict[str, Any],
        said: Sequence[Message] | None,
        items: Items,
        events: Sequence[bytes] = (),
    ) -> None:
        """items: those of its input."""
        items = {**items, **{one["id"]: json.dumps(one).encode() for one in written["output"]}}
        nbytes = len(json.dumps(written)) + sum(message_size(message) for message in said or ())
        nbytes += sum(len(one) + 100 for one in (*items.values(), *events))
        self._entries[written["id"]] = _Entry(written, said, items, events, nbytes)
        self._bytes += nbytes
        while len(self._entries) > self._most or self._bytes > self._most_bytes:
            self._bytes -= self._entries.popitem(last=False)[1].nbytes

    def conversation(self, id: str) -> Sequence[Message] | None:  # noqa: A002
        """None for a response that is not here (any more), or has no end."""
        entry = self._entries.get(id)
        return None if entry is None else entry.said

    def items(self, id: str) -> Items | None:  # noqa: A002
        """Those of that conversation, the answer's included."""
        entry = self._entries.get(id)
        return None if entry is None else entry.items

    def inputs(self, id: str) -> Items | None:  # noqa: A002
        """Those of them that it is an answer to."""
        if (running := self.running.get(id)) is not None:
            return running.items
        entry = self._entries.get(id)
        if entry is None:
            return None
        made = {one["id"] for one in entry.written["output"]}
        return {name: item for name, item in entry.items.items() if name not in made}

    def item(self, id: str) -> bytes | None:  # noqa: A002
        """One of any conversation."""
        found = (entry.items.get(id) for entry in reversed([*self._entries.values()]))
        return next((one for one in found if one is not None), None)

    def events(self, id: str) -> Sequence[bytes]:  # noqa: A002
        """Those of its stream; none where they are not kept."""
        entry = self._entries.get(id)
        return () if entry is None else entry.events

    def response(self, id: str) -> dict[str, Any] | None:  # noqa: A002
        """Its object; None for one that is not here."""
        if (running := self.running.get(id)) is not None:
            return running.written()
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
