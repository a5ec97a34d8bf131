"""Ranges of a blob, as they come: for those who keep some of its bytes and store none of it.

What a server may do, and what becomes of it:

    206 with the range that was asked for    taken
    206 with another range, or 416           an error
    200 instead of 206                       the server knows no ranges: what lies before is passed over
    less than promised                       asked for again from there on, as long as something comes
    more than was asked for                  an error
    other bytes                              found out by who reads a blob whole, by its digest
"""

from collections.abc import Iterator

from modelkit.errors import FetchError
from modelkit.fetch.registry.blobs import Attempts, ask_blob, is_part
from modelkit.fetch.registry.client import Registry
from modelkit.fetch.registry.wire import Answer, Interrupted
from modelkit.store.digest import Blob


def read_range(registry: Registry, repository: str, blob: Blob, start: int, stop: int) -> Iterator[bytes]:
    """The bytes [start, stop) of a blob, in pieces of any size; all of them, unless it raises FetchError."""
    attempts = Attempts(registry)
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
        attempts.ended(start - before, failed)


def knows_ranges(registry: Registry, repository: str, blob: Blob) -> bool:
    """Does the server send parts of the blob? One that does not sends all of it to whoever wants its end."""
    with _asked(registry, repository, blob, 0, 1) as answer:
        return answer.status == 206


def _asked(registry: Registry, repository: str, blob: Blob, start: int, stop: int) -> Answer:
    answer = ask_blob(registry, repository, blob, (start, stop - 1))
    if answer.status != 200 and not is_part(answer, blob, start, stop - 1):
        answer.close()
        raise FetchError(f"{registry.host} sends other parts of {blob.digest} than were asked for")
    return answer
