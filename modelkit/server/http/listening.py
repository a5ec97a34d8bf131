"""The life of the server: it listens, it is told to stop, it drains, it ends.

SIGTERM, SIGINT or SIGHUP (a terminal that is closed) once drains: new requests get 503, /health says so, what
runs may end within `grace_s`, and is then told in its own dialect that the server stops. Pulls, pushes and
creates are told too, and put away what they have half done. A second SIGTERM or SIGINT ends the process at
once.

The sockets stay open while it drains, so that a client is told to come back and not left with a refused
connection.
"""

import asyncio
import logging
import math
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp

from modelkit.errors import ModelkitError
from modelkit.python_faults import of_system
from modelkit.server.faults import Fault
from modelkit.server.http.place import Place
from modelkit.server.http.protocol import guarded
from modelkit.server.log import Log
from modelkit.server.serving import Serving
from modelkit.temporary import put_away

INTERRUPTED = 130
_STOPPED = Fault("draining", "the server was stopped before this had ended", retry_after_s=5)
_TIDYING_S = 10
_LONGEST_KEY = 1 << 20
_LAST_BYTES_S = 5  # for what was said to clients in the end to reach them


class Server(uvicorn.Server):
    """uvicorn's, with its own way to stop. started: called once it listens. Raises ModelkitError for a
    certificate that cannot be used.
    """

    def __init__(self, app: ASGIApp, serving: Serving, place: Place, started: Callable[[], None]) -> None:
        limits = serving.limits
        settings: dict[str, Any] = {
            "http": guarded(limits, serving.log),
            "ws": "none",
            "lifespan": "off",
            "log_config": None,
            "access_log": False,
            "server_header": False,
            "proxy_headers": False,
            "timeout_keep_alive": limits.idle_s,
            "timeout_graceful_shutdown": _LAST_BYTES_S,
            "h11_max_incomplete_event_size": limits.header_bytes,
            "ssl_certfile": place.certificate,
            "ssl_keyfile": place.key,
            "ssl_keyfile_password": place.password,
        }
        super().__init__(uvicorn.Config(app, **settings))
        try:
            _require_password(place)
            self.config.load()
        except (OSError, ssl.SSLError) as error:
            locked = place.password is not None
            hint = "Is that the password of its key?" if locked else None
            pem = isinstance(error, ssl.SSLError) and "PEM" in str(error)
            why = "it, or its key, is not a PEM file" if pem else of_system(error)
            raise ModelkitError(f"the certificate cannot be used: {why}", hint=hint) from error
        self._serving, self._told = serving, started
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._signalled = self._asked = False

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        with _heard(self._serving.log):
            await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self._told()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """uvicorn's, and SIGHUP, unless whoever started us has it ignored, as nohup does."""
        with super().capture_signals():
            here = threading.current_thread() is threading.main_thread()
            if not here or signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
                yield
                return
            before = signal.signal(signal.SIGHUP, self.handle_exit)
            try:
                yield
            finally:
                signal.signal(signal.SIGHUP, before)

    def handle_exit(self, sig: int, frame: object) -> None:
        """A signal. It may come between any two steps of Python, so little is done here."""
        hung_up = sig == signal.SIGHUP  # which comes beside SIGTERM, in any order, and more than once
        if self._asked and not hung_up:
            put_away()
            os._exit(INTERRUPTED)
        self._asked |= not hung_up
        if self._signalled:
            return
        self._signalled = True
        if self._loop is None:
            put_away()
            os._exit(INTERRUPTED if sig == signal.SIGINT else 0)
        self._loop.call_soon_threadsafe(self.stop)

    def stop(self) -> None:
        """Drain, then end. On the event loop's thread."""
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        state, limits = self._serving.state, self._serving.limits
        state.draining = True
        grace_s = None if math.isinf(limits.grace_s) else limits.grace_s  # JSON has no infinity
        self._serving.log.line("draining", running=len(state.underway), grace_s=grace_s)
        clock = asyncio.get_running_loop().time
        end_s = clock() + limits.grace_s
        for patience in [one for one in state.arriving if not one.expired()]:
            patience.reschedule(clock())  # what has not come yet is new, and so sent away
        while (state.underway or state.jobs) and clock() < end_s:
            await asyncio.sleep(0.05)
        for one in [*state.underway, *state.jobs]:
            one.stop(_STOPPED)
        while state.jobs and clock() < end_s + _TIDYING_S:  # a thread that just ends leaves its files behind
            await asyncio.sleep(0.05)
        self.should_exit = True


def _require_password(place: Place) -> None:
    """Raise ModelkitError where a key is locked and nobody said what opens it: OpenSSL would ask at a
    terminal, and a server may have none.
    """
    file = place.key or place.certificate
    if file is None or place.password is not None:
        return
    with Path(file).open("rb") as opened:
        locked = b"ENCRYPTED" in opened.read(_LONGEST_KEY)
    if locked:
        raise ModelkitError(
            f"the key in {file} is encrypted, and its password is missing",
            hint="Give it with --ssl-keyfile-password @FILE, or MODELKIT_SSL_KEYFILE_PASSWORD.",
        )


class _Complaints(logging.Handler):
    """What uvicorn says of connections, as lines of our log; what is not HTTP is told by `protocol`."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exception(), h11.RemoteProtocolError):
            self._log.line("connection", said=record.getMessage())


@contextmanager
def _heard(log: Log) -> Generator[None]:
    logger, handler = logging.getLogger("uvicorn.error"), _Complaints(log)
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = True
