"""A server behind the web page that says what a test tells it to: the page's own files, models, answers, and
every way in which a server can fail. `python -m tests.support.fake_chat [PORT]` serves a few answers.
"""

import asyncio
import json
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from modelkit.server.fields import Fields
from modelkit.server.own.chat import read_chat
from modelkit.server.page.routes import DIALECT

Event = dict[str, Any]
STATS: dict[str, Any] = {
    "prompt_tokens": 512,
    "cached_tokens": 480,
    "generated_tokens": 41,
    "rounds": 16,
    "dropped_tokens": 0,
    "drafted_tokens": 48,
    "accepted_tokens": 24,
    "wait_s": 0.01,
    "prefill_s": 0.3,
    "decode_s": 2.0,
}


def text(words: str, piece: int = 7) -> list[Event]:
    """An answer in pieces."""
    return [{"type": "text", "text": words[at : at + piece]} for at in range(0, len(words), piece)]


def finish(**changes: Any) -> Event:
    """The last event."""
    last = {"type": "finish", "reason": "stop", "cut": None, "seed": 1, "dropped_messages": 0, "stats": STATS}
    return {**last, **changes}


def call(index: int, name: str, arguments: Any) -> list[Event]:
    """One call of a tool."""
    written = json.dumps(arguments)
    pieces = [written[:5], written[5:]]
    return [
        {"type": "call_start", "index": index, "id": f"call_{index}", "name": name},
        *({"type": "call_arguments", "index": index, "text": piece} for piece in pieces if piece),
        {"type": "call_end", "index": index},
    ]


HELLO = [*text("Hello **there**."), finish()]
"""An answer."""


@dataclass
class Fake:
    """What the server does next, and what it was asked."""

    answers: list[list[Event]] = field(default_factory=list)
    """One for each request, in order; the last one holds for all others."""
    pause_s: float = 0.0
    """Between two events."""
    lists: threading.Event = field(default_factory=threading.Event)
    """Models are listed once it is set, as it is in the beginning."""
    holds: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """An event {"type": "hold"} waits until it is let go."""
    status: int = 200
    """Another one is given to requests for an answer."""
    temperature: float = 0.7
    """That of all packages, which are others with another one."""
    key: str | None = None
    """Wanted of every request but those for the page."""
    loaded: set[str] = field(default_factory=lambda: {"island:latest"})
    asked: list[dict[str, Any]] = field(default_factory=list)
    """The bodies of requests for answers."""
    left: int = 0
    """Readers that have gone before the end."""

    def __post_init__(self) -> None:
        self.lists.set()

    def let_go(self, holds: int) -> None:
        """So many events {"type": "hold"} wait no longer."""
        self.holds.release(holds)

    def wait_for_leaving(self, readers: int) -> None:
        """Until so many have gone before the end: a server hears of it some time later."""
        until = time.monotonic() + 60
        while self.left < readers:
            assert time.monotonic() < until, f"{self.left} readers have gone"
            time.sleep(0.01)

    def app(self) -> ASGIApp:
        own = [
            Route("/api/tags", self.tags),
            Route("/modelkit/v1/ps", self.ps),
            Route("/api/show", self.show, methods=["POST"]),
            Route("/modelkit/v1/defaults", self.defaults),
            Route("/modelkit/v1/chat", self.chat, methods=["POST"]),
            Route("/modelkit/v1/{act:str}", self.keep, methods=["POST"]),
        ]
        return Starlette(routes=[*DIALECT.routes, *own])

    def refusal(self, request: Request) -> Response | None:
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            return JSONResponse({"error": "the API key is missing or wrong"}, 401)
        return None

    async def tags(self, request: Request) -> Response:
        while not self.lists.is_set():
            await asyncio.sleep(0.01)
        details = {"parameter_size": "4.1M", "quantization_level": "q8"}
        names = ["island:latest", "a-model-with-a-rather-long-name:70b"]
        each = {"size": 4_300_000, "details": details, "digest": f"of {self.temperature}"}
        models = [{"name": name, **each} for name in names]
        models.append({"name": "vectors:latest", "details": details, "capabilities": ["embedding"]})
        return self.refusal(request) or JSONResponse({"models": models})

    async def ps(self, request: Request) -> Response:
        shown = {
            "size_bytes": 512_400_000,
            "prefix_limit_bytes": 502_000_000,
            "prefix_bytes": 2_000_000,
            "context_tokens": 2048,
            "state": "ready",
            "drafters": ["island-draft"],
        }
        models = [{"name": name, **shown} for name in sorted(self.loaded, reverse=True)]
        return self.refusal(request) or JSONResponse({"models": models})

    async def show(self, request: Request) -> Response:
        said: dict[str, Any] = {"capabilities": ["completion", "tools", "thinking"], "model_info": {}}
        said |= {"system": "You are terse.", "adapters": ["law", "verse"]}
        parameters = f'temperature {self.temperature}\nstop "<end>"'
        return self.refusal(request) or JSONResponse({**said, "parameters": parameters})

    async def defaults(self, request: Request) -> Response:
        return self.refusal(request) or JSONResponse({"temperature": 0.8, "top_k": 40, "seed": -1})

    async def keep(self, request: Request) -> Response:
        if refused := self.refusal(request):
            return refused
        body = await request.json()
        act = {"load": self.loaded.add, "stop": self.loaded.discard}[request.path_params["act"]]
        act(body["model"])
        return JSONResponse({})

    async def chat(self, request: Request) -> Response:
        if refused := self.refusal(request):
            return refused
        self.asked.append(await request.json())
        read_chat(Fields(self.asked[-1]))  # what the server would refuse is no test's answer
        if self.status != 200:
            return JSONResponse({"error": "all places are taken"}, self.status, {"retry-after": "7"})
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return StreamingResponse(self.lines(answer), media_type="application/x-ndjson")

    async def lines(self, answer: list[Event]) -> AsyncIterator[bytes]:
        whole = False
        try:
            yield b'{"type": "start", "context_tokens": 2048}\n\n'
            for event in answer:
                if event.get("type") == "hold":
                    while not self.holds.acquire(blocking=False):
                        await asyncio.sleep(0.01)
                    continue
                if event.get("type") == "break":
                    raise ConnectionError("as asked")
                yield json.dumps(event).encode() + b"\n"
                if self.pause_s:
                    await asyncio.sleep(self.pause_s)
            whole = True
        finally:
            self.left += not whole


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """The app on a free loopback port, in a thread; gives its address."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


def main() -> None:
    answer = [
        *({"type": "thinking", "text": word + " "} for word in ["The", "person", "greets", "me."] * 8),
        *text("Some `code`:\n\n```python\nprint('hi')  # a remark\n```\n\nand $e^{i\\pi}=-1$. "),
        *text("| a | b |\n|--|--|\n| 1 | 2 |\n\n" + "Some more words to fill a line or two. " * 12),
        finish(),
    ]
    calls = [*call(0, "weather", {"city": "Paris", "days": 3}), *call(1, "time", {}), finish()]
    fake = Fake([answer, calls] * 50, pause_s=0.02)
    uvicorn.run(fake.app(), port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000)


if __name__ == "__main__":
    main()
