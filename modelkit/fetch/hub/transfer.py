"""One file of the hub, over as many attempts and commands as it takes.

What came stays (`parts`); the next attempt asks for the rest. Whatever a server says of its bytes, only those
of the promised size and digest become a blob, so a part of another content costs a second transfer and no
more.
"""

import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from modelkit.address import HubAddress
from modelkit.errors import FetchError
from modelkit.fetch.hub.library import (
    CONNECT_S,
    PACE_BYTES,
    READ_S,
    Unreachable,
    answering,
    asking,
    headers_for,
    in_pace,
    is_loopback,
    raise_for_status,
    url_of,
)
from modelkit.fetch.hub.listing import Listed
from modelkit.fetch.hub.parts import Part, alone, part_of
from modelkit.progress import Advance
from runtime.quoting import quoted

if TYPE_CHECKING:
    import httpx2

ATTEMPTS = 5  # in a row that bring fewer than PACE_BYTES
_REDIRECTS = 5
_WAIT_S = 0.25
LONGEST_WAIT_S = 60.0  # that a server may ask for; who wants more is not waited for
_FRONT_BYTES = 64 << 20  # so many are read and dropped where a server knows no ranges, not more


class Transfer:
    """Fetches files of one server. Safe to use from several threads."""

    def __init__(self, address: HubAddress, endpoint: str, advance: Advance) -> None:
        self._address, self._endpoint = address, endpoint
        # Packed, sizes would not be those of the file.
        self._headers = {**headers_for(endpoint), "Accept-Encoding": "identity"}
        self._advance = advance
        self._stopped = Event()
        self._sockets: set[socket.socket] = set()

    def stop(self) -> None:
        """End what is under way, also where a server is silent in the middle of an answer. One that has not
        begun to answer is found out by whoever waits for it.
        """
        self._stopped.set()
        for one in tuple(self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def fetch(self, commit: str, file: Listed, blob: Path) -> None:
        """Let `blob` be the content of `file`, as it is at `commit`, unless `stop` was called.

        Raises FetchError, Unreachable; StoreError where it cannot be written.
        """
        if self._stopped.is_set():
            return
        with alone(part_of(blob)) as part:
            if blob.exists():  # somebody else fetched it while we waited
                self._advance(file.size_bytes)
                return
            url = url_of(self._address, commit, file.name, self._endpoint)
            part.begin(file)
            self._advance(part.size_bytes)
            taken_over = part.size_bytes > 0
            self._fill(url, file, part)
            if taken_over and not part.is_right(file):  # who knows what an earlier attempt left
                self._advance(-part.size_bytes)
                part.restart()
                self._fill(url, file, part)
            part.finish(file, blob)

    def piece(self, commit: str, file: Listed, start: int, stop: int) -> bytes:
        """The bytes [start, stop) of a file. Nobody has promised a digest of them. Raises FetchError,
        Unreachable.
        """
        url = url_of(self._address, commit, file.name, self._endpoint)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._piece(url, file, start, stop)
            except Unreachable as error:
                if self._stopped.is_set() or attempt == ATTEMPTS:
                    raise
                self._wait(attempt, error)
        raise AssertionError("the last attempt returns or raises")

    def _piece(self, url: str, file: Listed, start: int, stop: int) -> bytes:
        found = bytearray()
        with (
            asking(self._address, self._endpoint, file.name),
            self._open(url, {"Range": f"bytes={start}-{stop - 1}"}) as response,
            self._breakable(response),
        ):
            said = response.headers.get("content-range", "").replace(" ", "")
            if response.status_code != 206 and start > _FRONT_BYTES:
                raise FetchError(
                    f"{file.name}: the server sends whole files only, and a plan needs parts of it",
                    hint="Fetch it first: modelkit pull " + str(self._address),
                )
            if response.status_code == 206 and said != f"bytes{start}-{stop - 1}/{file.size_bytes}":
                raise FetchError(
                    f"the server was asked for bytes {start:,} to {stop:,} and sends {quoted(said)}"
                )
            skipped = 0 if response.status_code == 206 else start
            for piece in in_pace(response.iter_raw(), file.name):
                found += piece
                if len(found) >= skipped + stop - start:
                    break
        part = bytes(found[skipped : skipped + stop - start])
        if len(part) < stop - start:
            raise Unreachable(f"{file.name}: the connection ended after {len(found):,} bytes of a part")
        self._advance(len(part))
        return part

    def _fill(self, url: str, file: Listed, part: "Part") -> None:
        """Get the bytes that are missing."""
        failures, before = 0, part.size_bytes
        while part.size_bytes < file.size_bytes:
            try:
                self._request(url, file, part)
            except Unreachable as error:
                if self._stopped.is_set():
                    raise
                failures = 1 if part.size_bytes - before >= PACE_BYTES else failures + 1
                if failures == ATTEMPTS:
                    raise
                before = part.size_bytes
                self._wait(failures, error)

    def _wait(self, failures: int, error: Unreachable) -> None:
        """Before the next attempt: longer each time, or as long as the server wants. Raises what asks for too
        long; what came stays.
        """
        if error.wait_s > LONGEST_WAIT_S:
            raise error
        if self._stopped.wait(max(_WAIT_S * 2**failures, error.wait_s)):
            raise error

    def _request(self, url: str, file: Listed, part: "Part") -> None:
        """One answer of the server, as far as it goes. Raises Unreachable where it ends too soon."""
        wanted = {"Range": f"bytes={part.size_bytes}-"} if part.size_bytes else {}
        with (
            asking(self._address, self._endpoint, file.name),
            self._open(url, wanted) as response,
            self._breakable(response),
            part.flushed(),
        ):
            self._go_on(file)
            if wanted and not _continues(response, part.size_bytes, file.size_bytes):
                self._advance(-part.size_bytes)
                part.restart()
            _check_length(response, file, file.size_bytes - part.size_bytes)
            # As it comes: httpx would hold back what then is lost.
            for piece in in_pace(response.iter_raw(), file.name):
                self._go_on(file)
                part.write(piece)
                self._advance(len(piece))
                if part.size_bytes > file.size_bytes:
                    part.drop()
                    raise FetchError(
                        f"{file.name}: the server sends more than the {file.size_bytes:,} bytes it announced"
                    )
        if part.size_bytes < file.size_bytes:
            raise Unreachable(
                f"{file.name}: the connection ended after {part.size_bytes:,} of {file.size_bytes:,} bytes"
            )

    def _go_on(self, file: Listed) -> None:
        """Raise FetchError where nobody wants the rest any more."""
        if self._stopped.is_set():
            raise FetchError(f"{file.name}: stopped")

    @contextmanager
    def _open(self, url: str, extra: dict[str, str]) -> "Generator[httpx2.Response]":
        """The answer with the file in it, redirects followed by hand: what holds the file is often another
        server, which must not see the token.
        """
        headers, first = {**self._headers, **extra}, url
        for _ in range(_REDIRECTS):
            # A path with dots in it, or a byte that no name has, is httpx's to refuse.
            with answering(url, headers, _limits(), follow_redirects=False) as r:
                if not r.has_redirect_location:
                    _check_status(r, extra)
                    yield r
                    return
                url = _onward(url, r.headers["location"])
            if urlsplit(url).scheme != "https" and not (is_loopback(url) and is_loopback(first)):
                raise FetchError(
                    f"the server redirects to {urlsplit(url).scheme}://{urlsplit(url).hostname or ''}"
                )
            if _origin(url) != _origin(first):
                headers.pop("authorization", None)
        raise FetchError(f"the server redirects more than {_REDIRECTS} times")

    @contextmanager
    def _breakable(self, response: "httpx2.Response") -> Generator[None]:
        """Within, `stop` ends the answer."""
        stream = response.extensions.get("network_stream")
        found: Any = stream.get_extra_info("socket") if stream is not None else None
        held = {found} if isinstance(found, socket.socket) else set[socket.socket]()
        self._sockets |= held
        try:
            yield
        finally:
            self._sockets -= held


def _continues(response: "httpx2.Response", start: int, size_bytes: int) -> bool:
    """Does the answer go on where we are? One that begins anew is as good; any other is none."""
    if response.status_code == 200:
        return False
    said = response.headers.get("content-range", "")
    if said.replace(" ", "") != f"bytes{start}-{size_bytes - 1}/{size_bytes}":
        raise FetchError(f"the server was asked for the bytes from {start:,} on and sends {quoted(said)}")
    return True


def _check_length(response: "httpx2.Response", file: Listed, expected_bytes: int) -> None:
    """An answer that is whole and too short, or too long, is another file; no second attempt mends that."""
    said = response.headers.get("content-length")
    if said is not None and said != str(expected_bytes):
        raise FetchError(
            f"{file.name}: content-length is {quoted(said)} where {expected_bytes:,} bytes were announced",
            hint="Try again. If it stays so, the server has another file than its list says.",
        )


def _check_status(response: "httpx2.Response", wanted: dict[str, str]) -> None:
    if response.status_code == 206 and not wanted:
        raise FetchError("the server sends part of a file, though all of it was requested")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise FetchError("the server sends a file compressed, though it was asked not to")
    raise_for_status(response)


def _limits() -> "httpx2.Timeout":
    import httpx2

    return httpx2.Timeout(READ_S, connect=CONNECT_S)


def _onward(url: str, location: str) -> str:
    """Where a server redirects to. Raises FetchError for what is not an address."""
    try:
        joined = urljoin(url, location)
        _origin(joined)
    except ValueError as error:
        raise FetchError(f"the server redirects to what is not an address: {quoted(location)}") from error
    return joined


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port
