"""One blob from a registry into the store: in ranges, from where an earlier attempt ended.

A blob that is in the store, and sound, is not fetched. A large one comes in several stretches side by side.
What a server may do, and what becomes of it:

    206 with the range that was asked for    taken
    206 with another range                   nothing of it is used: from the start
    200 instead of 206                       the server knows no ranges: from the start, in one stretch
    416                                      our beginning is none of its: from the start
    less than promised                       asked for again from there on, as long as something comes
    more than the blob has                   an error
    other bytes                              found out by the digest; once more from the start if any of them
                                             came in an earlier attempt, else an error
"""

import threading
from collections.abc import Callable, Iterable

from modelkit.errors import FetchError
from modelkit.fetch.registry.blobs import Attempts, ask_blob, is_part
from modelkit.fetch.registry.client import Registry
from modelkit.fetch.registry.parallel import side_by_side
from modelkit.fetch.registry.wire import Answer, Interrupted
from modelkit.progress import Advance
from modelkit.store.digest import Blob
from modelkit.store.partial import PartialBlob, Stretch
from modelkit.store.transaction import Transaction

LARGE_BYTES = 256 << 20
STREAMS = 4
_STARTS = 3  # from the first byte, before a server without ranges is given up


class _StartOver(Exception):
    """What is here cannot be continued."""


class Downloads:
    """Blobs of one repository, for one operation."""

    def __init__(self, registry: Registry, repository: str, new: Transaction, advance: Advance) -> None:
        """advance: called from several threads, one call at a time."""
        self._registry = registry
        self._repository = repository
        self._new = new
        self._advance = advance
        self._mutex = threading.Lock()
        self.fetched_bytes = 0
        """What came over the network."""

    def fetch_all(self, blobs: Iterable[Blob]) -> None:
        """Bring all of them into the store: small ones several at a time, large ones in several streams."""
        ordered = sorted(set(blobs), key=lambda blob: (blob.size_bytes, blob.digest))
        small = [blob for blob in ordered if blob.size_bytes < LARGE_BYTES]
        self._side_by_side([lambda blob=blob: self.fetch(blob) for blob in small])
        for blob in ordered[len(small) :]:
            self.fetch(blob)

    def fetch(self, blob: Blob) -> None:
        """Bring `blob` into the store and keep it for the transaction. Raises FetchError, StoreError."""
        if self._is_here(blob):
            return
        with self._new.fetch_blob(blob) as partial:
            if self._is_here(blob):  # another process has just fetched it
                partial.remove()
            else:
                self._fetch(blob, partial)

    def _is_here(self, blob: Blob) -> bool:
        here = self._new.sound(blob.digest) == blob
        if here:
            self._tell(blob.size_bytes)
        return here

    def _fetch(self, blob: Blob, partial: PartialBlob) -> None:
        continued = partial.here_bytes > 0
        self._tell(partial.here_bytes)
        if not continued:
            partial.restart(STREAMS if blob.size_bytes >= LARGE_BYTES else 1)
        for _ in range(_STARTS):
            try:
                self._fill(blob, partial)
            except _StartOver:
                self._tell(-partial.here_bytes)
                partial.restart(1)
                continue
            if partial.commit():
                return
            if not continued:
                raise FetchError(f"{self._registry.host} sent other bytes than those of {blob.digest}")
            continued = False  # the beginning may be what was wrong
            self._tell(-blob.size_bytes)
        raise FetchError(f"{self._registry.host} breaks off again and again, and serves no parts of a blob")

    def _fill(self, blob: Blob, partial: PartialBlob) -> None:
        missing = [one for one in partial.stretches() if one.missing_bytes]
        single, over = len(partial.stretches()) == 1, threading.Event()
        self._side_by_side(
            [lambda one=one: self._stretch(blob, partial, one, single, over) for one in missing], over
        )

    def _side_by_side(self, tasks: list[Callable[[], None]], over: threading.Event | None = None) -> None:
        """over: set where one of them fails."""

        def stop(error: BaseException) -> None:
            if over:
                over.set()
            self._registry.abort(for_good=not isinstance(error, _StartOver))

        side_by_side(tasks, STREAMS, stop)

    def _stretch(
        self, blob: Blob, partial: PartialBlob, stretch: Stretch, single: bool, over: threading.Event
    ) -> None:
        """Fetch what a stretch lacks, in as many attempts as bring something."""
        done_bytes, end = stretch.done_bytes, stretch.stop - stretch.start
        attempts = Attempts(self._registry)
        while done_bytes < end and not over.is_set():
            before, failed = done_bytes, None
            try:
                with self._asked(blob, stretch, done_bytes, single) as answer:
                    for piece in answer.pieces():
                        if over.is_set():
                            return
                        if done_bytes + len(piece) > end:
                            raise FetchError(f"{self._registry.host} sends more than {blob.digest} has")
                        done_bytes = partial.write(stretch, done_bytes, piece)
                        self._tell(len(piece), fetched=True)
            except Interrupted as error:
                failed = error
            if done_bytes < end:
                attempts.ended(done_bytes - before, failed)

    def _asked(self, blob: Blob, stretch: Stretch, done_bytes: int, single: bool) -> Answer:
        """The answer that has the stretch from `done_bytes` on."""
        first, last = stretch.start + done_bytes, stretch.stop - 1
        if first == 0 and single:
            return ask_blob(self._registry, self._repository, blob)
        answer = ask_blob(self._registry, self._repository, blob, (first, last))
        if not is_part(answer, blob, first, last):
            answer.close()
            raise _StartOver
        return answer

    def _tell(self, count: int, *, fetched: bool = False) -> None:
        with self._mutex:
            if fetched:
                self.fetched_bytes += count
            if count:
                self._advance(count)
