"""A server in this process: uvicorn in a thread on a free port, and a dialect that says what it sees."""

import asyncio
import socket
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from modelkit.answers.generation import Finish, Generation
from modelkit.answers.streams import GenerationStream
from modelkit.model import Model
from modelkit.output.events import Event, Text
from modelkit.server import app
from modelkit.server.active_request import ActiveRequest
from modelkit.server.ask import Ask, Started
from modelkit.server.dialect import Dialect
from modelkit.server.faults import Fault
from modelkit.server.http.body import read_json
from modelkit.server.http.listening import Server
from modelkit.server.http.place import Place, listen
from modelkit.server.serving import Serving
from modelkit.server.streaming import NDJSON, SSE, ndjson, sse, stream

OPTIONS: dict[str, Any] = {"temperature": 0, "draft_num_predict": 0}


class Seen:
    """A formatter that writes what it is told."""

    def __init__(self, write: Any, pad: int = 0) -> None:
        self._write, self._pad = write, "x" * pad

    def begin(self, started: Started) -> bytes:
        return self._write({"begin": started.trace.id})

    def batch(self, row: int, events: Sequence[Event | Finish]) -> bytes:
        text = "".join(one.text for one in events if isinstance(one, Text))
        last = events[-1]
        return self._write(
            {"row": row, "text": text + self._pad} | ({"end": True} if isinstance(last, Finish) else {})
        )

    def end(self) -> bytes:
        return self._write({"over": True})

    def fail(self, fault: Fault) -> bytes:
        return self._write({"error": fault.message, "kind": fault.kind})


async def whole(request: Request, ask: Ask) -> list[Generation]:
    """All rows, at their end. Raises what went wrong, and where nobody waits for it any more."""
    under = ActiveRequest(request, ask)
    answers: dict[int, Generation] = {}
    try:
        async for step in under:
            for row, events in step:
                if isinstance(last := events[-1], Finish):
                    answers[row] = last.answer
        return [answers[row] for row in sorted(answers)]
    finally:
        await under.close()


async def answer(request: Request) -> Response:
    """{model, prompt, tokens, rows, pad, stream: "sse" | "ndjson" | null}"""
    body = await read_json(request)
    prompt, tokens = body.needed_text("prompt"), body.whole("tokens", 1, 10**6, default=4)

    def start(model: Model, row: int) -> GenerationStream:
        return model.generate(prompt, raw=True, stream=True, num_predict=tokens, **OPTIONS)

    pad = body.whole("pad", 0, 10**6, default=0)
    ask = Ask(body.needed_text("model"), start, rows=body.whole("rows", 1, 8, default=1))
    how = body.choice("stream", ["sse", "ndjson"])
    if how is not None:
        wire, write = (SSE, sse) if how == "sse" else (NDJSON, ndjson)
        return await stream(request, ask, wire, Seen(write, pad))
    answers = await whole(request, ask)
    return JSONResponse({"texts": [one.text for one in answers]})


async def echo(request: Request) -> Response:
    body = await read_json(request)
    return JSONResponse({"keys": sorted(body.value)})


async def broken(request: Request) -> Response:
    raise ZeroDivisionError("a secret of ours")


DIALECT = Dialect(
    "test",
    (
        Route("/test/answer", answer, methods=["POST"]),
        Route("/test/echo", echo, methods=["POST"]),
        Route("/test/broken", broken),
    ),
    ("/test",),
    lambda fault, number: {"fault": fault.kind, "said": fault.message, "id": number, "param": fault.param},
)


def make_test_app(serving: Serving) -> ASGIApp:
    """The whole server, with the dialect above beside the others."""
    room = ModuleType("tests.support.live_server_room")
    room.DIALECT = DIALECT  # type: ignore[attr-defined]
    sys.modules[room.__name__] = room
    before, app.ROOMS = app.ROOMS, (*app.ROOMS, room.__name__)
    try:
        return app.make_app(serving)
    finally:
        app.ROOMS = before
        del sys.modules[room.__name__]


@dataclass
class Running:
    """A server that runs in a thread of its own."""

    serving: Serving
    server: Server
    port: int
    loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """As a signal would."""
        self.loop.call_soon_threadsafe(self.server.stop)


@contextmanager
def running(serving: Serving, place: Place | None = None) -> Generator[Running]:
    """The server above while the block runs; drained afterwards, its pool closed."""
    place = place or Place(port=0)
    listeners, ready, found = listen(place), threading.Event(), list[Running]()
    port = 0 if place.uds else listeners[0].getsockname()[1]

    async def serve() -> None:
        server = Server(make_test_app(serving), serving, place, ready.set)
        found.append(Running(serving, server, port, asyncio.get_running_loop()))
        await server.serve(listeners)
        await serving.pool.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    try:
        assert ready.wait(100)
        yield found[0]
    finally:
        if thread.is_alive() and found:
            found[0].stop()
        thread.join(100)
        assert not thread.is_alive()


def raw_request(path: str, body: bytes = b"", *headers: str, method: str = "POST") -> bytes:
    """The bytes of a request, to be sent whole or in pieces."""
    named = any(line.lower().startswith("host:") for line in headers)
    lines = [f"{method} {path} HTTP/1.1", *(() if named else ("Host: localhost",)), *headers]
    if method == "POST":
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def connect(port: int, timeout_s: float = 30) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout_s)


def received(client: socket.socket, until: bytes | None = None) -> bytes:
    """Everything until the end, or until those bytes have come."""
    data = b""
    while until is None or until not in data:
        try:
            part = client.recv(65536)
        except ConnectionResetError:
            break
        if not part:
            break
        data += part
    return data
