"""One connection: uvicorn's protocol, with the limits that it lacks.

- Header lines come within `header_s`, counted from the connection, or from the end of the request before once
  its first byte is there.
- A client that reads nothing for `write_s` is cut off, at once: closing would wait for it.
- A body that nobody wants any more, since its request was refused, is read for `REST_S` and no longer; so is
  what comes behind something that is not HTTP. What that is, its client and the log are told.
- More connections than `connections`: the new one is closed.

And a shorter way for the pieces of an answer: `Chunks`, which a response finds in its scope under CHUNKS.
"""

import asyncio
import json
import sys
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from modelkit.server.limits import Limits
from modelkit.server.log import Log

REST_S = 2.0
"""How long the rest of a body is read that nobody wants."""
CHUNKS = "modelkit.chunks"
"""The name in `scope["extensions"]` of what writes a chunk of the body: see `Chunks`."""
_TLS = b"\x16\x03"  # a handshake begins with it


class Chunks:
    """Writes pieces of one chunked body straight to the connection. As a message of ASGI a piece passes four
    coroutines and two state machines, which costs more than all else that is done for a token.

    Only for a response without a length; its beginning and its end are messages of ASGI.
    """

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def __call__(self, data: bytes) -> bool:
        """False where it has to be a message: the client reads too slowly, has left, or knows no chunks."""
        cycle = self._cycle
        if cycle.flow.write_paused or cycle.disconnected or cycle.conn.our_state is not h11.SEND_BODY:
            return False
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True


class Guarded(H11Protocol):
    """`limits` and `log` are set by `guarded`."""

    limits = Limits()
    log: Log

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._header: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None
        self._left: asyncio.TimerHandle | None = None
        self._rest: asyncio.TimerHandle | None = None
        self._first = b""
        self._broken = False
        if len(self.connections) >= self.limits.connections:
            self._refused = True
            transport.abort()
            return
        self._refused = False
        super().connection_made(transport)
        self._await_header()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._header, self._stuck, self._left, self._rest):
            if timer is not None:
                timer.cancel()
        if not self._refused:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._broken:
            return
        self._first = self._first or data[: len(_TLS)]
        if self._header is None and self._between:
            self._await_header()
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._begun()
            self._offer_chunks()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(self.limits.write_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def on_response_complete(self) -> None:
        if self.conn.their_state is h11.SEND_BODY:
            # It was answered before all of its body had come. Closing at once would keep a client that
            # still sends from reading the answer; reading on for ever is what it may want.
            self._rest = self.loop.call_later(REST_S, self.transport.abort)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """What has come is not HTTP, or not any more: called where h11's error is handled. It may stand in a
        body, whose request is given up, or behind an answer that did not want its body.
        """
        why, status = self._fault()
        self.log.line("connection", client=self.client[0] if self.client else "local", said=why)
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._refuse(why, status)
        # Closing at once would keep a client that still sends from reading this.
        self._broken = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._begun()
        self._rest = self.loop.call_later(REST_S, self.transport.abort)
        if not self._between:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _fault(self) -> tuple[str, int]:
        """What is wrong, and the status that says so."""
        error = sys.exception()
        if self._first == _TLS:
            return "it is TLS (https://), and this server was started without a certificate (http://)", 400
        if not isinstance(error, h11.RemoteProtocolError):
            return "it is not HTTP", 400
        if error.error_status_hint == 431:
            return "the header lines are too long", 431
        # Behind it stands what was sent, which may be a key.
        return f"it is not HTTP: {str(error).partition(': bytearray(')[0]}", error.error_status_hint

    def _refuse(self, why: str, status: int) -> None:
        body = json.dumps({"error": why}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        start = h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase.encode())
        for event in (start, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))

    def _should_upgrade(self) -> bool:
        """Nothing speaks another protocol here: the request is answered as it is, and no log is told."""
        return False

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._left = self.loop.call_later(self.limits.write_s, self.transport.abort)

    def _begun(self) -> None:
        """The header lines of a request have come."""
        for timer in (self._header, self._rest):
            if timer is not None:
                timer.cancel()
        self._header = self._rest = None

    def _offer_chunks(self) -> None:
        """To the request that has just come. A task of the loop answers it, later than this."""
        cycle: Any = self.cycle
        if cycle.scope["http_version"] == "1.1" and cycle.scope["method"] != "HEAD":
            cycle.scope["extensions"] = {CHUNKS: Chunks(cycle)}

    @property
    def _between(self) -> bool:
        """No request is being answered."""
        cycle: Any = self.cycle  # None before the first request
        return cycle is None or cycle.response_complete

    def _await_header(self) -> None:
        self._header = self.loop.call_later(self.limits.header_s, self.transport.abort)


def guarded(limits: Limits, log: Log) -> type[Any]:
    """The protocol's class with these limits. log: told of what is not HTTP."""
    return type("Guarded", (Guarded,), {"limits": limits, "log": log})
