"""The paths of responses that are kept, or on their way in the background."""

import re
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from modelkit.server.faults import refused
from modelkit.server.fields import Fields
from modelkit.server.openai.listed_items import page
from modelkit.server.openai.response_store import Coming, kept_of
from modelkit.server.serving import serving_of
from modelkit.server.streaming import SSE, UNBUFFERED
from runtime.quoting import quoted

T = TypeVar("T")


async def stored_response(request: Request) -> Response:
    """To be read again, watched as it comes, or forgotten."""
    id, kept = request.path_params["id"], kept_of(request)  # noqa: A001
    running = kept.running.get(id)
    if request.method == "DELETE":
        if running is not None:
            await running.cancel()
        return JSONResponse(_there(kept.forget(id), id))
    written, place = _there(kept.response(id), id), _query(request).whole("starting_after", 0, default=-1) + 1
    if request.query_params.get("stream", "false").lower() in ("false", "0"):
        return JSONResponse(written)
    if running is not None:
        return watched(request, running, place)
    if not (events := kept.events(id)):
        why = "only a response that was made in the background is given as a stream again"
        raise refused("invalid_request", f"stream: {why}", "stream")
    return Response(b"".join(events[place:]), media_type=SSE.media_type)


async def cancel(request: Request) -> Response:
    """The response as it is then. One that has ended stays as it is."""
    id, kept = request.path_params["id"], kept_of(request)  # noqa: A001
    if not _there(kept.response(id), id)["background"]:
        raise refused("invalid_request", "only a response that is made in the background can be cancelled")
    if (running := kept.running.get(id)) is not None:
        await running.cancel()
    return JSONResponse(_there(kept.response(id), id))


async def input_items(request: Request) -> Response:
    """What a response is an answer to."""
    id, given = request.path_params["id"], request.query_params  # noqa: A001
    include = [*given.getlist("include"), *given.getlist("include[]")]
    return JSONResponse(page(_there(kept_of(request).inputs(id), id), _query(request), include))


def watched(request: Request, running: Coming, place: int = 0) -> Response:
    """Its events from that number on, as they come."""
    events = running.watch(place, serving_of(request).limits.heartbeat_s)
    return StreamingResponse(events, headers=UNBUFFERED, media_type=SSE.media_type)


def _query(request: Request) -> Fields:
    """The fields of an address, with numbers as such."""
    given: dict[str, object] = dict(request.query_params)
    for name in ("limit", "starting_after"):
        if re.fullmatch("-?[0-9]{1,9}", str(given.get(name))):
            given[name] = int(str(given[name]))
    return Fields(given)


def _there(found: T | None, id: str) -> T:  # noqa: A002
    if found is None:
        raise refused("not_found", f"no response {quoted(id)} is kept here")
    return found


STORED_ROUTES = (
    Route("/v1/responses/{id}", stored_response, methods=["GET", "DELETE"]),
    Route("/v1/responses/{id}/cancel", cancel, methods=["POST"]),
    Route("/v1/responses/{id}/input_items", input_items, methods=["GET"]),
)
