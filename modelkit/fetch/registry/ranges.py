"""Ranges of a blob, as they come: for those who keep some of its bytes and store none of it.

What a server may do, and what becomes of it:

    206 with the range that was asked for    taken
    206 with another range                   an error
    200 instead of 206                       the server knows no ranges: what lies before is passed over
    less than promised                       asked for again from there on, as long as something comes
    more than was asked for                  an error
    other bytes                              found out by who reads a blob whole, by its digest
"""

from collections.abc import Iterator

from modelkit.errors import FetchError
from modelkit.fetch.registry.client import LATER, Registry, Request, pull_scope
from modelkit.fetch.registry.download import PROGRESS_BYTES, has_range
from modelkit.fetch.registry.wire import Answer, Interrupted
from modelkit.store.digest import Blob


def read_range(registry: Registry, repository: str, blob: Blob, start: int, stop: int) -> Iterator[bytes]:
    """The bytes [start, stop) of a blob, in pieces of any size; all of them, unless it raises FetchError."""
    failures = 0
    while start < stop:
        before, failed = start, None
        try:
            with _asked(registry, repository, blob, start, stop) as answer:
                ahead = start if answer.status == 200 else 0
                for came in answer.pieces():
                    piece, ahead = came[ahead:], max(ahead - len(came), 0)
                    if answer.status == 200:
                        piece = piece[: stop - start]
                    if len(piece) > stop - start:
                        raise FetchError(f"{registry.host} sends more of {blob.digest} than was asked for")
                    start += len(piece)
                    if piece:
                        yield piece
                    if start == stop:
                        return
        except Interrupted as error:
            failed = error
        failures = 0 if start - before >= PROGRESS_BYTES else failures + 1
        if failures >= registry.limits.attempts:
            raise failed or Interrupted(f"{registry.host} breaks off before the blob's end")
        if failures:
            registry.pause(failures - 1)


def _asked(registry: Registry, repository: str, blob: Blob, start: int, stop: int) -> Answer:
    answer = registry.call(
        Request(
            "GET",
            registry.at(repository, f"blobs/{blob.digest}"),
            (pull_scope(repository),),
            headers=(("Range", f"bytes={start}-{stop - 1}"),),
            expected=(*LATER, 200, 206),
            repeat=False,
            what=f"the blob {blob.digest.short} of {repository}",
        )
    )
    try:
        if answer.status in LATER:
            registry.pause(0, answer)
            raise Interrupted(f"{registry.host} cannot send a blob now (status {answer.status})")
        if answer.status == 206 and not has_range(answer, blob, start, stop - 1):
            raise FetchError(f"{registry.host} sends other parts of {blob.digest} than were asked for")
        if answer.status == 200 and answer.length not in (None, blob.size_bytes):
            raise FetchError(
                f"{registry.host} has {answer.length} bytes for the blob {blob.digest.short}, whose"
                f" manifest says {blob.size_bytes}"
            )
    except BaseException:
        answer.close()
        raise
    return answer
