"""Responses that are made whether somebody waits for them or not: their clients ask for them again, watch
them as they come, or cancel them.

Invariants:
- One is among `Kept.running` from its request until its answer has ended, however that came; then it is kept
  as any other.
- The line of the log comes at that end, and not where its request has a response.
"""

import asyncio
from collections.abc import AsyncIterator, MutableMapping, Sequence
from typing import Any

from starlette.requests import Request

from modelkit.chat.message import Message
from modelkit.server.active_request import ActiveRequest
from modelkit.server.ask import Ask
from modelkit.server.faults import Fault
from modelkit.server.http.gate import note_ended
from modelkit.server.openai.response_request import ResponseRequest
from modelkit.server.openai.response_store import Items, Kept
from modelkit.server.openai.response_writer import ResponseStream
from modelkit.server.rows import Batch
from modelkit.server.streaming import SSE

_PATIENCE_S = 0.25  # until the model is there and has a place
_LOOK_S = 0.02
_UNWANTED = Fault("gone", "the response was cancelled")


async def begun(request: Request, ask: Ask, asked: ResponseRequest, kept: Kept) -> "Running":
    """The response goes on from here by itself. Raises what is wrong with the request, where the model that
    says so is there.
    """
    under, clock = ActiveRequest(Request(request.scope, _never), ask), asyncio.get_running_loop().time
    end_s = clock() + _PATIENCE_S
    try:
        while not under.has_started and (under.trace.model or clock() < end_s):
            await under.wait_first(_LOOK_S)
    except BaseException:
        await under.close()
        raise
    under.trace.goes_on, under.trace.status = True, 200
    return Running(under, asked, kept)


class Running:
    """A Coming of what is kept."""

    def __init__(self, under: ActiveRequest, asked: ResponseRequest, kept: Kept) -> None:
        self._under, self._asked, self._kept = under, asked, kept
        self._events: list[bytes] = []
        self._writer = ResponseStream(asked, self._keep, self._events)
        self._writer.queue()
        self._has_begun = self._cancelled = self._over = False
        self._news = asyncio.Event()  # another one each time
        kept.running[self._writer.id] = self
        self._task = asyncio.ensure_future(self._run())

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the request could not be enforced, as far as that is known."""
        return self._under.started.notes if self._under.has_started else ()

    @property
    def items(self) -> Items:
        return self._asked.items

    def written(self) -> dict[str, Any]:
        return self._writer.so_far()

    async def watch(self, place: int, heartbeat_s: float) -> AsyncIterator[bytes]:
        while True:
            news, over, said = self._news, self._over, self._events[place:]
            if said:
                place += len(said)
                yield b"".join(said)
            elif over:
                return
            else:
                try:
                    await asyncio.wait_for(news.wait(), heartbeat_s)
                except TimeoutError:
                    yield SSE.heartbeat or b""

    async def cancel(self) -> None:
        self._cancelled = True
        self._under.stop(_UNWANTED)
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        try:
            await self._under.follow(self._take, _at_once)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the client is told when it asks
            self._end(self._under.failed(error))
        finally:
            await self._under.close()
            del self._kept.running[self._writer.id]
            self._over = True
            self._tell()
            note_ended(self._under.serving, self._under.trace)

    def _take(self, step: list[Batch]) -> bool:
        if not self._has_begun:
            self._has_begun = True
            self._writer.begin(self._under.started)
        for row, events in step:
            self._writer.batch(row, events)
        self._tell()
        return True

    def _end(self, fault: Fault) -> None:
        """It did not come to its end."""
        if self._cancelled:
            self._writer.cancel()
        else:
            self._writer.fail(fault)
        self._keep(self._writer.so_far(), None, self._asked.items)

    def _keep(self, written: dict[str, Any], said: Sequence[Message] | None, items: Items) -> None:
        self._kept.keep(written, said, items, self._events)

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


async def _never() -> MutableMapping[str, Any]:
    """Nobody is there who could leave."""
    return await asyncio.get_running_loop().create_future()


async def _at_once() -> None:
    """There is no connection that could be too slow."""
