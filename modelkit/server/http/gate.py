"""What every request passes before a route sees it, and what every response gets.

In this order: an id and a trace, the names in Host and Origin, the key; then the routes. At the end the
request is one line of the log. What is refused here is worded by the path's dialect, as all errors are.
"""

import re
import secrets
from collections.abc import Callable, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from modelkit.server.access import host_of, origin_of
from modelkit.server.calling import note_failure
from modelkit.server.dialect import Dialect
from modelkit.server.faults import LASTING, Fault, Refused, refused
from modelkit.server.http.own_headers import OWN
from modelkit.server.http.target import at_origin
from modelkit.server.serving import Serving
from modelkit.server.trace import Trace

Word = Callable[[Scope], Dialect]
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_METHODS = "GET, HEAD, POST, DELETE, OPTIONS"
_LONGEST_NAME = 100
_EXPOSED = ", ".join(("x-request-id", "request-id", "retry-after", *OWN))
_SECURITY = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
}


class Gate:
    """An ASGI application around another. dialect: that whose path it is. open_paths: those without a key and
    without a line in the log.
    """

    def __init__(self, app: ASGIApp, serving: Serving, dialect: Word, open_paths: frozenset[str]) -> None:
        self._app, self._serving, self._dialect, self._open = app, serving, dialect, open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        at_origin(scope)
        headers, dialect = Headers(scope=scope), self._dialect(scope)
        trace = _trace(scope, headers, dialect)
        scope["modelkit.trace"] = trace
        added = {**_SECURITY, "x-request-id": trace.id, "request-id": trace.id}

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                trace.status = message["status"]
                ours = MutableHeaders(raw=message.setdefault("headers", []))
                for name, value in added.items():
                    ours.setdefault(name, value)
            await send(message)

        try:
            self._check_storing(scope, dialect)
            await self._pass(scope, receive, sending, headers, added)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the client is told
            if trace.status:  # too late to say anything else
                note_failure(self._serving, trace, error)
                return None  # uvicorn closes what has no end
            fault = note_failure(self._serving, trace, error)
            await worded(dialect, fault, trace)(scope, receive, sending)
        finally:
            self._serving.state.body_bytes -= trace.body_bytes
            self._serving.trimming.ended(trace.body_bytes)
            if scope["path"] not in self._open and not trace.goes_on:
                note_ended(self._serving, trace)
        return None

    def _check_storing(self, scope: Scope, dialect: Dialect) -> None:
        if not self._serving.access.read_only or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return
        path: str = scope["path"]
        if any(path == one or path.startswith(one + "/") for one in dialect.storing):
            raise refused("permission", "this server does not change models: it was started with --read-only")

    async def _pass(
        self, scope: Scope, receive: Receive, send: Send, headers: Headers, added: dict[str, str]
    ) -> None:
        access, local, hosts = self._serving.access, scope.get("server"), headers.getlist("host")
        if sum(len(name) + len(value) for name, value in headers.raw) > self._serving.limits.header_bytes:
            raise refused("headers", "the header lines are too long")
        if "transfer-encoding" in headers and "content-length" in headers:
            raise refused("invalid_request", "the body has two lengths: Content-Length, Transfer-Encoding")
        if not access.host_allowed(hosts, local[0] if local else None):
            raise _not_let_in("this server does not go by the name {}", hosts, host_of, "--allow-host")
        own = origin_of(f"{scope['scheme']}://{headers.get('host', '')}")
        origins = headers.getlist("origin")
        if not access.origin_allowed(origins, own):
            raise _page_not_let_in(origins)
        if origins:
            added |= {"access-control-allow-origin": origins[0], "vary": "origin"}
            added |= {"access-control-expose-headers": _EXPOSED}
            added.pop("cross-origin-resource-policy")
            if scope["method"] == "OPTIONS":
                return await _preflight(headers)(scope, receive, send)
        elif headers.get("sec-fetch-site") == "cross-site" and not _followed(scope, headers):
            raise refused("permission", "pages of other sites may not use the server; see --origins")
        if scope["path"] not in self._open and not access.key_fits(_key(headers)):
            raise refused("authentication", "the API key is missing or wrong")
        return await self._app(scope, receive, send)


def note_ended(serving: Serving, trace: Trace) -> None:
    """A line of the log, and a few numbers."""
    trace.ended_s = trace.total_s + trace.began_s
    serving.metrics.request(trace)
    serving.log.request(trace)


def worded(dialect: Dialect, fault: Fault, trace: Trace) -> Response:
    """A fault as a response."""
    headers: dict[str, str] = {}
    if fault.retry_after_s is not None:
        headers["retry-after"] = str(fault.retry_after_s)
    if fault.allow is not None:
        headers["allow"] = fault.allow
    if fault.kind in LASTING:
        headers["x-should-retry"] = "false"  # clients try again after any 5xx
    if fault.kind == "headers":
        headers["connection"] = "close"
    if fault.kind == "authentication":
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(dialect.word(fault, trace.id), dialect.status(fault), headers)


def _not_let_in(said: str, written: Sequence[str], read: Callable[[str], str | None], option: str) -> Refused:
    """For a name that a request gave, and what would let it in. said: with a place for the name."""
    name = read(written[0]) if len(written) == 1 else None
    if name is None or len(name) > _LONGEST_NAME:
        return refused("permission", f"{said.format('that was given')}; see {option}")
    return refused("permission", f"{said.format(name)}; {option} {name} allows it")


def _page_not_let_in(origins: Sequence[str]) -> Refused:
    if list(origins) == ["null"]:
        # Any site can make a frame that says so: no option allows it but the one that allows all sites.
        said = "pages without an address (files, sandboxed frames) may not ask; --origins '*' allows them"
        return refused("permission", said)
    return _not_let_in("pages of the address {} may not ask", origins, origin_of, "--origins")


def _followed(scope: Scope, headers: Headers) -> bool:
    """Has a person followed a link? All else that a page of another site asks without an Origin are pictures,
    scripts and forms.
    """
    return scope["method"] in ("GET", "HEAD") and headers.get("sec-fetch-mode") == "navigate"


def _preflight(headers: Headers) -> Response:
    allowed = {"access-control-allow-methods": _METHODS, "access-control-max-age": "600"}
    if asked := headers.get("access-control-request-headers"):
        allowed["access-control-allow-headers"] = asked
    if headers.get("access-control-request-private-network") == "true":
        allowed["access-control-allow-private-network"] = "true"
    return Response(status_code=204, headers=allowed)


def _trace(scope: Scope, headers: Headers, dialect: Dialect) -> Trace:
    given = headers.get("x-request-id", "")
    number = given if _ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"
    client = scope.get("client")
    return Trace(number, scope["method"], scope["path"], client[0] if client else "local", dialect.name)


def _key(headers: Headers) -> str | None:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip(" \t") if kind.lower() == "bearer" else headers.get("x-api-key")
