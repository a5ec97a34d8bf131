"""HTTP with bounds: one request, one answer. Nothing is repeated or followed here, nothing is unpacked.

The head of an answer and the body of a small one each have a time that they may take however steadily they
drip; a large body must keep coming. A connection that fails is `Interrupted`, which may be tried again; what
a server must not do is a FetchError, which ends the matter.
"""

import ssl
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from types import TracebackType
from typing import Self
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

import httpcore2

from modelkit.errors import FetchError
from modelkit.fetch.registry.sockets import CheckedBackend, Gate, Patience, patience
from modelkit.fetch.registry.url import Url, is_loopback
from modelkit.fetch.trust import unvouched
from modelkit.python_faults import of_system
from modelkit.settings.places import trusting
from runtime.quoting import quoted
from runtime.records import dataclass

AGENT = "modelkit"
MOVED_BYTES = 1 << 20
_SHORT_BYTES = 4 << 10
_CONNECTIONS = 16

Body = Callable[[], Iterable[bytes]]  # called anew for every attempt


class Interrupted(FetchError):
    """The connection could not be made, or ended before all had come. Another attempt may do better."""


class Silent(Interrupted):
    """There was a connection, and nothing came, or too slowly."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long anything may take."""

    connect_s: float = 10.0
    silence_s: float = 20.0
    """Without a byte of what was asked for, as at the hub."""
    answer_s: float = 60.0
    """For a small body, for the next 64 KiB of a large one, and for an answer to what is to be stored."""
    settle_s: float = 900.0
    """The most for the head of the answer that ends an upload: registries move the whole blob first, or hash
    it, MOVED_BYTES in a second at the least.
    """
    pause_s: float = 1.0
    """Before a second attempt; it doubles."""
    longest_pause_s: float = 60.0
    attempts: int = 5
    """Of one call, or in a row that bring no byte of a blob."""


class Answer:
    """A status, headers and a body that comes as it is read."""

    def __init__(self, url: Url, response: httpcore2.Response, limits: Limits) -> None:
        self.url = url
        self.status = response.status
        self._response = response
        self._limits = limits
        self._headers: dict[str, list[str]] = {}
        for name, value in response.headers:
            self._headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        encoding = self.header("content-encoding")
        if encoding and encoding.lower() != "identity":
            raise FetchError(f"{url.host} sends its answer as {quoted(encoding)}, which was not asked for")

    def header(self, name: str) -> str | None:
        """The first header of that name (in lower case)."""
        return next(iter(self.headers(name)), None)

    def headers(self, name: str) -> list[str]:
        return self._headers.get(name, [])

    @property
    def length(self) -> int | None:
        """What Content-Length says."""
        text = self.header("content-length") or ""
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None

    def pieces(self) -> Iterator[bytes]:
        """The body as it comes."""
        stream, limit = self._response.iter_stream(), Patience(self._limits.answer_s, steady=True)
        while True:
            with _translated(self.url, limit):
                piece = next(stream, None)
            if piece is None:
                return
            yield piece

    def read(self, limit_bytes: int, what: str) -> bytes:
        """The body of a small answer. Raises FetchError for one that is longer than `limit_bytes`."""
        found = bytearray()
        with _translated(self.url, Patience(self._limits.answer_s)):
            for piece in self._response.iter_stream():
                found += piece
                if len(found) > limit_bytes:
                    raise FetchError(f"{what} from {self.url.host} has more than {limit_bytes:,} bytes")
        return bytes(found)

    def beginning(self, limit_bytes: int) -> bytes:
        """At most so much of the body, whatever happens to the rest."""
        found = bytearray()
        try:
            with _translated(self.url, Patience(self._limits.connect_s)):
                for piece in self._response.iter_stream():
                    found += piece
                    if len(found) >= limit_bytes:
                        break
        except FetchError:
            return bytes(found[:limit_bytes])
        return bytes(found[:limit_bytes])

    def drop(self) -> None:
        """Nobody wants the body. A short one is read, so that the connection can be used again."""
        self.beginning(_SHORT_BYTES)
        self.close()

    def close(self) -> None:
        self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Wire:
    """Connections to one registry and to where it sends us. For any thread; closed at its end."""

    def __init__(self, own_host: str, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.ended = threading.Event()
        """Nothing more is sent."""
        self._gate = Gate(own_host)
        self._backend, self._to_proxy = CheckedBackend(self._gate), CheckedBackend(None)
        self._mutex = threading.Lock()
        self._pools: dict[tuple[str, str | None], httpcore2.ConnectionPool] = {}

    def _request(
        self, method: str, url: Url, headers: dict[str, str], body: bytes | Iterable[bytes], head_s: float
    ) -> httpcore2.Request:
        """head_s: how long the beginning of the answer may take."""
        limits = self.limits
        sent = {"Host": url.netloc, "User-Agent": AGENT, "Accept-Encoding": "identity", **headers}
        return httpcore2.Request(
            method,
            httpcore2.URL(scheme=url.scheme, host=url.host, port=url.port, target=url.target),
            headers=[(name.encode(), value.encode("latin-1")) for name, value in sent.items()],
            content=body,
            extensions={
                "timeout": {
                    "connect": limits.connect_s,
                    "read": head_s,
                    "write": limits.answer_s,
                    "pool": limits.answer_s,
                }
            },
        )

    def send(
        self,
        method: str,
        url: Url,
        headers: dict[str, str],
        body: Body | None = None,
        size_bytes: int = 0,
        *,
        moves_bytes: int = 0,
    ) -> Answer:
        """Raises Interrupted. The answer is to be used as a context manager. moves_bytes: what the server may
        have to move before it answers.
        """
        sized = {"Content-Length": str(size_bytes)} if method in ("POST", "PUT", "PATCH") else {}
        limits = self.limits
        head_s = limits.answer_s if method in ("PUT", "PATCH") else limits.silence_s
        head_s += min(moves_bytes / MOVED_BYTES, limits.settle_s)
        if self.ended.is_set():
            raise FetchError("given up")
        request = self._request(method, url, {**headers, **sized}, body() if body else b"", head_s)
        with _translated(url, Patience(head_s)):
            response = self._pool(url).handle_request(request)
        try:
            return Answer(url, response, limits)
        except BaseException:
            response.close()
            raise

    def _pool(self, url: Url) -> httpcore2.ConnectionPool:
        proxy = None if is_loopback(url.host) or proxy_bypass(url.host) else getproxies().get(url.scheme)
        if proxy is not None:
            self._gate.check_proxied(url.host)
        with self._mutex:
            key = (url.scheme, proxy)
            if key not in self._pools:
                self._pools[key] = self._made(proxy, _tls() if url.scheme == "https" else None)
            return self._pools[key]

    def _made(self, proxy: str | None, tls: ssl.SSLContext | None) -> httpcore2.ConnectionPool:
        if proxy is None:
            return httpcore2.ConnectionPool(
                ssl_context=tls, max_connections=_CONNECTIONS, network_backend=self._backend
            )
        scheme, _, rest = proxy.rpartition("://")
        user, at, place = rest.removeprefix("//").rpartition("@")
        try:
            url = Url.parse(f"{scheme.lower() or 'http'}://{place}")
        except FetchError as error:
            raise FetchError(
                "the proxy that the environment names is not an http:// or https:// address"
            ) from error
        name, _, password = user.partition(":")
        return httpcore2.HTTPProxy(
            httpcore2.URL(scheme=url.scheme, host=url.host, port=url.port, target="/"),
            proxy_auth=(unquote(name), unquote(password)) if at else None,
            ssl_context=tls,
            network_backend=self._to_proxy,
        )

    def abort(self, *, for_good: bool) -> None:
        """End what other threads are busy with: their next read or write fails."""
        if for_good:
            self.ended.set()
        for backend in (self._backend, self._to_proxy):
            backend.abort()

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()


@cache
def _tls() -> ssl.SSLContext:
    """The system's certificates, read once."""
    with trusting():
        return httpcore2.default_ssl_context()


@contextmanager
def _translated(url: Url, limit: Patience) -> Generator[None]:
    """Failures of the connection as Interrupted, within the time that `limit` gives."""
    before, began = patience.set(limit), time.monotonic()
    try:
        yield
    except (httpcore2.ConnectTimeout, httpcore2.PoolTimeout) as error:
        raise Interrupted(f"{url.netloc} took no connection within {_since(began)}") from error
    except httpcore2.TimeoutException as error:
        raise Silent(f"{url.netloc} said nothing, or too little, for {_since(began)}") from error
    except httpcore2.RemoteProtocolError as error:
        raise Interrupted(f"{url.netloc} broke off, or spoke no proper HTTP: {_words(error)}") from error
    except (
        *(httpcore2.NetworkError, httpcore2.ProxyError, httpcore2.ProtocolError, ssl.SSLError),
        UnicodeError,  # of a proxy whose name can be none
    ) as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):  # behind a proxy, no SSLError is its cause
            raise unvouched(url.host, _words(error)) from error
        raise Interrupted(f"cannot reach {url.netloc}: {_words(error)}") from error
    finally:
        patience.reset(before)


def _since(began: float) -> str:
    return f"{time.monotonic() - began:.1f} s"


def _words(error: Exception) -> str:
    return of_system(error)[:200] or type(error).__name__
