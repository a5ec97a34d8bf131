"""The whole server on a free port of this machine, in a thread; and models that say what a test wants."""

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from modelkit.answers.generation import Finish, Generation
from modelkit.answers.streams import GenerationStream
from modelkit.model import Model
from modelkit.output.collected import Collected
from modelkit.output.events import Event
from modelkit.server.app import make_app
from modelkit.server.log import Log
from modelkit.server.models.model_source import ModelSource
from modelkit.server.models.pool import Pool
from modelkit.server.serving import Serving
from modelkit.settings import Settings
from runtime.engine.request import Delta, PromptProgress, Usage
from runtime.engine.stream import Stream

Script = Callable[..., Sequence[Event]]
"""Gets what `Model.chat` gets."""


class Quiet(Log):
    """Says nothing."""

    def line(self, event: str, **fields: Any) -> None:
        pass


@contextmanager
def served(source: ModelSource | Callable[[str], Model], home: Path, **more: Any) -> Iterator[str]:
    """Its address. more: fields of Serving."""
    settings, pool = Settings.from_environment({"MODELKIT_HOME": str(home)}), Pool(source)
    app = make_app(Serving(pool, settings, **{"log": Quiet(), **more}))
    with listening(app, pool.close) as address:
        yield address


@contextmanager
def listening(app: ASGIApp, ended: Callable[[], Awaitable[None]] | None = None) -> Iterator[str]:
    """The application's address, such as http://127.0.0.1:4711. ended: awaited at the end, on its loop."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)

    async def run() -> None:
        try:
            await server.serve([listener])
        finally:
            if ended is not None:
                await ended()

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="test-server", daemon=True)
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)


def wait_until(holds: Callable[[], Any], limit_s: float = 100) -> None:
    """Raises TimeoutError."""
    end = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {limit_s:g} s for nothing")
        time.sleep(0.005)


def scripted(model: Model, script: Script, usage: Usage | None = None, **ending: Any) -> Model:
    """The model, whose conversations are answered by a script. ending: fields of the Generation."""

    def chat(messages: Any, **options: Any) -> GenerationStream:
        stream = _Stream(script(messages, **options), usage or Usage(9, 4, 5), ending)
        return cast("GenerationStream", stream)

    model.__dict__["chat"] = chat
    return model


class _Stream:
    """As much of a GenerationStream as the server uses."""

    def __init__(self, events: Sequence[Event], usage: Usage, ending: dict[str, Any]) -> None:
        self._events, self._usage, self._ending = list(events), usage, ending
        self.begun = SimpleNamespace(prompt_ids=(7, 8), notes=(), tools=("weather",))
        self._given, self.source = Collected(), Stream()
        self._answer: Generation | None = None
        self.progress = PromptProgress(usage.prompt_tokens, usage.cached_tokens, usage.prompt_tokens)
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def note(self, what: str) -> None:
        self.begun.notes = (*self.begun.notes, what)

    @property
    def ended(self) -> bool:
        return self._answer is not None

    def take_events(self) -> list[Event | Finish]:
        """One at a time, each with a turn of the event loop of its own."""
        self.source.put(Delta((1,)))
        if self.source.wake is not None:
            self.source.wake()
        if self._events:
            self._given.add(self._events[0])
            return [self._events.pop(0)]
        given = self._given
        made = {"text": given.text, "thinking": given.thinking, "tool_calls": given.tool_calls}
        about = {"ids": (1, 2), "usage": self._usage, "reason": "stop", "seed": 0}
        self._answer = Generation(**{**made, **about, **self._ending})
        return [Finish(self._answer)]
