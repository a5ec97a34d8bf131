"""From a request that was read to a response: streamed or whole."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from modelkit.errors import PromptTooLong
from modelkit.generation import Finish
from modelkit.output.events import Event
from modelkit.server.answering import Ask, Underway
from modelkit.server.body import read_json
from modelkit.server.faults import refused
from modelkit.server.fields import Fields
from modelkit.server.serving import serving_of
from modelkit.server.streaming import SSE, Formatter, stream

T = TypeVar("T")
IGNORED = "x-modelkit-ignored"
"""The header that names fields of the request which change nothing."""
_QUICK_BYTES = 32 * 1024  # reading the fields of so many takes well below a millisecond


class Writer(Formatter, Protocol):
    """A Formatter that also gives an answer in one."""

    def take(self, row: int, events: Sequence[Event | Finish]) -> object:
        """As `batch`, where nothing is written."""
        ...

    def whole(self) -> dict[str, Any]:
        """The answer, once all has ended."""
        ...


async def read(request: Request, reader: Callable[[Fields], T]) -> T:
    """What a reader makes of the body; large ones are read beside the event loop."""
    body = await read_json(request)
    if int(request.headers.get("content-length", _QUICK_BYTES)) < _QUICK_BYTES:
        return reader(body)
    return await asyncio.get_running_loop().run_in_executor(serving_of(request).workers, reader, body)


def model_of(request: Request, name: str) -> str:
    """The model that is meant: a client of a server with one model may leave the name out."""
    if name:
        return name
    there = {one.name for one in serving_of(request).pool.shown() if one.state != "leaving"}
    if len(there) != 1:
        raise refused("invalid_request", "model is missing, expected the name of a model", "model")
    return there.pop()


async def answer(
    request: Request, ask: Ask, writer: Writer, *, streamed: bool, ignored: Iterable[str] = ()
) -> Response:
    """Raises what went wrong before the first byte."""
    try:
        if streamed:
            response = await stream(request, ask, SSE, writer)
        else:
            response = JSONResponse(await _whole(request, ask, writer))
    except PromptTooLong as error:
        raise refused("too_long", _as_openai_says(error)) from error
    if names := ", ".join(ignored):
        response.headers[IGNORED] = names
    return response


def _as_openai_says(error: PromptTooLong) -> str:
    """Agents and libraries look for these words, beside the code, before they shorten a conversation."""
    return (
        f"This model's maximum context length is {error.context_tokens} tokens. However, your messages "
        f"resulted in {error.prompt_tokens} tokens. {error.hint or ''}"
    ).rstrip()


async def _whole(request: Request, ask: Ask, writer: Writer) -> dict[str, Any]:
    under, begun = Underway(request, ask), False
    try:
        async for row, events in under:
            if not begun:
                writer.begin(under.started)
                begun = True
            writer.take(row, events)
        return writer.whole()
    finally:
        await under.close()
