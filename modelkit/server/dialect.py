"""What a dialect gives to the server: its routes, and how it words an error."""

from collections.abc import Callable
from typing import Any

from starlette.routing import BaseRoute

from modelkit.server.faults import Fault
from runtime.records import dataclass


def plain_words(fault: Fault, request_id: str) -> dict[str, Any]:
    """As Ollama does it, and for all paths that belong to nobody."""
    return {"error": fault.message}


@dataclass(frozen=True, slots=True)
class Dialect:
    """One row of the table in `app`."""

    name: str
    """In logs and metrics."""
    routes: tuple[BaseRoute, ...]
    """Of starlette; the handlers are `async def handler(request) -> Response`."""
    prefixes: tuple[str, ...]
    """Errors of paths below these are worded by this dialect; the longest prefix of all dialects wins."""
    word: Callable[[Fault, str], dict[str, Any]] = plain_words
    """(fault, request id) to the JSON of an error."""
    header: str | None = None
    """A header (lower case) that only its clients send: then it words the errors of every path."""
    statuses: dict[str, int] | None = None
    """Kinds of faults that have another status here than elsewhere."""
    open_paths: frozenset[str] = frozenset()
    """Paths with constant answers, that say nothing of models: no key, and no line in the log."""

    storing: tuple[str, ...] = ()
    """Paths, and all below them, that change the store unless they are only read (GET, HEAD)."""

    def status(self, fault: Fault) -> int:
        return (self.statuses or {}).get(fault.kind, fault.status)
