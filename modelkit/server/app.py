"""The application: a table of dialects, each with its routes and its way to word errors."""

from importlib import import_module

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.routing import Match, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from modelkit.server.dialect import Dialect
from modelkit.server.http.gate import Gate
from modelkit.server.http.not_found import nowhere
from modelkit.server.serving import Serving

# Each has a DIALECT. Where two know a path, the first has it.
ROOMS = (
    "modelkit.server.page.routes",
    "modelkit.server.openai",
    "modelkit.server.ollama.dialect",
    "modelkit.server.anthropic.answers",
    "modelkit.server.health",
    "modelkit.server.own.chat",
    "modelkit.server.own.models",
    "modelkit.server.own.tokens",
)

_OTHER = Dialect("other", (), ("/",))


def make_app(serving: Serving) -> ASGIApp:
    """The whole server, for uvicorn or a test's client."""
    dialects: tuple[Dialect, ...] = tuple(import_module(room).DIALECT for room in ROOMS)
    routes = [route for dialect in dialects for route in dialect.routes]
    # Only its router: its own handling of errors would answer before the dialects can.
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    app.router.default = nowhere
    app.state.serving = serving

    near = by_path(app.router)

    async def routed(scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = app
        await near.get(scope.get("path", ""), app.router)(scope, receive, send)

    open_paths = frozenset(path for dialect in dialects for path in dialect.open_paths)
    return Gate(routed, serving, Finder(dialects), open_paths)


def by_path(router: Router) -> dict[str, Router]:
    """For each path without parts that vary, a router of the few routes that match it, in their order: to try
    the expressions of all of them takes longer than to answer.
    """
    found = dict[str, Router]()
    for path in {route.path for route in router.routes if isinstance(route, Route)}:
        scope = {"type": "http", "method": "GET", "path": path}
        some = [route for route in router.routes if route.matches(scope)[0] is not Match.NONE]
        if "{" not in path:
            found[path] = Router(some, redirect_slashes=False, default=router.default)
    return found


class Finder:
    """Whose path is it?"""

    def __init__(self, dialects: tuple[Dialect, ...]) -> None:
        found = [(prefix, dialect) for dialect in dialects for prefix in dialect.prefixes]
        self._prefixes = sorted(found, key=lambda row: -len(row[0]))
        self._headers = [(dialect.header, dialect) for dialect in dialects if dialect.header]

    def __call__(self, scope: Scope) -> Dialect:
        headers = Headers(scope=scope)
        for header, dialect in self._headers:
            if header in headers:
                return dialect
        path: str = scope["path"]
        for prefix, dialect in self._prefixes:
            if path == prefix or path.startswith(prefix.rstrip("/") + "/"):
                return dialect
        return _OTHER
