"""Connections to addresses that may be connected to, and reads that cannot be dripped out for ever.

A name is resolved once, and the address that was checked is the one connected to, for as long as this lives:
a name that means another machine a moment later is not followed. The registry itself may be anywhere; where
it is on the open network, everything it points to must be there too.
"""

import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

import httpcore2

from modelkit.errors import FetchError
from modelkit.fetch.registry.url import as_address
from modelkit.python_faults import of_system

_REFILL_BYTES = 64 << 10


class Patience:
    """How long reads may take in all. Where `steady`, every 64 KiB that come renew it."""

    def __init__(self, seconds: float, *, steady: bool = False) -> None:
        self._seconds = self._left = seconds
        self._steady = steady
        self._got_bytes = 0

    def read(self, stream: httpcore2.NetworkStream, max_bytes: int, timeout: float | None) -> bytes:
        if self._left <= 0:
            raise httpcore2.ReadTimeout("too slow")
        began = time.monotonic()
        data = stream.read(max_bytes, min(self._left, self._left if timeout is None else timeout))
        self._left -= time.monotonic() - began
        self._got_bytes += len(data)
        if self._steady and self._got_bytes >= _REFILL_BYTES:
            self._left, self._got_bytes = self._seconds, 0
        return data


# That of the request which this thread is busy with: a connection serves one after the other.
patience: ContextVar[Patience | None] = ContextVar("patience", default=None)


class Gate:
    """Which addresses a host stands for, and whether they may be connected to."""

    def __init__(self, own_host: str) -> None:
        self._own_host = own_host
        self._known: dict[str, list[str]] = {}

    def addresses(self, host: str, port: int) -> list[str]:
        """Raises FetchError where a stranger's name leads to this machine or into a private network."""
        found = self._resolved(host, port)
        if host != self._own_host and not self._is_private(port):
            for address in found:
                self._check(host, address)
        return found

    def check_proxied(self, host: str) -> None:
        """As `addresses`, where a proxy will resolve the name: numbers are all that can be judged here."""
        if host != self._own_host and as_address(host):
            self._check(host, host)

    def _check(self, host: str, address: str) -> None:
        number = as_address(address)
        if number is not None and not number.is_global:
            raise FetchError(
                f"the registry points to {host}, which is in a private network ({address}); that is refused"
            )

    def _is_private(self, port: int) -> bool:
        """Is the registry itself on this machine or in a private network?"""
        numbers = [as_address(one) for one in self._resolved(self._own_host, port)]
        return any(number is not None and not number.is_global for number in numbers)

    def _resolved(self, host: str, port: int) -> list[str]:
        if host not in self._known:
            try:
                rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError) as error:
                raise FetchError(
                    f"no machine named {host} was found: {of_system(error)}",
                    hint="Is the name right, is there a network, and does it need a proxy?",
                ) from error
            self._known[host] = list(dict.fromkeys(str(row[4][0]) for row in rows))
        return self._known[host]


class CheckedBackend(httpcore2.NetworkBackend):
    """Connects to what the gate lets through. gate None: to a proxy, which the user has named."""

    def __init__(self, gate: Gate | None) -> None:
        self._gate = gate
        self._plain = httpcore2.SyncBackend()
        self._streams: WeakSet[_Stream] = WeakSet()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        failed: Exception | None = None
        for address in [host] if self._gate is None else self._gate.addresses(host, port):
            try:
                plain = self._plain.connect_tcp(address, port, timeout, local_address, socket_options)
                return _Stream(plain, self._streams)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failed = error
        raise failed or httpcore2.ConnectError(f"{host} has no address")

    def abort(self) -> None:
        """End all connections, also those that another thread waits at."""
        for stream in list(self._streams):
            with suppress(OSError, AttributeError):
                stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


class _Stream(httpcore2.NetworkStream):
    """A connection whose reads the request's patience bounds. known: of all there are."""

    def __init__(self, inner: httpcore2.NetworkStream, known: "WeakSet[_Stream]") -> None:
        self._inner, self._known = inner, known
        known.add(self)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        limit = patience.get()
        return (
            self._inner.read(max_bytes, timeout)
            if limit is None
            else limit.read(self._inner, max_bytes, timeout)
        )

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, timeout)

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, timeout), self._known)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
