"""An answer as it comes: a formatter's bytes, one write per step of the engine.

Invariants:
- An error before the first byte is raised to the handler's caller and has a status. After it, the formatter
  words it into the stream.
- While nothing comes (a queue, a load, a long prompt), a stream of events gets a comment now and then, so
  that neither client nor proxy gives up. A stream of JSON lines has none of its own: its dialect says which
  line changes nothing.
- Who does not read is dropped by the connection (`protocol`), which cancels the rows as any leaving does.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from modelkit.answers.generation import Finish
from modelkit.output.events import Event
from modelkit.server.active_request import ActiveRequest
from modelkit.server.ask import Ask, Started
from modelkit.server.faults import Fault
from modelkit.server.http.own_headers import with_notes
from modelkit.server.http.protocol import CHUNKS
from modelkit.server.rows import Batch
from runtime.records import dataclass


class Formatter(Protocol):
    """Events to bytes. It keeps what it needs of the answer, and knows nothing of sockets."""

    def begin(self, started: Started) -> bytes:
        """What stands before the first event. Called once, when the first event is there."""
        ...

    def batch(self, row: int, events: Sequence[Event | Finish]) -> bytes:
        """What one step of the engine brought one row, its Finish included; b"" for nothing to say."""
        ...

    def end(self) -> bytes:
        """What stands behind the last event of the last row."""
        ...

    def fail(self, fault: Fault) -> bytes:
        """An error in the middle of the stream, and the stream's end. Maybe before `begin`."""
        ...


@dataclass(frozen=True, slots=True)
class Wire:
    """How a stream looks in HTTP."""

    media_type: str
    heartbeat: bytes | None
    """A sign of life that every client passes over; None where there is none."""
    beat_s: float | None = None
    """After how long without a byte; None: as the server's limits say."""
    progress: Callable[[Started], bytes] | None = None
    """What to say instead of the heartbeat once there are rows."""


SSE = Wire("text/event-stream; charset=utf-8", b": heartbeat\n\n")
UNBUFFERED = {"cache-control": "no-cache", "x-accel-buffering": "no"}
"""Headers of a stream."""
NDJSON = Wire("application/x-ndjson", None)  # clients read every line, and blank ones break them


def sse(value: object, event: str | None = None) -> bytes:
    """One event of a stream of events, its data as JSON."""
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


def ndjson(value: object) -> bytes:
    """One line of a stream of lines."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


async def stream(request: Request, ask: Ask, wire: Wire, formatter: Formatter) -> Response:
    """The response that streams the answer. Raises what went wrong before its first byte. Its header has the
    notes if the answer has started by then.
    """
    under = ActiveRequest(request, ask)
    # Until there is something to send, an error still gets a status; but nobody waits in silence for long.
    patience_s = None if wire.heartbeat is None else wire.beat_s or under.serving.limits.heartbeat_s
    try:
        await under.wait_first(patience_s)
    except BaseException:
        await under.close()
        raise
    response = Stream(under, wire, formatter)
    return with_notes(response, under.started.notes) if under.has_started else response


class Stream(Response):
    """What `stream` gives back."""

    def __init__(self, under: ActiveRequest, wire: Wire, formatter: Formatter) -> None:
        super().__init__(None, headers=UNBUFFERED, media_type=wire.media_type)
        del self.headers["content-length"]
        self._under, self._wire, self._formatter = under, wire, formatter
        self._written_s = under.trace.began_s
        self._chunks: Callable[[bytes], bool] | None = None
        self._begun, self._unwritten = False, b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._chunks = scope.get("extensions", {}).get(CHUNKS)
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        self._under.trace.status = 200
        beating = asyncio.ensure_future(self._beat(send))
        try:
            last = await self._write_all(send)
            beating.cancel()  # before the last bytes: none may come behind them
            await self._write(send, last, more=False)
        finally:
            beating.cancel()
            await self._under.close()

    async def _write_all(self, send: Send) -> bytes:
        """All but the last bytes, which are given back."""

        async def rest() -> None:
            data, self._unwritten = self._unwritten, b""
            await self._write(send, data)

        try:
            await self._under.follow(self._wrote, rest)
            return self._formatter.end()
        except Exception as error:  # noqa: BLE001 -- whatever it is, the client is told
            return self._formatter.fail(self._under.failed(error))

    def _wrote(self, step: list[Batch]) -> bool:
        """What a step brought; False where its bytes have to be a message."""
        data = b"" if self._begun else self._formatter.begin(self._under.started)
        self._begun = True
        for row, events in step:
            data += self._formatter.batch(row, events)
        if not data:
            return True
        self._written_s = monotonic()
        if self._chunks is not None and self._chunks(data):
            return True
        self._unwritten = data
        return False

    async def _write(self, send: Send, data: bytes, *, more: bool = True) -> None:
        if data or not more:
            self._written_s = monotonic()
            await send({"type": "http.response.body", "body": data, "more_body": more})

    async def _beat(self, send: Send) -> None:
        """A sign of life whenever nothing was written for a while."""
        wire, under = self._wire, self._under
        every_s = wire.beat_s or under.serving.limits.heartbeat_s
        while (heartbeat := wire.heartbeat) is not None:
            if (left_s := self._written_s + every_s - monotonic()) > 0:
                await asyncio.sleep(left_s)
            else:
                if wire.progress is not None and under.has_started:
                    heartbeat = wire.progress(under.started)
                await self._write(send, heartbeat)
