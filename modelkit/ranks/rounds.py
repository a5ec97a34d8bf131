"""Blobs from rank 0, a round of bytes at a time, for all that ask for them.

all       what each asks for: a blob, from some byte on
rank 0    a round of bytes, which goes from rank to rank and is kept where it is missing
...       until nobody asks for more
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import mlx.core as mx

from modelkit.errors import LoadError
from modelkit.python_faults import os_reason
from modelkit.ranks.facts import Facts, agreed
from modelkit.ranks.fetching import Fetching
from modelkit.ranks.outline import read_front
from modelkit.store.digest import Blob, Digest
from modelkit.store.manifest import MANIFEST_LIMIT_BYTES
from modelkit.store.store import Store
from runtime.quoting import quoted
from runtime.ranks.group import Group
from runtime.records import dataclass

PIECE_BYTES = 8 << 20
ROUND_BYTES = 128 << 20
_LOOK_S = 0.1
_STALLED_S = 600.0


@dataclass(frozen=True, slots=True)
class Round:
    """Bytes of one blob that rank 0 sends before the others are asked again."""

    number: int
    """Of the blob."""
    start: int
    stop: int

    def pieces(self) -> Iterator[tuple[int, int]]:
        """[start, stop) of each."""
        for start in range(self.start, self.stop, PIECE_BYTES):
            yield start, min(start + PIECE_BYTES, self.stop)


def next_round(wanted: Sequence[object], blobs: Sequence[Blob]) -> Round | None:
    """The bytes to send next, where ranks ask for these: the first that any rank lacks, and what follows.

    wanted: [number of a blob, first byte], or None. LoadError for what no rank of ours would ask for.
    """
    asked = [one for one in wanted if one is not None]
    if not asked:
        return None
    for one in asked:
        if not (isinstance(one, list) and len(one) == 2 and all(type(part) is int for part in one)):
            raise LoadError(f"a rank asks for {quoted(one)}, which is not part of a package")
        number, start = one
        if not (0 <= number < len(blobs) and 0 <= start < blobs[number].size_bytes):
            raise LoadError(f"a rank asks for byte {start} of blob {number}, which is not in the package")
    number, start = min(cast("list[list[int]]", asked))
    return Round(number, start, min(blobs[number].size_bytes, start + ROUND_BYTES))


class Sender:
    """Rank 0's blobs. What cannot be read is said, and other bytes go out: all stay in step."""

    def __init__(self, store: Store, digest: Digest, hollow: Mapping[Digest, Path]) -> None:
        """hollow: what stands for blobs that are not here, of which the header alone is asked for."""
        self._store, self._hollow = store, hollow
        self.digest = digest
        self.problem: str | None = None

    def read(self, blob: Blob, start: int, stop: int) -> bytes:
        try:
            with self._store.blob_path(blob.digest).open("rb") as file:
                file.seek(start)
                piece = file.read(stop - start)
        except OSError as error:
            piece = b""
            self.problem = f"cannot read the blob {blob.digest.short}: {os_reason(error)}"
        if len(piece) < stop - start and self.problem is None:
            self.problem = f"the blob {blob.digest.short} has lost its end"
        return piece.ljust(stop - start, b"\0")

    def front(self, blob: Blob) -> bytes:
        return read_front(self._hollow.get(blob.digest) or self._store.blob_path(blob.digest))

    def manifest(self) -> bytes:
        try:
            with self._store.blob_path(self.digest).open("rb") as file:
                return file.read(MANIFEST_LIMIT_BYTES + 1)
        except OSError:
            return b""  # which nobody takes for it


def all_rounds(
    group: Group,
    mine: Facts,
    blobs: Sequence[Blob],
    fetching: Fetching | None,
    sender: Sender | None,
    on_bytes: Callable[[int], None],
) -> None:
    """Until nobody asks for more. Rank 0 gives up where those that are busy get nowhere. on_bytes: of the
    bytes that all have fetched.
    """
    worked, moved_s = 0, time.monotonic()
    while True:
        state = {} if fetching is None else fetching.state()
        if sender is not None and sender.problem is not None:
            state["problem"] = sender.problem
        if group.rank == 0 and time.monotonic() > moved_s + _STALLED_S:
            state["problem"] = f"no machine has read or written anything for {_STALLED_S:g} s"
        said = agreed(group, {**state, **mine})
        on_bytes(sum(facts.get("fetched", 0) for facts in said))
        before, worked = worked, sum(facts.get("worked", 0) for facts in said)
        if worked != before or any(facts.get("waits") for facts in said):
            moved_s = time.monotonic()
        if any(facts.get("busy") for facts in said):
            continue
        now = next_round([facts.get("at") for facts in said], blobs)
        if now is not None:
            _round(group, now, blobs[now.number], fetching, sender)
        elif any(facts.get("waits") for facts in said):
            time.sleep(_LOOK_S)
        else:
            return


def _round(group: Group, now: Round, blob: Blob, fetching: Fetching | None, sender: Sender | None) -> None:
    for start, stop in now.pieces():
        mine = None
        if sender is not None:
            mine = mx.array(cast("Any", memoryview(sender.read(blob, start, stop))))
        with group.bounded():
            piece = group.broadcast(mine, (stop - start,), mx.uint8)
            mx.eval(piece)  # before the next is read: no more than one is on its way from here
        if fetching is not None:
            fetching.take(now.number, start, bytes(memoryview(cast("Any", piece))))
