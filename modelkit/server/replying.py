"""From a body to a response: what a dialect's routes have in common."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from modelkit.answers.generation import Finish
from modelkit.output.events import Event
from modelkit.server.active_request import ActiveRequest
from modelkit.server.ask import Ask
from modelkit.server.fields import Fields
from modelkit.server.http.body import read_json
from modelkit.server.http.own_headers import with_ignored, with_notes
from modelkit.server.http.writing import json_response
from modelkit.server.serving import apart, trace_of
from modelkit.server.streaming import Formatter, Wire, stream

T = TypeVar("T")
_QUICK_BYTES = 32 * 1024  # reading the fields of so many takes well below a millisecond


class Writer(Formatter, Protocol):
    """A Formatter that can also give an answer in one."""

    def take(self, row: int, events: Sequence[Event | Finish]) -> object:
        """As `batch`, where nothing is written."""
        ...

    def whole(self) -> dict[str, Any]:
        """The answer, once all has ended. Raises Refused where the server broke it off."""
        ...


async def read(request: Request, reader: Callable[[Fields], T]) -> T:
    """What a reader makes of the body; large ones are read beside the event loop."""
    body = await read_json(request)

    def looked_at(body: Fields) -> T:
        found = reader(body)
        request.state.unread = body.unread()
        return found

    if trace_of(request).body_bytes < _QUICK_BYTES:
        return looked_at(body)
    return await apart(request, looked_at, body)


def naming(request: Request, response: Response, ignored: Iterable[str]) -> Response:
    """The response with a header that names what changed nothing: what its dialect says, and what nobody has
    read of the body.
    """
    return with_ignored(response, (*ignored, *getattr(request.state, "unread", ())))


async def reply(
    request: Request, ask: Ask, writer: Writer, wire: Wire, *, streamed: bool, ignored: Iterable[str] = ()
) -> Response:
    """The answer as a stream, or as one object. Raises what went wrong before the first byte."""
    if streamed:
        response = await stream(request, ask, wire, writer)
    else:
        response = await _whole(request, ask, writer)
    return naming(request, response, ignored)


async def _whole(request: Request, ask: Ask, writer: Writer) -> Response:
    under, begun = ActiveRequest(request, ask), False
    try:
        async for step in under:
            if not begun:
                writer.begin(under.started)
                begun = True
            for row, events in step:
                writer.take(row, events)
        return with_notes(await json_response(request, writer.whole()), under.started.notes)
    finally:
        await under.close()
