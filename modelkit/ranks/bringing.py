"""What a rank lacks of the package that is to be run, it is given before anything is opened.

    all       who lacks some of it?                      (nobody: that was all)
    rank 0    the manifest, and the registry that it knows of
    all       what each asks for: a blob, from some byte on
    rank 0    a round of bytes, which goes from rank to rank and is kept where it is missing
    ...       until nobody asks for more
    all       the name stands for it everywhere

Of a package that `create` has made a rank that lacks weights gets their headers alone, and everything else
whole: an `Outline`, no package. What it needs of the numbers is found when there is a plan (`slicing`).

The group's own exchanges carry it: no port is opened for it. Every rank checks what it is given, the manifest
by the digest that was told and each blob by its own. What goes wrong on one rank is said on all, and ends it
for all; the group lives on.
"""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import mlx.core as mx

from modelkit.address import RegistryAddress, read_address
from modelkit.errors import LoadError, ModelkitError, ModelNotFound, StoreError
from modelkit.fetch.registry.origin import origin_of
from modelkit.fetch.registry.url import Url, is_loopback
from modelkit.ranks.agreeing import agreed
from modelkit.ranks.facts import Facts, called
from modelkit.ranks.fetching import Fetching, blobs_in
from modelkit.ranks.outline import Outline, missing_weights, read_front, weights_of, write_hollow
from modelkit.ranks.progress import Progress
from modelkit.store.digest import Blob, Digest
from modelkit.store.manifest import MANIFEST_LIMIT_BYTES, Layer, Manifest
from modelkit.store.store import Store
from modelkit.units import size
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


@dataclass(frozen=True, slots=True)
class Brought:
    """What came of it."""

    notes: tuple[str, ...] = ()
    """Sentences for the user, on rank 0."""
    outline: Outline | None = None
    """What this rank has in place of the package, until the block ends."""
    in_slices: bool = False
    """Has any rank an outline?"""


@contextmanager
def bring(
    group: Group,
    home: Path,
    name: str,
    package: str,
    hosts: Sequence[str],
    progress: Progress,
    *,
    in_slices: bool = False,
) -> Generator[Brought]:
    """Have every rank hold the package of that name and digest, or the outline of it. All call it at the same
    time.

    hosts: names of the machines, by rank. progress: is told how far they are. in_slices: may a rank that
    lacks weights have them so? Raises LoadError on all ranks where one cannot have it.
    """
    store = Store(home)
    mine: Facts = {"host": hosts[group.rank], "lacks": False}
    try:
        mine["lacks"] = group.rank > 0 and lacks(store, name, Digest.parse(package))
    except ModelkitError as error:
        mine["problem"] = error.message
    lacking = [rank for rank, facts in enumerate(agreed(group, mine)) if facts["lacks"]]
    if not lacking:
        yield Brought()
        return
    with ExitStack() as stack:
        bringing = _Bringing(group, store, package, hosts)
        bringing.prepare(stack, lacking, in_slices=in_slices)
        bringing.fetch(lacking, progress)
        yield bringing.ended(stack, name, lacking)


class _Bringing:
    """Of one package, on one rank. mine: what this one says of itself, with its problem, if it has one."""

    def __init__(self, group: Group, store: Store, package: str, hosts: Sequence[str]) -> None:
        self._group, self._store, self._package, self._hosts = group, store, package, hosts
        self._mine: Facts = {"host": hosts[group.rank]}
        self._sender = _Sender(store, Digest.parse(package)) if group.rank == 0 else None
        self._raw, self._address = _documents(group, store, self._sender)
        self._fronts: dict[str, bytes] = {}
        self._hollow: list[Layer] = []
        self._blobs: list[Blob] = []
        self._fetching: Fetching | None = None

    def prepare(self, stack: ExitStack, lacking: Sequence[int], *, in_slices: bool) -> None:
        """What is to be fetched here; and headers of what is not."""
        with self._noting():
            if Digest.of(self._raw) != Digest.parse(self._package):
                raise StoreError(f"what was sent is not the manifest {self._package}")
            self._blobs = blobs_in(self._raw)
            if self._group.rank in lacking and in_slices:
                self._hollow = missing_weights(self._store, Manifest.parse(self._raw))
        said = agreed(self._group, {**self._mine, "hollow": bool(self._hollow)})
        if any(facts["hollow"] for facts in said):
            self._fronts = _fronts(self._group, self._sender, Manifest.parse(self._raw))
        with self._noting():
            if self._group.rank in lacking:
                self._fetching = stack.enter_context(self._begun())

    def fetch(self, lacking: Sequence[int], progress: Progress) -> None:
        but = (
            {layer.blob.digest for layer in weights_of(Manifest.parse(self._raw))} if self._fronts else set()
        )
        one = sum(blob.size_bytes for blob in self._blobs if blob.digest not in but)
        told = partial(_tell, progress, one * len(lacking))
        try:
            _all_rounds(self._group, self._mine, self._blobs, self._fetching, self._sender, told)
        finally:
            progress.over()

    def ended(self, stack: ExitStack, name: str, lacking: Sequence[int]) -> Brought:
        outline: Outline | None = None
        fetched: Facts = {}
        with self._noting():
            if self._fetching is not None:
                fetched = {"fetched": self._fetching.fetched_bytes}
                if self._hollow:
                    outline = self._outline(stack, self._fetching)
                else:
                    self._fetching.store_as(name)
        said = agreed(self._group, {**self._mine, **fetched, "hollow": bool(self._hollow)})
        notes = tuple(
            f"{called(said, rank)} had not all of {name}, and has fetched {size(said[rank]['fetched'])}"
            for rank in lacking
            if not said[rank]["hollow"]
        )
        return Brought(notes, outline, any(facts["hollow"] for facts in said))

    def _begun(self) -> Fetching:
        """A registry is not asked for the little that comes beside slices."""
        same_host = self._hosts[self._group.rank] == self._hosts[0]
        origin = None if self._hollow else _reachable(self._address, same_host=same_host)
        but = {layer.blob.digest for layer in self._hollow}
        return Fetching(self._store, self._raw, origin, self._group.limit_s, but)

    def _outline(self, stack: ExitStack, fetching: Fetching) -> Outline:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="modelkit-outline-")))
        manifest = Manifest.parse(self._raw)
        files = {layer.path: self._store.blob_path(layer.blob.digest) for layer in manifest.layers}
        hollow: dict[Path, Digest] = {}
        for number, layer in enumerate(self._hollow):
            path = folder / f"{number}.safetensors"
            write_hollow(path, self._fronts[layer.path], layer.blob.size_bytes)
            files[layer.path], hollow[path] = path, layer.blob.digest
        return Outline(manifest, Digest.parse(self._package), files, hollow, fetching.new)

    @contextmanager
    def _noting(self) -> Generator[None]:
        try:
            yield
        except ModelkitError as error:
            self._mine["problem"] = error.message


def lacks(store: Store, name: str, digest: Digest) -> bool:
    """Is that package not here, or not whole? One of the same name that is another is left as it is."""
    try:
        if store.digest(name) != digest:
            return False  # opening it will say that it differs
        store.resolve(name)
    except (ModelNotFound, StoreError):
        return True
    return False


def next_round(wanted: Sequence[object], blobs: Sequence[Blob]) -> Round | None:
    """The bytes to send next, where ranks ask for these: the first that any rank lacks, and what follows.

    wanted: [number of a blob, first byte], or None. LoadError for what no rank of ours would ask for.
    """
    asked = [one for one in wanted if one is not None]
    if not asked:
        return None
    for one in asked:
        if not (isinstance(one, list) and len(one) == 2 and all(type(part) is int for part in one)):
            raise LoadError(f"a rank asks for {one!r:.80}, which is no part of a package")
        number, start = one
        if not (0 <= number < len(blobs) and 0 <= start < blobs[number].size_bytes):
            raise LoadError(f"a rank asks for byte {start} of blob {number}, which the package has not")
    number, start = min(cast("list[list[int]]", asked))
    return Round(number, start, min(blobs[number].size_bytes, start + ROUND_BYTES))


class _Sender:
    """Rank 0's blobs. What cannot be read is said, and other bytes go out: all stay in step."""

    def __init__(self, store: Store, digest: Digest) -> None:
        self._store = store
        self.digest = digest
        self.problem: str | None = None

    def read(self, blob: Blob, start: int, stop: int) -> bytes:
        try:
            with self._store.blob_path(blob.digest).open("rb") as file:
                file.seek(start)
                piece = file.read(stop - start)
        except OSError as error:
            piece = b""
            self.problem = f"cannot read the blob {blob.digest.short}: {error.strerror or error}"
        if len(piece) < stop - start and self.problem is None:
            self.problem = f"the blob {blob.digest.short} has lost its end"
        return piece.ljust(stop - start, b"\0")

    def front(self, blob: Blob) -> bytes:
        return read_front(self._store.blob_path(blob.digest))

    def manifest(self) -> bytes:
        try:
            with self._store.blob_path(self.digest).open("rb") as file:
                return file.read(MANIFEST_LIMIT_BYTES + 1)
        except OSError:
            return b""  # which nobody takes for it


def _documents(group: Group, store: Store, sender: _Sender | None) -> tuple[bytes, str]:
    """The manifest, and the address that the package came from, or nothing."""
    if sender is None:
        return group.hear(group.limit_s), group.hear(group.limit_s).decode("utf-8", "replace")
    found = origin_of(store, sender.digest)
    raw, address = sender.manifest(), "" if found is None else str(found)
    group.tell(raw)
    group.tell(address.encode())
    return raw, address


def _fronts(group: Group, sender: _Sender | None, manifest: Manifest) -> dict[str, bytes]:
    """What rank 0's files of weights begin with."""
    layers = weights_of(manifest)
    if sender is None:
        return {layer.path: group.hear(group.limit_s) for layer in layers}
    fronts = {layer.path: sender.front(layer.blob) for layer in layers}
    for front in fronts.values():
        group.tell(front)
    return fronts


def _reachable(address: str, *, same_host: bool) -> RegistryAddress | None:
    """A registry that rank 0 knows, where this rank may ask it: of rank 0's loopback, none of ours."""
    try:
        found = read_address(address) if address else None
    except ModelkitError:
        return None
    if not isinstance(found, RegistryAddress) or found.dialect != "oci":
        return None
    local = is_loopback(Url.parse(f"https://{found.host}/").host)
    return found if same_host or not local else None


def _all_rounds(
    group: Group,
    mine: Facts,
    blobs: Sequence[Blob],
    fetching: Fetching | None,
    sender: _Sender | None,
    told: Callable[[int], None],
) -> None:
    """Until nobody asks for more. Rank 0 gives up where those that are busy get nowhere. told: of the bytes
    that all have fetched.
    """
    worked, moved_s = 0, time.monotonic()
    while True:
        state = {} if fetching is None else fetching.state()
        if sender is not None and sender.problem is not None:
            state["problem"] = sender.problem
        if group.rank == 0 and time.monotonic() > moved_s + _STALLED_S:
            state["problem"] = f"no machine has read or written anything for {_STALLED_S:g} s"
        said = agreed(group, {**state, **mine})
        told(sum(facts.get("fetched", 0) for facts in said))
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


def _tell(progress: Progress, whole_bytes: int, done_bytes: int) -> None:
    progress.at("fetched", done_bytes, whole_bytes)


def _round(group: Group, now: Round, blob: Blob, fetching: Fetching | None, sender: _Sender | None) -> None:
    for start, stop in now.pieces():
        mine = None
        if sender is not None:
            mine = mx.array(cast("Any", memoryview(sender.read(blob, start, stop))))
        with group.bounded():
            piece = group.broadcast(mine, (stop - start,), mx.uint8)
            mx.eval(piece)  # before the next is read: no more than one is on its way from here
        if fetching is not None:
            fetching.take(now.number, start, bytes(memoryview(cast("Any", piece))))
