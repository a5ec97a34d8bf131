"""Servers of loopback, each on a thread of its own for as long as a test wants it."""

import threading
from socketserver import TCPServer
from types import TracebackType
from typing import Self


class OnThread:
    """A context manager. server: bound, and not serving yet."""

    def __init__(self, server: TCPServer) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
