"""Sockets and signals: from the first listener to the end of the last request.

SIGTERM or SIGINT once drains: no new requests, /health says so, what runs may end within `grace_s`, and is
then told so in its own dialect. A second one ends the process at once.
"""

import asyncio
import os
import signal
import socket
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from modelkit.errors import ModelkitError
from modelkit.server.faults import Fault
from modelkit.server.protocol import guarded
from modelkit.server.serving import Serving

INTERRUPTED = 130
_BACKLOG = 512
_STOPPED = Fault("draining", "the server was stopped before the answer had ended", retry_after_s=5)


@dataclass(frozen=True, slots=True)
class Place:
    """Where to listen."""

    host: str = "127.0.0.1"
    port: int = 11434
    """0: any that is free."""
    uds: Path | None = None
    """The path of a Unix socket instead."""
    certificate: str | None = None
    """The file of a TLS certificate; None for plain HTTP."""
    key: str | None = None
    """The file of its key; None where that is in the certificate's file."""
    password: str | None = None
    """Of that key."""


def listen(place: Place) -> socket.socket:
    """A socket that listens. Raises ModelkitError where it cannot."""
    return _listen_at_path(place.uds) if place.uds is not None else _listen_at_port(place.host, place.port)


def address_of(listener: socket.socket, place: Place) -> str:
    """What to type into a client."""
    if place.uds is not None:
        return f"unix:{place.uds}"
    host, port = listener.getsockname()[:2]
    scheme = "https" if place.certificate else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class Server(uvicorn.Server):
    """uvicorn's, with its own way to stop. started: called once it listens."""

    def __init__(self, app: ASGIApp, serving: Serving, place: Place, started: Callable[[], None]) -> None:
        limits = serving.limits
        settings: dict[str, Any] = {
            "http": guarded(limits),
            "ws": "none",
            "loop": "auto",
            "lifespan": "off",
            "log_config": None,
            "access_log": False,
            "server_header": False,
            "proxy_headers": False,
            "timeout_keep_alive": int(limits.idle_s),
            "h11_max_incomplete_event_size": limits.header_bytes,
            "ssl_certfile": place.certificate,
            "ssl_keyfile": place.key,
            "ssl_keyfile_password": place.password,
        }
        super().__init__(uvicorn.Config(app, **settings))
        self._serving, self._told = serving, started
        self._stopping: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._told()

    def handle_exit(self, sig: int, frame: object) -> None:
        """Called on the event loop's thread, between two steps of Python."""
        if self._stopping is not None:
            os._exit(INTERRUPTED)
        loop = asyncio.get_running_loop()
        self._stopping = loop.create_task(self._drain())

    async def _drain(self) -> None:
        state, limits = self._serving.state, self._serving.limits
        state.draining = True
        for listener in self.servers:
            listener.close()
        end_s = asyncio.get_running_loop().time() + limits.grace_s
        while state.underway and asyncio.get_running_loop().time() < end_s:
            await asyncio.sleep(0.05)
        for under in list(state.underway):
            under.stop(_STOPPED)
        self.should_exit = True


def _listen_at_port(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family)
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(found[0][4])
        listener.listen(_BACKLOG)
    except OSError as error:
        raise ModelkitError(
            f"cannot listen on {host}:{port}: {(error.strerror or str(error)).lower()}",
            hint="Another server may be there already; --port takes another number, 0 any that is free.",
        ) from error
    listener.setblocking(False)
    return listener


def _listen_at_path(path: Path) -> socket.socket:
    """Only its owner can reach it."""
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
            _remove_left_over(path)
        listener = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        listener.listen(_BACKLOG)
    except OSError as error:
        raise ModelkitError(f"cannot listen on {path}: {(error.strerror or str(error)).lower()}") from error
    listener.setblocking(False)
    return listener


def _remove_left_over(path: Path) -> None:
    """A socket that nobody listens on any more."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise ModelkitError(f"another server listens on {path}")


def signals() -> tuple[int, ...]:
    """Those that stop the server."""
    return signal.SIGINT, signal.SIGTERM
