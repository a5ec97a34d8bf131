"""One model's weights, from source files to blobs: copied, converted, or remembered from an earlier time.

A conversion is remembered under the digests of its source files and the plan, so changing SYSTEM or a
PARAMETER converts nothing again. Digests of sources that were never read before are computed beside the
conversion. What an earlier conversion left is used only where its bytes are still right (`store.soundness`):
creating a package again mends a damaged one.
"""

import hashlib
from collections.abc import Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Self

from modelkit.errors import StoreError
from modelkit.pack.part import Part
from modelkit.pack.planning.plan_types import Plan
from modelkit.pack.sources import Source
from modelkit.pack.writing.reader import Reader
from modelkit.pack.writing.write import blocks_of, write_file
from modelkit.progress import Advance, Progress, bar
from modelkit.store.canonical import canonical
from modelkit.store.digest import Blob, Digest
from modelkit.store.ingest import broken_promise
from modelkit.store.store import Store
from modelkit.store.transaction import Transaction
from runtime.records import dataclass

_REVISION = 2  # raise it when the same plan begins to give other bytes


def source_digests(source: Source, store: Store, *, read: bool = True) -> dict[str, Digest] | None:
    """The digests of the weight files by name; None if one would have to be read and `read` is false."""
    digests: dict[str, Digest] = {}
    for file in source.inventory.weights:
        digest = source.expected(file.path) or _digest(store, file.path, read)
        if digest is None:
            return None
        digests[file.name] = digest
    return digests


class _WouldRead(Exception):
    pass


def _digest(store: Store, path: Path, read: bool) -> Digest | None:
    def refuse(_: int) -> None:
        raise _WouldRead

    try:
        return store.source_digest(path, progress=None if read else refuse)
    except _WouldRead:
        return None


def memo_key(digests: Mapping[str, Digest], plan: Plan) -> str:
    """Everything that determines the written weight files, MLX's version included: its kernels may change."""
    from importlib.metadata import version  # only here: slow to import, and loading a model needs none

    value = {
        "revision": _REVISION,
        "mlx": version("mlx"),
        "sources": {name: digest.hex for name, digest in digests.items()},
        "files": [file.path for file in plan.files],
        "plan": plan.fingerprint(),
    }
    return "weights:" + hashlib.sha256(canonical(value)).hexdigest()


def recall(store: Store, key: str) -> dict[str, Digest] | None:
    """The weight files that an earlier conversion of that key left in the store, by path."""
    value = store.memo_get(key)
    files = value.get("files") if value else None
    if not isinstance(files, dict):
        return None
    return {str(path): Digest.parse(digest) for path, digest in files.items()}


def remember(store: Store, key: str, files: Mapping[str, Blob]) -> None:
    """Where that cannot be stored, the next create converts again; this package is not affected."""
    with suppress(StoreError):
        store.memo_put(key, {"files": {path: str(blob.digest) for path, blob in files.items()}})


@contextmanager
def checking(
    part: Part, new: Transaction, digests: Iterable[Digest], progress: Progress
) -> Generator[Advance]:
    """A bar, where any of these blobs has to be read to know that it is sound."""
    unknown = new.unknown_bytes(digests)
    with bar(progress, f"{part.plan.role}: checking", unknown):
        yield progress.advance if unknown else lambda _: None


@dataclass(frozen=True, slots=True)
class WrittenWeights:
    """What is in the store of a part."""

    files: dict[str, Blob]
    """Its weight files, by path."""
    sources: dict[str, Digest] | None
    """Its source's weight files, by name. None: those of an earlier conversion serve, and none was read."""


def write_weights(part: Part, new: Transaction, store: Store, progress: Progress) -> WrittenWeights:
    """Convert or copy them, or take those that an earlier conversion left."""
    if part.reused is not None:
        with checking(part, new, part.reused.values(), progress) as advance:
            kept = {path: new.sound(digest, advance) for path, digest in part.reused.items()}
        found = {path: blob for path, blob in kept.items() if blob is not None}
        if len(found) == len(kept):
            return WrittenWeights(found, None)
    with bar(progress, _label(part.plan), _read_bytes(part.plan)):
        if part.plan.converts:
            return _convert(part, new, store, progress.advance)
        return _copy(part, new, progress.advance)


def _read_bytes(plan: Plan) -> int:
    """The source bytes that `advance` will hear of; a fused matrix is read once per matrix it holds."""
    return sum(
        sum(slab.read_bytes for tensor in file.tensors for slab in tensor.slabs)
        if file.source is None
        else file.source_bytes
        for file in plan.files
    )


def _label(plan: Plan) -> str:
    return f"{plan.role}: {plan.label}" if plan.converts else f"{plan.role}: copy"


def _copy(part: Part, new: Transaction, advance: Advance) -> WrittenWeights:
    from modelkit.pack.writing.numbers import Passing  # loads NumPy

    blobs: dict[str, Blob] = {}
    held = {file.path: file.header for file in part.source.inventory.weights}
    with ThreadPoolExecutor(1, thread_name_prefix="numbers") as beside:
        for file in part.plan.files:
            assert file.source is not None
            numbers, expected = Passing(held[file.source].tensors), part.source.expected(file.source)
            blobs[file.path] = new.add_file(
                file.source,
                expect=expected,
                progress=advance,
                look=lambda piece, numbers=numbers: beside.submit(numbers.take, piece).result,
                same=None if expected else held[file.source].identity.is_of,
            )
    by_path = {file.source: blobs[file.path].digest for file in part.plan.files}
    return WrittenWeights(blobs, {file.name: by_path[file.path] for file in part.source.inventory.weights})


def _convert(part: Part, new: Transaction, store: Store, advance: Advance) -> WrittenWeights:
    weights = part.source.inventory.weights
    with _Hasher(part.source, store) as hasher, Reader(weights) as reader:
        blobs = _written(part, new, reader, advance)
        digests = hasher.digests()
        reader.check_unchanged()
    _check_promises(part.source, digests)
    return WrittenWeights(blobs, digests)


def _written(part: Part, new: Transaction, reader: Reader, advance: Advance) -> dict[str, Blob]:
    """The converted weight files by path."""
    from modelkit.pack.writing.nvfp4_range import Nvfp4Range  # these load MLX
    from modelkit.pack.writing.transform import measure, release_memory, transform
    from runtime.streams import reused_streams

    fusion = part.fused.load() if part.fused else None
    blobs: dict[str, Blob] = {}
    try:
        if fusion is not None:
            for planned, block in (one for file in part.plan.files for one in blocks_of(file)):
                if fusion.to_measure(block):
                    measure(planned, block, reader, fusion)
        with reused_streams() as take:
            for file in part.plan.files:
                reach = Nvfp4Range()
                change = partial(transform, fusion=fusion, reach=reach)
                with new.write_blob() as sink:
                    write_file(file, sink, reader, change, advance, take)
                    reach.check()
                    blobs[file.path] = sink.commit()
    finally:
        release_memory()
    return blobs


def _check_promises(source: Source, digests: Mapping[str, Digest]) -> None:
    """Raise SourceError where a file is another than whoever keeps it says it is."""
    for file in source.inventory.weights:
        promised = source.promised.get(file.path)
        if promised is not None and digests[file.name] != promised:
            raise broken_promise(file.path, promised)


class _Hasher:
    """Digests of the source's weight files, computed in the background while the block lasts."""

    def __init__(self, source: Source, store: Store) -> None:
        self._source = source
        self._store = store
        self._stopped = Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="hash")
        self._found: dict[str, Future[Digest]] = {}

    def digests(self) -> dict[str, Digest]:
        return {name: future.result() for name, future in self._found.items()}

    def _digest(self, path: Path) -> Digest:
        return self._source.known.get(path) or self._store.source_digest(path, progress=self._check)

    def _check(self, _: int) -> None:
        if self._stopped.is_set():
            raise _WouldRead

    def __enter__(self) -> Self:
        weights = self._source.inventory.weights
        self._found = {file.name: self._pool.submit(self._digest, file.path) for file in weights}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
