"""Weights that rank 0 has not either: it reads each file of them in a registry, once and from its first byte
to its last, and passes on what comes. Every rank keeps its slices, and none keeps a whole file.

    rank 0    how many bytes come next (0: none yet; -1: it gives up), and these
    all       the SHA-256 of all of them: is it the blob's?
    all       from time to time: has anybody a problem?

Why not each rank its own ranges? A digest covers a whole blob: of a part nobody can say whether it is
right. Here each rank sees all of a blob go by and knows that it is what the manifest names, before a slice of
it counts. Nothing comes twice over the way to the registry, though shards want a few bytes of each row. An
attempt that was interrupted goes on with the first file of which somebody lacks a slice.
"""

import hashlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import mlx.core as mx
import numpy as np

from modelkit.errors import FetchError, ModelkitError, StoreError
from modelkit.ranks.facts import InStep
from modelkit.ranks.outline import Outline, read_front
from modelkit.source.tensor import TensorInfo
from modelkit.store.digest import Blob, Digest
from modelkit.store.slices import SliceWriter
from runtime.ranks.group import Group
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.fetch.registry.client import Registry

PIECE_BYTES = 8 << 20
_AHEAD = 2
"""Pieces that may wait for the other ranks."""
_BEAT_S = 1.0
"""How long the others wait without a word where nothing comes."""
_ENDING_S = 5.0

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SliceBytes:
    """Which bytes of a tensor are a slice's."""

    rows: int
    """The tensor's, along all axes in front of the one that is cut."""
    ranges: Ranges
    """[start, stop) in each row."""
    width: int
    """Bytes of a row in the file."""


class Sieve:
    """Finds the bytes of a slice in those of its file, which come in order."""

    def __init__(self, tensor: TensorInfo, wanted: SliceBytes) -> None:
        edges = [edge for one in wanted.ranges for edge in one]
        if edges != sorted(edges):
            raise StoreError(f"a slice of {tensor.name} has its ranges in another order than the file")
        self._start, self._stop = tensor.start, tensor.start + wanted.rows * wanted.width
        self._ranges, self._width = wanted.ranges, wanted.width

    def take(self, start: int, came: "np.ndarray") -> "Iterator[np.ndarray]":
        """Of bytes of the file, from `start` on."""
        at, end = max(start, self._start), min(start + len(came), self._stop)
        while at < end:
            off, width, place = (at - self._start) % self._width, self._width, at - start
            rows = 0 if off else (end - at) // width
            if rows:
                whole = came[place : place + rows * width].reshape(rows, width)
                yield np.concatenate([whole[:, slice(*ends)] for ends in self._ranges], axis=1).reshape(-1)
                at += rows * width
                continue
            stop = min(width, off + end - at)
            for first, last in self._ranges:
                low, high = max(first, off), min(last, stop)
                if low < high:
                    yield came[place + low - off : place + high - off]
            at += stop - off


class Keeping:
    """The slices that a rank keeps of one file. A context manager: what `end` did not put in place goes."""

    def __init__(
        self,
        path: Path,
        blob: Digest,
        slices: Sequence[tuple[Sieve, int, Callable[[], SliceWriter]]],
    ) -> None:
        """path: what stands for the file here, with its header. slices: what finds each, its bytes, and where
        it is written.
        """
        self._blob, self._front = blob, read_front(path)
        self._left = [*slices]
        self._open: dict[int, tuple[SliceWriter, int]] = {}
        self._sealed: list[SliceWriter] = []
        self._state, self._beginning = hashlib.sha256(), bytearray()
        self._stack = ExitStack()

    def __enter__(self) -> "Keeping":
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def take(self, start: int, came: memoryview) -> None:
        """Raises StoreError."""
        self._state.update(came)
        missing = len(self._front) - len(self._beginning)
        if missing > 0:
            self._beginning += came[:missing]
            if not self._front.startswith(self._beginning):
                raise StoreError(f"{self._blob} has another header than the one that came with the outline")
        numbers = np.frombuffer(came, np.uint8)
        for number, (sieve, nbytes, begin) in enumerate(self._left):
            for found in sieve.take(start, numbers):
                self._write(number, begin, nbytes, found)

    def end(self) -> None:
        """All has come: keep it, if it is the blob. Raises StoreError."""
        if self._state.hexdigest() != self._blob.hex:
            raise StoreError(f"other bytes than those of {self._blob} have come")
        for _, nbytes, begin in self._left:
            if not nbytes:
                writer = self._stack.enter_context(begin())
                writer.seal()
                self._sealed.append(writer)
        for writer in self._sealed:
            writer.place()

    def _write(self, number: int, begin: Callable[[], SliceWriter], nbytes: int, found: "np.ndarray") -> None:
        known = self._open.pop(number, None)
        writer, written = known or (self._stack.enter_context(begin()), 0)
        writer.write(np.ascontiguousarray(found).data)
        written += found.nbytes
        if written < nbytes:
            self._open[number] = writer, written
        else:  # closed here and now: there are more slices than files that a process may have open
            writer.seal()
            self._sealed.append(writer)


class Coming:
    """A blob, as it comes from the registry of an outline, on a thread of its own. A context manager."""

    def __init__(self, outline: Outline, blob: Blob) -> None:
        self._outline, self._blob = outline, blob
        self._pieces: queue.Queue[bytes | Exception] = queue.Queue(_AHEAD)
        self._over = threading.Event()
        self._registry: Registry | None = None
        self._thread = threading.Thread(target=self._run, name="modelkit-coming", daemon=True)

    def __enter__(self) -> "Coming":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        registry = self._registry
        if registry is not None:
            registry.abort()
        self._thread.join(_ENDING_S)

    def next(self) -> bytes:
        """What comes next; b"" where nothing has for a moment. Raises ModelkitError where nothing will."""
        with suppress(queue.Empty):
            found = self._pieces.get(timeout=_BEAT_S)
            if isinstance(found, Exception):
                raise found
            return found
        return b""

    def _run(self) -> None:
        try:
            self._read()
        except ModelkitError as error:
            self._put(error)
        except Exception as error:  # noqa: BLE001 -- all ranks are told, and give up
            self._put(FetchError(f"{type(error).__name__}: {error}"))

    def _read(self) -> None:
        from modelkit.fetch.registry.ranges import read_range
        from modelkit.fetch.registry.source import open_registry

        address = self._outline.address
        assert address is not None, "rank 0 alone reads"
        with open_registry(address, insecure=self._outline.insecure) as registry:
            self._registry = registry
            registry.ping()
            waiting = bytearray()
            for came in read_range(registry, address.repository, self._blob, 0, self._blob.size_bytes):
                waiting += came
                while len(waiting) >= PIECE_BYTES:
                    if not self._put(bytes(waiting[:PIECE_BYTES])):
                        return
                    del waiting[:PIECE_BYTES]
            if waiting:
                self._put(bytes(waiting))

    def _put(self, found: bytes | Exception) -> bool:
        """Whether anybody wants more."""
        while not self._over.is_set():
            with suppress(queue.Full):
                self._pieces.put(found, timeout=_BEAT_S)
                return True
        return False


class Streaming(InStep):
    """Files on their way to all ranks, which call all of it at the same time."""

    def __init__(self, group: Group, patience_s: float, each: Callable[[int], None]) -> None:
        """each: called with the bytes that came, after each piece; what it raises is raised."""
        self._group, self._patience_s, self._each = group, patience_s, each

    def file(self, size_bytes: int, keeping: Keeping | None, coming: Coming | None) -> None:
        """One file. keeping: what this rank keeps of it. coming: rank 0's."""
        with ExitStack() as stack:
            for one in (keeping, coming):
                if one is not None:
                    stack.enter_context(one)
            start = 0
            while start < size_bytes:
                came = self._next(coming)
                if came is None:
                    return
                with self.noting():
                    if keeping is not None and self.problem is None:
                        keeping.take(start, came)
                start += len(came)
                self._each(len(came))
            with self.noting():
                if keeping is not None and self.problem is None:
                    keeping.end()

    def _next(self, coming: Coming | None) -> memoryview | None:
        """None where no more will come."""
        while True:
            piece, length = b"", 0
            if coming is not None:
                length = -1
                with self.noting():
                    piece = coming.next()
                    length = len(piece)
            told = mx.array(length, mx.int32).reshape(1) if coming is not None else None
            length = int(cast("int", self._broadcast(told, 1, mx.int32).item()))
            if length < 0:
                return None
            if length:
                sent = mx.array(cast("Any", memoryview(piece))) if coming is not None else None
                return memoryview(cast("Any", self._broadcast(sent, length, mx.uint8)))

    def _broadcast(self, sent: mx.array | None, count: int, dtype: mx.Dtype) -> mx.array:
        with self._group.bounded(self._patience_s):
            came = self._group.broadcast(sent, (count,), dtype)
            mx.eval(came)  # before the next is read: no more than one is on its way from here
        return came
