"""One upload as its registry sees it: begun, continued chunk by chunk, asked about, ended.

    POST uploads/           begins; 201: it was taken over from elsewhere; 202: Location says where to go on
    PATCH Location          one chunk; the answer has the next Location, and in Range what has come
    GET Location            after a failure: what has come; 404: the registry has forgotten it
    PUT Location&digest=    ends; a blob of one chunk comes with it

A registry that says it has other bytes than those that were sent is not believed: the upload is `Lost`.
"""

import re
from dataclasses import field, replace

from modelkit.errors import FetchError
from modelkit.fetch.registry.client import LATER, Registry, Request, push_scopes
from modelkit.fetch.registry.url import Url
from modelkit.fetch.registry.wire import Answer, Body, Interrupted
from modelkit.store.digest import Blob
from runtime.quoting import quoted
from runtime.records import dataclass

_LARGEST_CHUNK_BYTES = 1 << 30
_RANGE = re.compile(r"(?:bytes=)?0-([0-9]{1,19})")
_GONE = (400, 404, 410, 416)
_BYTES = ("Content-Type", "application/octet-stream")


class Lost(Exception):
    """The registry does not know the upload any more, or has other bytes."""


@dataclass(frozen=True, slots=True)
class Session:
    """An upload under way."""

    url: Url = field(repr=False)
    """Where the next request goes. It can be signed, so no message has it."""
    offset: int
    """How many bytes the registry has."""
    chunk_bytes: int


class Sessions:
    """Uploads to one repository."""

    def __init__(self, registry: Registry, repository: str, chunk_bytes: int) -> None:
        self._registry = registry
        self._repository = repository
        self._chunk_bytes = chunk_bytes
        self._what = f"an upload to {repository}"

    def begin(self, blob: Blob, source: str | None) -> Session | None:
        """A new upload; None where the repository `source` had the blob, and the registry took it over."""
        url = self._registry.at(self._repository, "blobs/uploads/")
        if source:
            url = url.with_query(f"mount={blob.digest}&from={source}")
        scopes = push_scopes(self._repository, [source] if source else [])
        with self._registry.call(
            Request("POST", url, scopes, expected=(201, 202), what=self._what)
        ) as answer:
            if answer.status == 201:
                return None
            least = answer.header("oci-chunk-min-length") or ""
            chunk_bytes = max(self._chunk_bytes, int(least) if least.isdecimal() and len(least) < 16 else 0)
            if chunk_bytes > _LARGEST_CHUNK_BYTES:
                raise FetchError(f"{self._registry.host} wants chunks of {chunk_bytes:,} bytes; refused")
            return Session(self._next(url, answer), 0, chunk_bytes)

    def take_up(self, url: str, blob: Blob) -> Session | None:
        """The upload that an earlier process left there, where the registry still knows it."""
        try:
            return self.ask(Session(self._registry.allowed(Url.parse(url)), 0, self._chunk_bytes), blob)
        except (FetchError, Lost):
            return None

    def chunk(self, session: Session, blob: Blob, count: int, body: Body) -> Session:
        """Send the next `count` bytes. Raises Interrupted, Lost."""
        stop = session.offset + count
        request = Request(
            "PATCH",
            session.url,
            push_scopes(self._repository),
            headers=(_BYTES, ("Content-Range", f"{session.offset}-{stop - 1}")),
            body=body,
            size_bytes=count,
            expected=(202, *LATER, *_GONE),
            repeat=False,
            what=self._what,
        )
        with self._registry.call(request) as answer:
            if answer.status in LATER:
                raise Interrupted(f"{self._registry.host} cannot take a chunk now (status {answer.status})")
            has = None if answer.status in _GONE else _received_bytes(answer, blob)
            if answer.status in _GONE or (has or 0) > stop:
                raise Lost
            return replace(session, url=self._next(session.url, answer), offset=stop if has is None else has)

    def ask(self, session: Session, blob: Blob) -> Session:
        """What the registry has of the upload. Raises Lost."""
        request = Request(
            "GET",
            session.url,
            push_scopes(self._repository),
            expected=(200, 204, *_GONE),
            what=self._what,
        )
        with self._registry.call(request) as answer:
            has = None if answer.status in _GONE else _received_bytes(answer, blob)
            if has is None:
                raise Lost
            url = self._next(session.url, answer) if answer.header("location") else session.url
        return replace(session, url=url, offset=has)

    def end(self, session: Session, blob: Blob, body: Body | None) -> bool:
        """The last request; `body` has the whole blob where no chunk was sent. False where the answer did not
        say that it was stored, which it may be all the same.
        """
        request = Request(
            "PUT",
            session.url.with_query(f"digest={blob.digest}"),
            push_scopes(self._repository),
            headers=(_BYTES,),
            body=body,
            size_bytes=0 if body is None else blob.size_bytes,
            expected=(200, 201, 204, *LATER, *_GONE),
            repeat=False,
            what=self._what,
            moves_bytes=blob.size_bytes,
        )
        try:
            with self._registry.call(request) as answer:
                stored, found = answer.status < 400, answer.header("docker-content-digest")
        except Interrupted:
            self._registry.pause(0)
            return False
        if stored and found is not None and found != str(blob.digest):
            raise FetchError(f"{self._registry.host} stored {quoted(found)} where {blob.digest} was sent")
        return stored

    def _next(self, url: Url, answer: Answer) -> Url:
        location = answer.header("location")
        if location is None:
            raise FetchError(f"{self._registry.host} begins an upload, but does not say where it goes on")
        return self._registry.allowed(url.join(location))


def _received_bytes(answer: Answer, blob: Blob) -> int | None:
    """How many bytes the Range header says have come; None where it says nothing that can be."""
    found = _RANGE.fullmatch(answer.header("range") or "")
    has = int(found[1]) + 1 if found else None
    # An empty upload has the range 0-0, as one of a single byte has: that byte can be sent again.
    return None if has is None or has > blob.size_bytes else 0 if has == 1 else has
