"""One blob from the store into a registry: not at all where it is there, from another repository of the same
registry where that has it, else in chunks, from where an earlier attempt ended.

    POST uploads/           begins; 201: it was taken over from elsewhere; 202: Location says where to go on
    PATCH Location          one chunk; the answer has the next Location, and in Range what has come
    GET Location            after a failure: what has come; 404: the registry has forgotten it, begin again
    PUT Location&digest=    ends; a blob of one chunk comes with it

A registry that says it has other bytes than those that were sent is not believed: the blob begins again.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from modelkit.errors import FetchError
from modelkit.fetch.registry.client import LATER, Registry, Request, pull_scope, push_scopes
from modelkit.fetch.registry.remembered import Remembered
from modelkit.fetch.registry.tokens import Denied
from modelkit.fetch.registry.url import Url
from modelkit.fetch.registry.wire import Answer, Interrupted
from modelkit.store.digest import Blob

CHUNK_BYTES = 64 << 20
_LARGEST_CHUNK_BYTES = 1 << 30
_PIECE_BYTES = 1 << 20
_SESSIONS = 5  # begun for one blob before it is given up

_RANGE = re.compile(r"(?:bytes=)?0-([0-9]{1,19})")
_LOST = (400, 404, 410, 416)

Advance = Callable[[int], None]


class _Lost(Exception):
    """The registry does not know the upload any more, or has other bytes."""


@dataclass(frozen=True, slots=True)
class _Session:
    """An upload under way."""

    url: Url
    """Where the next request goes; signed, perhaps, so no message has it."""
    offset: int = 0
    """How many bytes the registry has."""
    chunk_bytes: int = CHUNK_BYTES


class Uploads:
    """Blobs for one repository, for one operation."""

    def __init__(
        self,
        registry: Registry,
        repository: str,
        remembered: Remembered,
        advance: Advance,
        *,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        """advance: called from several threads, one call at a time."""
        self._registry = registry
        self._repository = repository
        self._remembered = remembered
        self._advance = advance
        self._chunk_bytes = chunk_bytes
        self._mutex = threading.Lock()
        self.sent_bytes = 0
        """What went over the network."""
        self.mounted: list[Blob] = []
        """What the registry took over from another repository."""

    def send(self, blob: Blob, path: Path) -> None:
        """Bring the blob that lies at `path` into the repository. Raises FetchError."""
        if self.has(blob):
            self.tell(blob.size_bytes)
            return
        session = self._taken_up(blob)
        for _ in range(_SESSIONS):
            session = session or self._begun(blob)
            if session is None:
                self.mounted.append(blob)
                self.tell(blob.size_bytes)
                return
            told = _Told(self, session.offset)
            try:
                self._send(blob, path, session, told)
                self._remember(blob, None)
                return
            except _Lost:
                told.to(0)
                session = None
                self._remember(blob, None)
        raise FetchError(f"{self._registry.host} forgets the upload of {blob.digest.short} again and again")

    def has(self, blob: Blob) -> bool:
        """Is the blob in the repository? Raises FetchError where it has another size there."""
        request = Request(
            "HEAD",
            self._registry.at(self._repository, f"blobs/{blob.digest}"),
            (pull_scope(self._repository),),
            expected=(200, 404),
            what=f"the blob {blob.digest.short} of {self._repository}",
        )
        with self._registry.call(request) as answer:
            if answer.status == 200 and answer.length not in (None, blob.size_bytes):
                raise FetchError(
                    f"{self._registry.host} has {answer.length} bytes for the blob {blob.digest}, which has"
                    f" {blob.size_bytes}: what it keeps is damaged"
                )
            return answer.status == 200

    def _begun(self, blob: Blob) -> _Session | None:
        """A new upload; None where another repository had the blob."""
        sources = [one for one in self._remembered.places(blob.digest) if one != self._repository][:1]
        try:
            return self._posted(blob, sources)
        except Denied:
            if not sources:
                raise
            return self._posted(blob, [])

    def _posted(self, blob: Blob, sources: list[str]) -> _Session | None:
        url = self._registry.at(self._repository, "blobs/uploads/")
        if sources:
            url = url.with_query(f"mount={blob.digest}&from={sources[0]}")
        request = Request(
            "POST",
            url,
            push_scopes(self._repository, sources),
            expected=(201, 202),
            what=f"an upload to {self._repository}",
        )
        with self._registry.call(request) as answer:
            if answer.status == 201:
                return None
            least = answer.header("oci-chunk-min-length") or ""
            chunk_bytes = max(self._chunk_bytes, int(least) if least.isdecimal() and len(least) < 16 else 0)
            if chunk_bytes > _LARGEST_CHUNK_BYTES:
                raise FetchError(
                    f"{self._registry.host} wants chunks of {chunk_bytes} bytes; that is refused"
                )
            return _Session(self._next(url, answer), 0, chunk_bytes)

    def _taken_up(self, blob: Blob) -> _Session | None:
        """What an earlier process left, where the registry still knows it."""
        if blob.size_bytes <= self._chunk_bytes:
            return None
        known = self._remembered.upload(self._repository, blob.digest)
        if known is None:
            return None
        try:
            url = self._registry.allowed(Url.parse(known))
            found = self._asked(_Session(url, 0, self._chunk_bytes), blob.size_bytes)
        except (FetchError, _Lost):
            return None
        return found

    def _send(self, blob: Blob, path: Path, session: _Session, told: "_Told") -> None:
        """All chunks and the end. Raises _Lost."""
        with path.open("rb", buffering=0) as file:
            failures = 0
            small = blob.size_bytes <= session.chunk_bytes and session.offset == 0
            while not small and session.offset < blob.size_bytes:
                before = session.offset
                try:
                    session = self._chunk(blob, file.fileno(), session, told)
                except Interrupted:
                    session = self._after_failure(session, blob, failures)
                told.to(session.offset)
                failures = 0 if session.offset > before else failures + 1
                if failures >= self._registry.limits.attempts:
                    raise Interrupted(f"{self._registry.host} takes no more of the blob {blob.digest.short}")
            self._end(blob, file.fileno() if small else None, session, told)

    def _after_failure(self, session: _Session, blob: Blob, failures: int) -> _Session:
        self._registry.pause(failures)
        return self._asked(session, blob.size_bytes)

    def _chunk(self, blob: Blob, file: int, session: _Session, told: "_Told") -> _Session:
        """Send the next chunk. Raises Interrupted, _Lost."""
        count = min(session.chunk_bytes, blob.size_bytes - session.offset)
        stop = session.offset + count
        request = Request(
            "PATCH",
            session.url,
            push_scopes(self._repository),
            headers=(
                ("Content-Type", "application/octet-stream"),
                ("Content-Range", f"{session.offset}-{stop - 1}"),
            ),
            body=lambda: _pieces(file, session.offset, stop, told),
            size_bytes=count,
            expected=(202, *LATER, *_LOST),
            repeat=False,
            what=f"an upload to {self._repository}",
        )
        with self._registry.call(request) as answer:
            if answer.status in LATER:
                raise Interrupted(f"{self._registry.host} cannot take a chunk now (status {answer.status})")
            if answer.status in _LOST:
                raise _Lost
            has = self._said_range(answer, blob.size_bytes)
            if has is not None and has > stop:
                raise _Lost
            after = _Session(
                self._next(session.url, answer), stop if has is None else has, session.chunk_bytes
            )
        self._remember(blob, after)
        return after

    def _asked(self, session: _Session, size_bytes: int) -> _Session:
        """What the registry has of the upload. Raises _Lost."""
        request = Request(
            "GET",
            session.url,
            push_scopes(self._repository),
            expected=(200, 204, *_LOST),
            what=f"an upload to {self._repository}",
        )
        with self._registry.call(request) as answer:
            has = None if answer.status in _LOST else self._said_range(answer, size_bytes)
            if has is None:
                raise _Lost
            url = self._next(session.url, answer) if answer.header("location") else session.url
        return _Session(url, has, session.chunk_bytes)

    def _end(self, blob: Blob, file: int | None, session: _Session, told: "_Told") -> None:
        """The last request, with the whole blob where it is small. Raises _Lost, FetchError."""
        request = Request(
            "PUT",
            session.url.with_query(f"digest={blob.digest}"),
            push_scopes(self._repository),
            headers=(("Content-Type", "application/octet-stream"),),
            body=None if file is None else lambda: _pieces(file, 0, blob.size_bytes, told),
            size_bytes=0 if file is None else blob.size_bytes,
            expected=(200, 201, 204, *LATER, *_LOST),
            repeat=False,
            what=f"the end of an upload to {self._repository}",
        )
        try:
            with self._registry.call(request) as answer:
                done, found = answer.status < 400, answer.header("docker-content-digest")
        except Interrupted:
            done, found = False, None
            self._registry.pause(0)
        if not done and not self.has(blob):  # the answer alone may have been lost
            raise _Lost
        if found is not None and found != str(blob.digest):
            raise FetchError(f"{self._registry.host} stored {found[:80]!a} where {blob.digest} was sent")
        told.to(blob.size_bytes)

    def _next(self, url: Url, answer: Answer) -> Url:
        location = answer.header("location")
        if location is None:
            raise FetchError(f"{self._registry.host} begins an upload, but does not say where it goes on")
        return self._registry.allowed(url.join(location))

    @staticmethod
    def _said_range(answer: Answer, size_bytes: int) -> int | None:
        """How many bytes the Range header says have come; None where it says nothing that can be."""
        found = _RANGE.fullmatch(answer.header("range") or "")
        has = int(found[1]) + 1 if found else None
        # An empty upload has the range 0-0, as one of a single byte has: that byte can be sent again.
        return None if has is None or has > size_bytes else 0 if has == 1 else has

    def _remember(self, blob: Blob, session: _Session | None) -> None:
        if blob.size_bytes > self._chunk_bytes:
            with self._mutex:
                self._remembered.keep_upload(
                    self._repository, blob.digest, None if session is None else str(session.url)
                )

    def tell(self, count: int, *, sent: bool = False) -> None:
        """Bytes that the registry has now, or, below zero, has not any more. sent: they were just sent."""
        with self._mutex:
            if sent:
                self.sent_bytes += count
            if count:
                self._advance(count)


class _Told:
    """How much of one blob a bar has been told of."""

    def __init__(self, uploads: Uploads, offset: int) -> None:
        self._uploads = uploads
        self._offset = offset
        uploads.tell(offset)

    def to(self, offset: int, *, sent: bool = False) -> None:
        self._uploads.tell(offset - self._offset, sent=sent)
        self._offset = offset


def _pieces(file: int, start: int, stop: int, told: _Told) -> Iterator[bytes]:
    told.to(start)
    while start < stop:
        piece = os.pread(file, min(_PIECE_BYTES, stop - start), start)
        if not piece:
            raise FetchError("a blob of the store is shorter than it should be; `modelkit verify` says more")
        start += len(piece)
        yield piece
        told.to(start, sent=True)
