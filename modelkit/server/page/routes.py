"""Who asks for `/` with a browser gets the page; who probes it, as clients of Ollama do, gets its sentence.

The page is static and says nothing of the models, so it needs no key: it asks for one. Its policy allows
scripts, styles and fonts of this server only, no inline ones, no frame around it, and no other host at all,
so that a model can neither run anything in the page nor send a conversation away in the address of a picture.
"""

import asyncio
import re
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from modelkit.server.dialect import Dialect
from modelkit.server.page.files import File, read_files

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types dompurify",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}
ALIVE = "Ollama is running"
"""Launchers of Ollama's clients compare this text."""
_GZIP = re.compile(r"(?:^|,)\s*gzip\s*(?:;\s*q=(?!0(?:\.0*)?\s*(?:,|$))[0-9.]+\s*)?(?:,|$)", re.IGNORECASE)


@cache
def files() -> dict[str, File]:
    """Read once."""
    return read_files(Path(__file__).parent)


async def start(request: Request) -> Response:
    """The page for browsers, a sentence for all others."""
    if "text/html" not in request.headers.get("accept", ""):
        return PlainTextResponse(ALIVE, headers={"vary": "accept"})
    return await _given(request, files()["index.html"])


async def page(request: Request) -> Response:
    """The page for everybody."""
    return await _given(request, files()["index.html"])


async def one_file(request: Request) -> Response:
    """One of the page's parts. The route has the name, so it is there."""
    return await _given(request, files()[request.scope["path"].removeprefix("/page/")])


async def _given(request: Request, file: File) -> Response:
    headers = {**HEADERS, "etag": file.tag, "vary": "accept, accept-encoding"}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    data = file.data
    if file.packable and _GZIP.search(request.headers.get("accept-encoding", "")):
        headers["content-encoding"], data = "gzip", await asyncio.to_thread(file.packed)
    return Response(data, headers=headers, media_type=file.kind)


def _dialect() -> Dialect:
    parts = [f"/page/{name}" for name in files() if name != "index.html"]
    routes = (Route("/", start), Route("/chat", page), *(Route(path, one_file) for path in parts))
    return Dialect("page", routes, ("/page", "/chat"), open_paths=frozenset({"/", "/chat", *parts}))


DIALECT = _dialect()
