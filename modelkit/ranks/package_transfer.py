"""What a rank lacks of the package that is to be run, it is given before anything is opened.

    all       who lacks some of it?                      (nobody: that was all)
    rank 0    the manifest, and the registry that it knows of
    rank 0    the blobs that they ask for (`rounds`)
    all       the name stands for it everywhere

Of a package that `create` has made a rank that lacks weights gets their headers alone, and everything else
whole: an `Outline`, no package. What it needs of the numbers is found when there is a plan (`slicing`).

The group's own exchanges carry it: no port is opened for it. Every rank checks what it is given, the manifest
by the digest that was told and each blob by its own. What goes wrong on one rank is said on all, and ends it
for all; the group lives on.
"""

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from modelkit.address import RegistryAddress, read_address
from modelkit.errors import ModelkitError, ModelNotFound, StoreError
from modelkit.fetch.registry.origin import origin_of
from modelkit.fetch.registry.url import Url, is_loopback
from modelkit.ranks.facts import Facts, agreed, called
from modelkit.ranks.fetching import Fetching, blobs_in
from modelkit.ranks.outline import Outline, hollow_files, is_outline_of, missing_weights, weights_of
from modelkit.ranks.progress import Progress
from modelkit.ranks.rounds import Sender, all_rounds
from modelkit.store.digest import Blob, Digest
from modelkit.store.manifest import Layer, Manifest
from modelkit.store.store import Store
from modelkit.units import size
from runtime.ranks.group import Group
from runtime.records import dataclass


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
    outline: Outline | None = None,
) -> Generator[Brought]:
    """Have every rank hold the package of that name and digest, or the outline of it. All call it at the same
    time.

    hosts: names of the machines, by rank. progress: is told how far they are. in_slices: may a rank that
    lacks weights have them so? outline: what rank 0 itself has in place of the package. Raises LoadError on
    all ranks where one cannot have it.
    """
    store = Store(home)
    mine: Facts = {"host": hosts[group.rank], "lacks": False, "outlined": outline is not None}
    try:
        mine["lacks"] = group.rank > 0 and lacks(store, name, Digest.parse(package))
    except ModelkitError as error:
        mine["problem"] = error.message
    said = agreed(group, mine)
    lacking = [rank for rank, facts in enumerate(said) if facts["lacks"]]
    if not lacking:
        yield Brought(outline=outline, in_slices=said[0]["outlined"])
        return
    with ExitStack() as stack:
        bringing = _Bringing(group, store, package, hosts, outline)
        bringing.prepare(stack, lacking, in_slices=in_slices)
        bringing.fetch(lacking, progress)
        yield bringing.ended(name, lacking)


class _Bringing:
    """Of one package, on one rank. mine: what this one says of itself, with its problem, if it has one."""

    def __init__(
        self, group: Group, store: Store, package: str, hosts: Sequence[str], outline: Outline | None
    ) -> None:
        """outline: what rank 0 has."""
        self._own = outline
        self._group, self._store, self._package, self._hosts = group, store, package, hosts
        self._mine: Facts = {"host": hosts[group.rank]}
        hollow = {} if outline is None else {blob: path for path, blob in outline.hollow.items()}
        self._sender = Sender(store, Digest.parse(package), hollow) if group.rank == 0 else None
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
        on_bytes = partial(_tell, progress, one * len(lacking))
        try:
            all_rounds(self._group, self._mine, self._blobs, self._fetching, self._sender, on_bytes)
        finally:
            progress.over()

    def ended(self, name: str, lacking: Sequence[int]) -> Brought:
        outline = self._own
        fetched: Facts = {}
        with self._noting():
            if self._fetching is not None:
                fetched = {"fetched": self._fetching.fetched_bytes}
                if self._hollow:
                    outline = self._outline(self._fetching)
                else:
                    self._fetching.store_as(name)
        said = agreed(self._group, {**self._mine, **fetched, "hollow": bool(self._hollow or self._own)})
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

    def _outline(self, fetching: Fetching) -> Outline:
        manifest = Manifest.parse(self._raw)
        files = {layer.path: self._store.blob_path(layer.blob.digest) for layer in manifest.layers}
        here, hollow = hollow_files(fetching.new, self._hollow, self._fronts)
        return Outline(manifest, Digest.parse(self._package), files | here, hollow, fetching.new)

    @contextmanager
    def _noting(self) -> Generator[None]:
        try:
            yield
        except ModelkitError as error:
            self._mine["problem"] = error.message


def lacks(store: Store, name: str, digest: Digest) -> bool:
    """Is that package not here, or not whole? One of the same name that is another is left as it is."""
    try:
        if store.digest(name) != digest:  # opening another one will say that it differs
            return is_outline_of(store, name, digest)
        store.resolve(name)
    except (ModelNotFound, StoreError):
        return True
    return False


def _documents(group: Group, store: Store, sender: Sender | None) -> tuple[bytes, str]:
    """The manifest, and the address that the package came from, or nothing."""
    if sender is None:
        return group.hear(group.limit_s), group.hear(group.limit_s).decode("utf-8", "replace")
    found = origin_of(store, sender.digest)
    raw, address = sender.manifest(), "" if found is None else str(found)
    group.tell(raw)
    group.tell(address.encode())
    return raw, address


def _fronts(group: Group, sender: Sender | None, manifest: Manifest) -> dict[str, bytes]:
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


def _tell(progress: Progress, whole_bytes: int, done_bytes: int) -> None:
    progress.at("fetched", done_bytes, whole_bytes)
