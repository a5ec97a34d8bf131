"""Streams a planned safetensors file into a sink: header first, then the tensors in the order of the plan.

Sizes are known before a weight is read, so nothing is held back but the by-products of the matrix at hand
(its scales, an eighth of its codes). Worker threads read and transform blocks a few ahead of the writer,
which takes them in order; so reading, quantizing, hashing and writing overlap, and timing does not show in
the bytes.
"""

import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

from modelkit.pack.planning.plan_types import Output, Planned, PlannedFile
from modelkit.pack.planning.slabs import Piece
from modelkit.pack.writing.reader import Reader
from modelkit.progress import Advance

BLOCK_BYTES = 2 << 20  # larger ones leave the caches, and allocators map their memory anew for each
MAX_WORKERS = 8
LINE_BYTES = 64
"""Of a processor's cache. Files are mapped: with data at its multiples, sixteen rows that are read side by
side touch sixteen lines at a time and not 32, which fit no first cache where rows are some multiple of 4 kB
long (bf16 of width 2048, one row of x, one thread of a Zen 4: 13 -> 19 GB/s).
"""

Done = TypeVar("Done")
Transform = Callable[[Planned, Piece, Reader], "tuple[memoryview | bytearray, ...]"]


class Sink(Protocol):
    """Where bytes go, in order; the store's BlobWriter is one."""

    def write(self, data: "bytes | bytearray | memoryview", /) -> object: ...


def header_of(file: PlannedFile) -> bytes:
    """The safetensors header of a planned file."""
    return header_bytes(output for tensor in file.tensors for output in tensor.outputs)


def header_bytes(outputs: Iterable[Output]) -> bytes:
    """The safetensors header of a file: length, JSON in data order, blanks to a multiple of LINE_BYTES."""
    entries: dict[str, object] = {"__metadata__": {"format": "mlx"}}
    start = 0
    for output in outputs:
        stop = start + output.nbytes
        entries[output.name] = {
            "dtype": output.dtype,
            "shape": list(output.shape),
            "data_offsets": [start, stop],
        }
        start = stop
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % LINE_BYTES)
    return len(text).to_bytes(8, "little") + text


def write_file(
    file: PlannedFile,
    sink: Sink,
    reader: Reader,
    transform: Transform,
    advance: Advance = lambda _: None,
    begins: Callable[[], object] | None = None,
) -> None:
    """Write `file`. `advance` is told the source bytes of every finished block; `begins` is called by each
    worker before its first one.

    On an error nothing more is started; what the sink has by then is incomplete and must be discarded.
    """
    sink.write(header_of(file))
    workers = min(os.cpu_count() or 1, MAX_WORKERS)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="pack", initializer=begins)
    try:
        done = _ahead(pool, (_Job(transform, reader, *work) for work in blocks_of(file)), workers + 2)
        for tensor in file.tensors:
            _write_tensor(tensor, sink, done, advance)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def blocks_of(file: PlannedFile) -> Iterator[tuple[Planned, Piece]]:
    """All that the file is made of, in its order."""
    for tensor in file.tensors:
        for slab in tensor.slabs:
            for block in slab.blocks(BLOCK_BYTES):
                yield tensor, block


class _Job:
    """One block to transform; called by a worker."""

    def __init__(self, transform: Transform, reader: Reader, tensor: Planned, slab: Piece) -> None:
        self._transform = transform
        self._reader = reader
        self._tensor = tensor
        self._slab = slab

    def __call__(self) -> "tuple[memoryview | bytearray, ...]":
        return self._transform(self._tensor, self._slab, self._reader)


def _ahead(pool: ThreadPoolExecutor, jobs: Iterable[Callable[[], Done]], depth: int) -> Iterator[Done]:
    """The jobs' results in their order, with up to `depth` jobs under way."""
    waiting: deque[Future[Done]] = deque()
    for job in jobs:
        waiting.append(pool.submit(job))
        if len(waiting) == depth:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _write_tensor(
    tensor: Planned,
    sink: Sink,
    done: "Iterator[tuple[memoryview | bytearray, ...]]",
    advance: Advance,
) -> None:
    """The outputs one after the other; a by-product is collected while the output before it is written."""
    held: list[tuple[memoryview | bytearray, ...]] = []
    written = 0
    for output in tensor.outputs:
        if output.slabs:
            held = []
            for block in (block for slab in output.slabs for block in slab.blocks(BLOCK_BYTES)):
                first, *rest = next(done)
                written += _put(sink, first)
                held.append(tuple(rest))
                advance(block.read_bytes)
        else:
            for block_rest in held:
                written += _put(sink, block_rest[0])
            held = [block_rest[1:] for block_rest in held]
    if written != tensor.nbytes:
        raise AssertionError(f"{tensor.name}: {written:,} bytes were written, {tensor.nbytes:,} were planned")


def _put(sink: Sink, data: "memoryview | bytearray") -> int:
    sink.write(data)
    return len(data)
