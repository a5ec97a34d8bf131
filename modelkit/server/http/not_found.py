"""Paths that nobody has: an error that says how the base address is meant, where a client has it wrong.

OpenAI's clients add `/chat/completions` to a base address that ends in `/v1`; Anthropic's and Ollama's add
`/v1/messages` and `/api/chat` to the bare address of the server. Whoever has all of an address where its base
belongs, or one for another server (`/openai/v1`), asks for a path whose end alone is right. Whoever joins
addresses by hand doubles a slash, or leaves one at the end.
"""

import re
from collections.abc import Iterator

from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from modelkit.server.faults import refused
from runtime.quoting import shown

UNPREFIXED = ("/chat/completions", "/completions", "/responses", "/embeddings", "/models")
"""What OpenAI's clients ask for where `/v1` is missing."""
_MOST_EXTRA = 4
"""Names that are looked at as too many: a path may have thousands."""


async def nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    """The application of all paths that have no route. Raises Refused."""
    raise refused("not_found", f"there is no such path here{_advice(scope)}")


def _advice(scope: Scope) -> str:
    path = re.sub("//+", "/", scope["path"]).rstrip("/")
    if path == "/messages" or path.startswith("/messages/"):
        return "; Anthropic's clients add /v1/messages to a base_url that is the server's address alone"
    for tail in _tails(path):
        if (meant := _meant(scope, tail)) is not None:
            return f"; did you mean {shown(meant)}?{'' if meant == path else _base(meant)}"
    return ""


def _tails(path: str) -> Iterator[str]:
    """The path, and what is left of it without its first names: what the client has added lies at its end."""
    for _ in range(_MOST_EXTRA + 1):
        yield path
        path = "".join(path[1:].partition("/")[1:])


def _meant(scope: Scope, tail: str) -> str | None:
    if _taken(scope, tail):
        return tail
    unprefixed = any(tail == one or tail.startswith(one + "/") for one in UNPREFIXED)
    return f"/v1{tail}" if unprefixed and _taken(scope, f"/v1{tail}") else None


def _base(meant: str) -> str:
    """How the address is meant that clients add this path to."""
    if meant.startswith("/v1/messages"):
        return " The base_url of Anthropic's clients is the server's address alone"
    if meant.startswith("/api/"):
        return " The host of Ollama's clients is the server's address alone"
    said = " The base_url of OpenAI's clients is the server's address with /v1 behind it"
    return said if meant.startswith("/v1/") else ""


def _taken(scope: Scope, path: str) -> bool:
    """Is there such a path, for what was asked of this one?"""
    routes = scope["app"].routes
    return any(route.matches({**scope, "path": path})[0] is Match.FULL for route in routes)
