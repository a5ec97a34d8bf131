"""Is the server there, and can it answer? Small, constant answers without a key."""

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from modelkit.server.dialect import Dialect
from modelkit.server.serving import serving_of


async def livez(request: Request) -> Response:
    """The event loop turns."""
    return JSONResponse({"status": "ok"})


async def health(request: Request) -> Response:
    """Would a new request be answered?"""
    if serving_of(request).state.draining:
        return JSONResponse({"status": "draining"}, 503)
    return JSONResponse({"status": "ok"})


async def metrics(request: Request) -> Response:
    """For Prometheus."""
    return PlainTextResponse(serving_of(request).metrics.text(), media_type="text/plain; version=0.0.4")


DIALECT = Dialect(
    "health",
    (Route("/livez", livez), Route("/health", health), Route("/metrics", metrics)),
    ("/livez", "/health", "/metrics"),
)
