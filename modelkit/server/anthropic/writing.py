"""Blocks to what clients read: named events of a stream, or one message.

A stream begins with a message that has no blocks and already says what the prompt took, and a ping; it ends
with the reason, the whole cost, and `message_stop`. `input_tokens` are those that were computed: what was
found of an earlier prompt is `cache_read_input_tokens`.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from modelkit.answers.generation import Finish, Generation
from modelkit.chat.message import Message, arguments_of
from modelkit.output.events import Event, Thinking
from modelkit.server.anthropic.blocks import Begin, Grow, Step, Steps
from modelkit.server.ask import Started
from modelkit.server.faults import Fault, Refused
from modelkit.server.frames import MARK, Frame, ascii_text
from modelkit.server.streaming import sse

_KINDS = {
    "authentication": "authentication_error",
    "permission": "permission_error",
    "not_found": "not_found_error",
    "model_not_found": "not_found_error",
    "too_large": "request_too_large",
    "headers": "request_too_large",
    "timeout": "timeout_error",
    "busy": "overloaded_error",
    "draining": "overloaded_error",
    "ranks_lost": "api_error",
    "internal": "api_error",
    "gone": "api_error",
    "upstream": "api_error",
    "disk_full": "api_error",
    "disk_denied": "api_error",
}
STATUSES = {"busy": 529, "draining": 529}
"""Where they are not those of all dialects."""
_BROKEN_OFF = Fault("draining", "the answer was broken off by the server")


def worded(fault: Fault, request_id: str) -> dict[str, Any]:
    """The JSON of an error."""
    error: dict[str, Any] = {
        "type": _KINDS.get(fault.kind, "invalid_request_error"),
        "message": fault.message,
    }
    if fault.code is not None:
        error["details"] = {"error_code": fault.code}
    return {"type": "error", "error": error, "request_id": request_id}


Keep = Callable[[str, Message], None]


class Messages:
    """A Writer. model: its name as the client wrote it. request_id: for an error in mid-stream. silent: the
    answer that is told is empty, whatever the model says. keep: told the answer's id and what was said, once
    it has ended.
    """

    def __init__(
        self, model: str, blocks: Steps, request_id: str, *, silent: bool = False, keep: Keep | None = None
    ) -> None:
        self._id, self._model, self._blocks = f"msg_{secrets.token_hex(12)}", model, blocks
        self._request_id, self._failed, self._keep = request_id, False, keep
        self._silent, self._thinking_tokens = silent, 0
        self._content = Content()
        self._frames: dict[tuple[int, str], Frame] = {}
        self._answer: Generation | None = None

    def begin(self, started: Started) -> bytes:
        read = started.streams[0].progress
        usage = _usage(read.total, read.cached, 0) if read else _usage(0, 0, 0)
        message = self._message([], None, None, usage)
        return _event({"type": "message_start", "message": message}) + _event({"type": "ping"})

    def batch(self, row: int, events: Sequence[Event | Finish]) -> bytes:
        return b"".join(map(self._written, self._take_events(events)))

    def end(self) -> bytes:
        return b"" if self._failed else _event({"type": "message_stop"})

    def fail(self, fault: Fault) -> bytes:
        self._failed = True
        return _event(worded(fault, self._request_id))

    def take(self, row: int, events: Sequence[Event | Finish]) -> None:
        for event in self._take_events(events):
            if isinstance(event, Finish):
                self._answer = event.answer
            steps = self._blocks.finish() if isinstance(event, Finish) else self._blocks.push(event)
            for step in steps:
                self._content.take(step)

    def whole(self) -> dict[str, Any]:
        answer = self._answer
        if answer is None or answer.reason == "cancelled":
            raise Refused(_BROKEN_OFF)
        return self._message(self._content.blocks, self._reason(answer), answer.stop, self._cost(answer))

    def _take_events(self, events: Sequence[Event | Finish]) -> Sequence[Event | Finish]:
        last = events[-1]
        if self._keep is not None and isinstance(last, Finish) and last.answer.reason != "cancelled":
            self._keep(self._id, Message("assistant") if self._silent else last.answer.message)
        if self._silent:
            return [_emptied(one) for one in events if isinstance(one, Finish)]
        self._thinking_tokens += sum(len(one.ids) for one in events if isinstance(one, Thinking))
        return events

    def _written(self, event: Event | Finish) -> bytes:
        if not isinstance(event, Finish):
            return b"".join(map(self._step, self._blocks.push(event)))
        last, answer = b"".join(map(self._step, self._blocks.finish())), event.answer
        if answer.reason == "cancelled":
            return last + self.fail(_BROKEN_OFF)
        reason = {"stop_reason": self._reason(answer), "stop_sequence": answer.stop}
        return last + _event({"type": "message_delta", "delta": reason, "usage": self._cost(answer)})

    def _reason(self, answer: Generation) -> str:
        return stop_reason(answer)

    def _cost(self, answer: Generation) -> dict[str, Any]:
        usage, thinking = answer.usage, {"thinking_tokens": self._thinking_tokens}
        cost = _usage(usage.prompt_tokens, usage.cached_tokens, usage.generated_tokens)
        return {**cost, "output_tokens_details": thinking}

    def _step(self, step: Step) -> bytes:
        if isinstance(step, Begin):
            return _event({"type": "content_block_start", "index": step.index, "content_block": step.block})
        if isinstance(step, Grow):
            return self._grown(step)
        return _event({"type": "content_block_stop", "index": step.index})

    def _grown(self, step: Grow) -> bytes:
        """Nearly every event is one of these, and of one block they differ in a text alone."""
        (_, kind), (name, text) = step.delta.items()
        key = step.index, kind
        if key not in self._frames:
            delta = {"type": kind, name: MARK}
            frame = _event({"type": "content_block_delta", "index": step.index, "delta": delta})
            self._frames[key] = Frame(frame)
        return self._frames[key].filled(ascii_text(text))

    def _message(
        self, content: list[dict[str, Any]], reason: str | None, stop: str | None, usage: dict[str, Any]
    ) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": stop,
            "usage": usage,
        }


class Content:
    """The blocks of a message, as their steps make them."""

    def __init__(self) -> None:
        self.blocks: list[dict[str, Any]] = []
        self._pieces: list[str] = []

    def take(self, step: Step) -> None:
        if isinstance(step, Begin):
            self.blocks.append(dict(step.block))
            self._pieces = []
            return
        block = self.blocks[-1]
        if not isinstance(step, Grow):
            if block["type"] == "tool_use":
                # {} for what was cut off: the reason says that it was.
                block["input"] = arguments_of("".join(self._pieces)) or {}
            return
        for field in ("text", "thinking", "signature"):
            if field in step.delta:
                block[field] += step.delta[field]
        if "content" in step.delta:
            block["content"] = step.delta["content"]
        self._pieces.append(step.delta.get("partial_json", ""))


def _emptied(event: Finish) -> Finish:
    answer = event.answer
    if answer.reason == "cancelled":
        return event
    usage = replace(answer.usage, generated_tokens=0)
    return Finish(replace(answer, reason="length", cut="num_predict", stop=None, tool_calls=(), usage=usage))


def stop_reason(answer: Generation) -> str:
    """Why it ended, in Anthropic's words."""
    if answer.reason == "length":
        return "model_context_window_exceeded" if answer.cut == "context" else "max_tokens"
    if answer.tool_calls:
        return "tool_use"
    return "end_turn" if answer.stop is None else "stop_sequence"


def _usage(prompt: int, cached: int, generated: int) -> dict[str, Any]:
    return {
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": generated,
        "service_tier": "standard",
    }


def _event(value: dict[str, Any]) -> bytes:
    return sse(value, value["type"])
