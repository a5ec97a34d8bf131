"""Responses in OpenAI's words: the object, and the events of a stream with their sequence numbers."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import time
from typing import Any

from modelkit.answers.generation import Finish, Generation
from modelkit.chat.message import Message
from modelkit.output.events import Event
from modelkit.server.ask import Started
from modelkit.server.faults import Fault
from modelkit.server.openai.answer_head import whole_answer
from modelkit.server.openai.response_items import Events, Items
from modelkit.server.openai.response_request import ResponseRequest
from modelkit.server.openai.response_store import Items as Input
from modelkit.server.openai.usage import response_usage
from modelkit.server.openai.wire import Head, new_id
from modelkit.server.streaming import sse

Keep = Callable[[dict[str, Any], Sequence[Message], Input], None]


class ResponseStream:
    """A Formatter, for one answer. keep: told of it and of the conversation so far, once it has ended.
    events: gets each one's bytes, at the place of its number.
    """

    def __init__(self, asked: ResponseRequest, keep: Keep | None, events: list[bytes] | None = None) -> None:
        self._asked, self._keep, self._events = asked, keep, events
        self._head = Head(new_id("resp_"), asked.model, int(time()), "")
        self._items: Items | None = None
        self._answer: Generation | None = None
        self._number = 0
        self._now: tuple[str, dict[str, Any]] = "queued", {}

    @property
    def id(self) -> str:
        return self._head.id

    def so_far(self) -> dict[str, Any]:
        """The object of an answer that is on its way, or did not come to its end."""
        return self._object(*self._now)

    def queue(self) -> bytes:
        """In front of `begin`: there is an object, and an answer will come."""
        return self._life("created", "queued") + self._life("queued", "queued")

    def begin(self, started: Started) -> bytes:
        self._head = replace(self._head, model=self._head.model or started.model.name)
        self._items = Items(self._asked.written, started.model.token_bytes)
        return self._created() + self._life("in_progress", "in_progress")

    def batch(self, row: int, events: Sequence[Event | Finish]) -> bytes:
        return b"".join(self._numbered(one) for one in self.take(row, events))

    def take(self, row: int, events: Sequence[Event | Finish]) -> Events:
        """What there is to say of these events. Raises Refused where the server has ended the answer."""
        assert self._items is not None, "nothing has begun"
        said = Events()
        for event in events:
            if not isinstance(event, Finish):
                said += self._items.add(event)
                continue
            self._answer = whole_answer(event)
            status = _status(self._answer)
            said += self._items.finish(status)
            written = self.whole()
            said.append({"type": f"response.{status}", "response": written})
            if self._keep is not None:
                self._keep(written, [*self._asked.said, self._answer.message], self._asked.items)
        return said

    def end(self) -> bytes:
        return b""

    def fail(self, fault: Fault) -> bytes:
        """A stream that fails has begun, for clients that read it."""
        error = {"code": "server_error", "message": fault.message}
        return self._created() + self._life("failed", "failed", {"error": error})

    def cancel(self) -> bytes:
        """Nobody wants more of it. There is no event of that name, and this one ends a stream."""
        left = self._items.close("incomplete") if self._items else []
        return b"".join(self._numbered(one) for one in left) + self._life("failed", "cancelled")

    def whole(self) -> dict[str, Any]:
        """The object at the end."""
        answer, items = self._answer, self._items
        assert answer is not None, "the answer has not ended"
        assert items is not None, "nothing has begun"
        more: dict[str, Any] = {"usage": response_usage(answer.usage, items.thinking_tokens)}
        if answer.reason == "length":
            more["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            more["completed_at"] = int(time())
        return self._object(_status(answer), more)

    def _created(self) -> bytes:
        return b"" if self._number else self._life("created", "in_progress")

    def _life(self, event: str, status: str, more: dict[str, Any] | None = None) -> bytes:
        self._now = status, more or {}
        return self._numbered({"type": f"response.{event}", "response": self.so_far()})

    def _numbered(self, event: dict[str, Any]) -> bytes:
        number, self._number = self._number, self._number + 1
        data = sse({"type": event["type"], "sequence_number": number, **event}, event["type"])
        if self._events is not None:
            self._events.append(data)
        return data

    def _object(self, status: str, more: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": self._head.id,
            "object": "response",
            "created_at": self._head.created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "model": self._head.model,
            "output": list(self._items.done) if self._items else [],
            "usage": None,
            **self._asked.echo,
            **more,
        }


def _status(answer: Generation) -> str:
    return "incomplete" if answer.reason == "length" else "completed"
