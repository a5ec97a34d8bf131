"""Paths that nobody has: an error that says how the base address is meant, where a client has it wrong.

OpenAI's clients add `/chat/completions` to a base address that ends in `/v1`; Anthropic's and Ollama's add
`/v1/messages` and `/api/chat` to the bare address of the server. Whoever joins addresses by hand doubles a
slash, or leaves one at the end.
"""

import re

from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from modelkit.server.faults import refused

UNPREFIXED = ("/chat/completions", "/completions", "/responses", "/embeddings", "/models")
"""What OpenAI's clients ask for where `/v1` is missing."""


async def nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    """The application of all paths that have no route. Raises Refused."""
    raise refused("not_found", f"there is no such path here{_advice(scope)}")


def _advice(scope: Scope) -> str:
    path: str = scope["path"]
    if path.startswith("/v1/v1/messages"):
        return "; the base_url of Anthropic's clients is the server's address alone, without /v1"
    if path.startswith(("/v1/api/", "/api/api/")):
        return "; the host of Ollama's clients is the server's address alone, without a path"
    if path.startswith("/v1/v1/") and _taken(scope, path[3:]):
        return f"; did you mean {_shown(path[3:])}? A base_url ends in /v1 once"
    if any(path == one or path.startswith(one + "/") for one in UNPREFIXED) and _taken(scope, "/v1" + path):
        return f"; did you mean /v1{_shown(path)}? The base_url of OpenAI's clients ends in /v1"
    plain = re.sub("//+", "/", path).rstrip("/")
    if plain != path and _taken(scope, plain):
        return f"; did you mean {_shown(plain)}?"
    if path == "/messages" or path.startswith("/messages/"):
        return "; Anthropic's clients add /v1/messages to a base_url that is the server's address alone"
    return ""


def _taken(scope: Scope, path: str) -> bool:
    """Is there such a path, for what was asked of this one?"""
    routes = scope["app"].routes
    return any(route.matches({**scope, "path": path})[0] is Match.FULL for route in routes)


def _shown(path: str) -> str:
    return "".join(one if one.isprintable() else "?" for one in path[:80])
