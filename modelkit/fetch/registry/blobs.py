"""One request for a blob or a part of it, and how often that is tried."""

import re

from modelkit.errors import FetchError
from modelkit.fetch.registry.client import LATER, Registry, Request, pull_scope
from modelkit.fetch.registry.wire import Answer, Interrupted
from modelkit.store.digest import Blob

PROGRESS_BYTES = 64 << 10
"""What an attempt must bring to count as one that went on."""
_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)")


def ask_blob(registry: Registry, repository: str, blob: Blob, part: tuple[int, int] | None = None) -> Answer:
    """The answer to a request for a blob, or for a part of it, (first byte, last byte). Of a part it may be
    206, with a range that `is_part` judges, 200 with all of the blob, or 416.

    Raises Interrupted, after a pause, where the registry cannot send now, and FetchError for a whole blob of
    another size.
    """
    answer = registry.call(
        Request(
            "GET",
            registry.at(repository, f"blobs/{blob.digest}"),
            (pull_scope(repository),),
            headers=() if part is None else (("Range", f"bytes={part[0]}-{part[1]}"),),
            expected=(*LATER, 200) if part is None else (*LATER, 200, 206, 416),
            repeat=False,
            what=f"the blob {blob.digest.short} of {repository}",
        )
    )
    try:
        if answer.status in LATER:
            registry.pause(0, answer)
            raise Interrupted(f"{registry.host} cannot send a blob now (status {answer.status})")
        if answer.status == 200 and answer.length not in (None, blob.size_bytes):
            raise FetchError(
                f"{registry.host} has {answer.length:,} bytes for the blob {blob.digest.short}, whose"
                f" manifest says {blob.size_bytes:,}"
            )
    except BaseException:
        answer.close()
        raise
    return answer


def is_part(answer: Answer, blob: Blob, first: int, last: int) -> bool:
    """Does the answer begin where it was asked to, and end no later?"""
    found = _RANGE.fullmatch(answer.header("content-range") or "") if answer.status == 206 else None
    if found is None or found[3] not in ("*", str(blob.size_bytes)):
        return False
    return int(found[1]) == first <= int(found[2]) <= last


class Attempts:
    """How many in a row have brought next to nothing: after some, the registry is given up."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._failures = 0

    def ended(self, came_bytes: int, failed: Interrupted | None) -> None:
        """One has ended too soon. Waits before the next one, or raises `failed` where there is none."""
        self._failures = 0 if came_bytes >= PROGRESS_BYTES else self._failures + 1
        if self._failures >= self._registry.limits.attempts:
            raise failed or Interrupted(f"{self._registry.host} breaks off before the blob's end")
        if self._failures:
            self._registry.pause(self._failures - 1)
