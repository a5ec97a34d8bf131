"""Events as lines of JSON, one object each.

    {"type": "start", "model", "id", "context_tokens"}     first of all
    {"type": "thinking" | "text", "text", "ids", "tokens"?}
    {"type": "call_start", "index", "id", "name"}
    {"type": "call_arguments", "index", "text"}
    {"type": "call_end", "index", "rest"?}                 rest: what came from where it was not JSON any more
    {"type": "finish", "reason", "cut", "stop", "seed", "dropped_messages", "ids", "parsed"?, "notes"?,
     "threads", "stats"}
    {"type": "progress", "read_tokens", "total_tokens"}    now and then, while the prompt is read
    {"error": {"kind", "message", "retry_after_s", "request_id"}}   instead of the rest of the answer

`ids` are those of the tokens whose text begins in the piece, and in the last line all of the answer's.
`tokens` ([{"id", "text", "logprob", "top": [...]}]) are there where log-probabilities were asked for; `top`
has the likeliest ones in the same shape. `notes` are sentences on what of the request could not be enforced.
`threads` says how many the products of the last step had, and why.
`stats` has the fields of Usage: counts are tokens, times are seconds. A blank line is a sign of life.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from modelkit.answers.generation import Finish
from modelkit.model import Model
from modelkit.output.events import CallArguments, CallEnd, CallStart, Event, Text
from modelkit.server.ask import Started
from modelkit.server.faults import Fault
from modelkit.server.streaming import Wire, ndjson
from runtime.engine.request import TokenLogprob

Read = Callable[[int], str]
"""Gives the text of a token."""


class Lines:
    """One answer's formatter. request_id: for an error in mid-stream."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._read: Read = str
        self._model: Model | None = None

    def begin(self, started: Started) -> bytes:
        self._model = model = started.model
        self._read = lambda token: model.decode([token])
        trace, context = started.trace, model.context_length
        return ndjson({"type": "start", "model": trace.asked, "id": trace.id, "context_tokens": context})

    def batch(self, row: int, events: Sequence[Event | Finish]) -> bytes:
        return b"".join(ndjson(self._line(event)) for event in events)

    def _line(self, event: Event | Finish) -> dict[str, Any]:
        said = line(event, self._read)
        if isinstance(event, Finish) and self._model is not None and self._model.alive:
            said["threads"] = self._model.threads
        return said

    def end(self) -> bytes:
        return b""

    def fail(self, fault: Fault) -> bytes:
        said = {"kind": fault.kind, "message": fault.message, "retry_after_s": fault.retry_after_s}
        return ndjson({"error": {**said, "request_id": self._request_id}})


def progress(started: Started) -> bytes:
    """How far the prompt has been read."""
    read = started.streams[0].progress
    if read is None:
        return b"\n"
    return ndjson({"type": "progress", "read_tokens": read.read, "total_tokens": read.total})


LINES = Wire("application/x-ndjson", b"\n", beat_s=0.5, progress=progress)
"""A person waits and looks on, so nothing is silent for longer."""


def word(fault: Fault, request_id: str) -> dict[str, Any]:
    """An error in place of an answer."""
    return {"error": fault.message, "kind": fault.kind, "request_id": request_id}


def line(event: Event | Finish, read: Read) -> dict[str, Any]:
    """One event as a JSON object."""
    if isinstance(event, Finish):
        return _finish(event)
    if isinstance(event, CallStart):
        return {"type": "call_start", "index": event.index, "id": event.id, "name": event.name}
    if isinstance(event, CallArguments):
        return {"type": "call_arguments", "index": event.index, "text": event.text}
    if isinstance(event, CallEnd):
        return {"type": "call_end", "index": event.index, **({"rest": event.rest} if event.rest else {})}
    tokens = {"tokens": [_token(one, read) for one in event.logprobs]} if event.logprobs else {}
    return {
        "type": "text" if isinstance(event, Text) else "thinking",
        "text": event.text,
        "ids": list(event.ids),
        **tokens,
    }


def _token(token: TokenLogprob, read: Read) -> dict[str, Any]:
    top = [{"id": one, "text": read(one), "logprob": logprob} for one, logprob in token.top]
    return {"id": token.id, "text": read(token.id), "logprob": token.logprob, "top": top}


def _finish(event: Finish) -> dict[str, Any]:
    answer = event.answer
    return {
        "type": "finish",
        "reason": answer.reason,
        "cut": answer.cut,
        "stop": answer.stop,
        "seed": answer.seed,
        "dropped_messages": answer.dropped_messages,
        "ids": list(answer.ids),
        **({} if answer.parsed is None or not _fits(answer.parsed) else {"parsed": answer.parsed}),
        **({"notes": list(answer.notes)} if answer.notes else {}),
        "stats": asdict(answer.usage),
    }


def _fits(value: object) -> bool:
    """Can JSON say it? It has no infinities, which a number such as 1e999 is read as."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True
