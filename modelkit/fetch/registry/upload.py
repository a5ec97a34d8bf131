"""One blob from the store into a registry: not at all where it is there, from another repository of the same
registry where that has it, else in chunks (`session`), from where an earlier attempt ended.
"""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from modelkit.errors import FetchError
from modelkit.fetch.registry.client import Registry, Request, pull_scope
from modelkit.fetch.registry.push_cache import PushCache
from modelkit.fetch.registry.session import Lost, Session, Sessions
from modelkit.fetch.registry.tokens import Denied
from modelkit.fetch.registry.wire import Interrupted
from modelkit.progress import Advance
from modelkit.store.digest import Blob

CHUNK_BYTES = 64 << 20
_PIECE_BYTES = 1 << 20
_SESSIONS = 5  # begun for one blob before it is given up


class Uploads:
    """Blobs for one repository, for one operation."""

    def __init__(
        self,
        registry: Registry,
        repository: str,
        push_cache: PushCache,
        advance: Advance,
        *,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        """advance: called from several threads, one call at a time."""
        self._registry = registry
        self._repository = repository
        self._push_cache = push_cache
        self._advance = advance
        self._chunk_bytes = chunk_bytes
        self._sessions = Sessions(registry, repository, chunk_bytes)
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
            progress = _SentBytes(self, session.offset)
            try:
                self._send(blob, path, session, progress)
                self._remember(blob, None)
                return
            except Lost:
                progress.to(0)
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
                    f"{self._registry.host} has {answer.length:,} bytes for the blob {blob.digest}, which has"
                    f" {blob.size_bytes:,}: what it keeps is damaged"
                )
            return answer.status == 200

    def _begun(self, blob: Blob) -> Session | None:
        """A new upload; None where another repository had the blob."""
        sources = [one for one in self._push_cache.places(blob.digest) if one != self._repository]
        try:
            return self._sessions.begin(blob, sources[0] if sources else None)
        except Denied:
            if not sources:
                raise
            return self._sessions.begin(blob, None)

    def _taken_up(self, blob: Blob) -> Session | None:
        known = self._push_cache.upload(self._repository, blob.digest)
        return self._sessions.take_up(known, blob) if known else None

    def _send(self, blob: Blob, path: Path, session: Session, progress: "_SentBytes") -> None:
        """All chunks and the end. Raises Lost."""
        with path.open("rb", buffering=0) as file:
            body = None
            if session.offset == 0 and blob.size_bytes <= session.chunk_bytes:
                body = _body(file.fileno(), 0, blob.size_bytes, progress)
            else:
                session = self._send_chunks(blob, file.fileno(), session, progress)
            if not self._sessions.end(session, blob, body) and not self.has(blob):
                raise Lost
            progress.to(blob.size_bytes)

    def _send_chunks(self, blob: Blob, file: int, session: Session, progress: "_SentBytes") -> Session:
        failures = 0
        while session.offset < blob.size_bytes:
            before = session.offset
            count = min(session.chunk_bytes, blob.size_bytes - before)
            try:
                session = self._sessions.chunk(
                    session, blob, count, _body(file, before, before + count, progress)
                )
            except Interrupted:
                self._registry.pause(failures)
                session = self._sessions.ask(session, blob)
            self._remember(blob, session)
            progress.to(session.offset)
            failures = 0 if session.offset > before else failures + 1
            if failures >= self._registry.limits.attempts:
                raise Interrupted(f"{self._registry.host} takes no more of the blob {blob.digest.short}")
        return session

    def _remember(self, blob: Blob, session: Session | None) -> None:
        if blob.size_bytes > self._chunk_bytes:
            url = None if session is None else str(session.url)
            with self._mutex:
                self._push_cache.keep_upload(self._repository, blob.digest, url)

    def tell(self, count: int, *, sent: bool = False) -> None:
        """Bytes that the registry has now, or, below zero, has not any more. sent: they were just sent."""
        with self._mutex:
            if sent:
                self.sent_bytes += count
            if count:
                self._advance(count)


class _SentBytes:
    """How much of one blob is sent, as a bar shows it."""

    def __init__(self, uploads: Uploads, offset: int) -> None:
        self._uploads = uploads
        self._offset = offset
        uploads.tell(offset)

    def to(self, offset: int, *, sent: bool = False) -> None:
        self._uploads.tell(offset - self._offset, sent=sent)
        self._offset = offset


def _body(file: int, start: int, stop: int, progress: _SentBytes) -> Callable[[], Iterator[bytes]]:
    """A part of the file, anew for each attempt to send it."""
    return lambda: _pieces(file, start, stop, progress)


def _pieces(file: int, start: int, stop: int, progress: _SentBytes) -> Iterator[bytes]:
    progress.to(start)
    while start < stop:
        piece = os.pread(file, min(_PIECE_BYTES, stop - start), start)
        if not piece:
            raise FetchError("a blob of the store is shorter than it should be; `modelkit verify` says more")
        start += len(piece)
        yield piece
        progress.to(start, sent=True)
