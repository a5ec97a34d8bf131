"""The store: named packages on disk. The one door to this room; the rules it keeps are in layout, ingest and
sweep.

I1  a file under blobs/ has exactly the content its name promises; where a disk or a hand broke that, no new
    package is made of it, and creating the old one again mends it (soundness)
I2  a name stands for a manifest all of whose blobs are stored; one that is removed from a full disk may be
    left without them by a kill
I3  a name stands for the old package or the new one, never for anything between
I4  a failed or killed operation changes no name; what it leaves behind, the next prune removes
I5  nothing is deleted that a name, a running operation, or an unreadable manifest may need
"""

import difflib
import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from modelkit.disk_faults import no_room
from modelkit.errors import DiskFull, ModelNotFound, StoreError
from modelkit.progress import Advance
from modelkit.store.canonical import JsonObject
from modelkit.store.digest import Blob, Digest
from modelkit.store.disk import require_space, room_of, storing
from modelkit.store.export import Exported, export_package
from modelkit.store.index import Entry, Index
from modelkit.store.ingest import Ingest, leftovers, live_pins, remove_folder
from modelkit.store.layout import Layout
from modelkit.store.memo import Conversions, SourceDigests
from modelkit.store.name import OF_PATHS, Name, as_name
from modelkit.store.package import BrokenPackage, Package, check_small_files, open_or_explain, open_package
from modelkit.store.partial import abandoned
from modelkit.store.slices import loose_slices, sliced_blobs
from modelkit.store.soundness import Soundness
from modelkit.store.sweep import Freed, delete, free, reached_by, unneeded
from modelkit.store.transaction import Transaction, release, rename
from modelkit.store.verify import VerifyReport, blobs_of, strangers, verify_packages, verify_slices
from runtime.records import dataclass

_CLOSE = 3  # names to offer in place of one that is not there


@dataclass(frozen=True, slots=True)
class Pruned:
    """What `prune` removed, or would."""

    blobs: tuple[Blob, ...]
    """Those that nothing needs."""
    temp_files: tuple[Path, ...]
    """Left by killed operations, and slices of weights that no operation uses."""
    temp_bytes: int
    conversions: int
    """Those that lost a blob."""

    @property
    def size_bytes(self) -> int:
        return self.temp_bytes + sum(blob.size_bytes for blob in self.blobs)


class Store:
    """The packages under `home` (its OCI layout is `home/store`). Reading a store that does not exist finds
    it empty; the first write creates it. Every failure is a StoreError, a missing name ModelNotFound.
    """

    def __init__(self, home: Path) -> None:
        self._layout = Layout(home / "store")
        self._conversions = Conversions(self._layout)
        self._sources = SourceDigests(self._layout)

    @property
    def root(self) -> Path:
        """The folder of the OCI layout."""
        return self._layout.root

    # Reading

    def resolve(self, name: Name | str) -> Package:
        """The package of that name, complete, all but its weights read and compared with their digests.

        Raises ModelNotFound, or StoreError if it is damaged.
        """
        with self._layout.reading():
            return self._open(as_name(name))

    def digest(self, name: Name | str) -> Digest:
        """What the name stands for now, as the index says it: nothing else is read, so this takes no more
        than a moment. Raises ModelNotFound, or StoreError where the index does not say.
        """
        wanted = as_name(name)
        with self._layout.reading():
            blob = _find(self._layout.read_index(), wanted).blob
        if blob is None:
            raise StoreError(f"the package {wanted} cannot be used: its entry names no manifest")
        return blob.digest

    def digests(self) -> dict[Name, Digest]:
        """What all names stand for, as `digest` says it of one."""
        with self._layout.reading():
            named = self._layout.read_index().named
        return {name: entry.blob.digest for name, entry in named.items() if entry.blob is not None}

    def packages(self) -> list[Package | BrokenPackage]:
        """All packages, by name. A broken one is listed as such and hides no other."""
        with self._layout.reading():
            named = self._layout.read_index().named
            return [open_or_explain(self._layout, name, named[name]) for name in sorted(named, key=str)]

    @contextmanager
    def hold(self, name: Name | str, *, naming: bool = False) -> Generator[Package]:
        """`resolve`, and keep the package's files until the block ends, even if the name goes meanwhile.

        On a full disk, which has no room to say so, they are only looked at: what is stored can be used.
        naming: the block gives them another name, which needs more than that.
        """
        package = self.resolve(name)
        with self._pinning(looking=not naming) as pin:
            while not all(pin(blobs_of(package))):  # replaced just now: take what the name stands for since
                package = self.resolve(name)
            yield package

    def export(
        self, name: Name | str, folder: Path, *, link: bool = True, progress: Advance | None = None
    ) -> Exported:
        """Lay the package out in `folder`: by hard links to the store's read-only blobs where the disk allows
        it, unless `link` is false, else by copies. Files of this package already there are kept; any other
        makes it a StoreError.
        """
        with self.hold(name) as package:
            return export_package(package, folder, link=link, progress=progress)

    def verify(
        self, names: Iterable[Name | str] | None = None, *, progress: Advance | None = None
    ) -> VerifyReport:
        """Hash every blob of the named packages, or of the whole store, again. `progress` is called with the
        bytes read since its last call.
        """
        packages = self._chosen(names)
        digests = set[Digest]().union(*(blobs_of(package) for package in packages))
        odd = list(strangers(self._layout)) if names is None else []
        if names is None:
            digests |= {digest for digest, _ in self._layout.stored() if digest}
        with self._pinning() as pin:
            pin(digests)
            report = verify_packages(self._layout, packages, sorted(digests), progress)
            if names is None:
                pin(sliced_blobs(self._layout))
                report = verify_slices(self._layout, report, progress)
        return replace(report, problems=(*report.problems, *odd))

    @contextmanager
    def checking(self) -> Generator[Soundness]:
        """To ask of blobs that the caller holds whether they are whole. The disk may be full or read-only:
        then what was found is not remembered.
        """
        soundness = Soundness(self._layout)
        try:
            yield soundness
        finally:
            with suppress(OSError):
                soundness.save()

    # Changing

    def begin(self) -> Transaction:
        """Start adding a package; see transaction.py."""
        return Transaction(self._layout, self._sources)

    def copy(self, source: Name | str, target: Name | str) -> Digest:
        """Give the package a second name. What `target` stood for is freed if nothing else needs it.

        Returns the digest that both stand for.
        """
        with self.hold(source, naming=True) as package:
            if package.name != as_name(target):
                rename(self._layout, as_name(target), package.manifest_blob)
            return package.digest

    def remove(self, name: Name | str) -> Freed:
        """Take the name away and free what nothing else needs. Blobs in use are freed when their use ends."""
        wanted = as_name(name)
        _find(self._layout.read_index(), wanted)  # a name that is not there must not create a store
        self._layout.prepare()
        with self._layout.changing():
            index = self._layout.read_index()
            candidates = reached_by(self._layout, _find(index, wanted))
            index = index.without(wanted)
            try:
                self._layout.write_index(index)
            except OSError as error:
                if not no_room(error) or not (freed := free(self._layout, index, candidates)).blobs:
                    raise
                self._layout.write_index(index)  # where the package's own blobs made room for it
                return freed
            return free(self._layout, index, candidates)

    def prune(self, *, dry_run: bool = False) -> Pruned:
        """Remove what nothing needs: see Pruned. A dry run writes nothing, so it needs no store that can be
        written.

        Raises StoreError, and removes no blob, while any manifest cannot be read.
        """
        if not self._layout.root.exists():
            return Pruned((), (), 0, 0)
        if dry_run:
            self._layout.check_own_folders()
        else:
            self._layout.prepare()
        with self._layout.looking() if dry_run else self._layout.changing():
            temp = [*leftovers(self._layout), *abandoned(self._layout)]
            temp += loose_slices(self._layout, live_pins(self._layout))
            temp_files = [file for path in temp for file in _files(path)]
            temp_bytes = sum(room_of(file) for file in temp_files)
            stored = [digest for digest, _ in self._layout.stored() if digest]
            blobs = unneeded(self._layout, self._layout.read_index(), stored)
            stale = self._conversions.stale(frozenset(blob.digest for blob in blobs))
            if not dry_run:
                delete(self._layout, blobs)
                for path in (*temp, *stale):
                    _remove(path)
        return Pruned(tuple(blobs), tuple(temp_files), temp_bytes, len(stale))

    def blob_path(self, digest: Digest) -> Path:
        """Where a blob lies that a transaction or a hold keeps. Only to be read."""
        return self._layout.blob_path(digest)

    def require_space(self, needed_bytes: int) -> None:
        """Raise StoreError now if that much cannot be written."""
        require_space(self._layout.root, needed_bytes)

    # Remembering

    def memo_get(self, key: str) -> JsonObject | None:
        """What `memo_put` stored under `key`, if every blob it names is still there.

        To rely on one of them, ask `Transaction.has` for it: only that keeps it.
        """
        return self._conversions.get(key)

    def memo_put(self, key: str, value: JsonObject) -> None:
        """Remember a JSON object. Every string in it that spells a digest names a blob it depends on."""
        self._conversions.put(key, value)

    def source_digest(self, path: Path, *, progress: Advance | None = None) -> Digest:
        """The SHA-256 of a file outside the store; not read again while it is unchanged."""
        return self._sources.of(path, progress)

    def _open(self, name: Name) -> Package:
        entry = _find(self._layout.read_index(), name)
        try:
            package = open_package(self._layout, name, entry)
            check_small_files(self._layout, package)
        except StoreError as error:
            again = f"Create it again (`modelkit create {name}`), or remove it with `modelkit rm {name}`."
            raise StoreError(
                f"the package {name} cannot be used: {error.message}", hint=error.hint or again
            ) from error
        return package

    def _chosen(self, names: Iterable[Name | str] | None) -> list[Package | BrokenPackage]:
        if names is None:
            return self.packages()
        with self._layout.reading():
            index = self._layout.read_index()
            wanted = dict.fromkeys(as_name(name) for name in names)
            return [open_or_explain(self._layout, name, _find(index, name)) for name in wanted]

    @contextmanager
    def _pinning(self, *, looking: bool = True) -> Generator[Callable[[Iterable[Digest]], list[Blob | None]]]:
        """A function that keeps blobs from being deleted within the block, and says which there are.

        Where the store cannot be written, nobody deletes either, and looking is enough. looking: it is enough
        on a full disk, too.
        """
        if not os.access(self._layout.root, os.W_OK):
            yield lambda digests: [self._look(digest) for digest in digests]
            return
        ingest = Ingest(self._layout)
        try:
            ingest.begin()
        except DiskFull:
            if not looking:
                raise
            yield lambda digests: [self._look(digest) for digest in digests]
            return

        def pin(digest: Digest) -> Blob | None:
            try:
                return ingest.pin(digest)
            except DiskFull:
                if not looking:
                    raise
                return self._look(digest)

        try:
            yield lambda digests: [pin(digest) for digest in digests]
        finally:
            release(ingest)

    def _look(self, digest: Digest) -> Blob | None:
        size_bytes = self._layout.blob_size(digest)
        return None if size_bytes is None else Blob(digest, size_bytes)


def _find(index: Index, name: Name) -> Entry:
    """The entry of that name, or ModelNotFound with the names that are close to it."""
    named = index.named
    if name in named:
        return named[name]
    spellings = {spelling: other for other in named for spelling in (other.short, str(other))}
    alike = difflib.get_close_matches(str(name), sorted(spellings), n=2 * _CLOSE)
    close = [spellings[spelling] for spelling in alike]
    close += [other for other in named if other.model == name.model]
    names = list(dict.fromkeys(str(other) for other in close))[:_CLOSE]
    hint = f"Did you mean {' or '.join(names)}?" if names else "`modelkit list` shows what there is."
    if name.file_like:
        hint = OF_PATHS
    raise ModelNotFound(f"there is no model {name} in the store", hint=hint, close=bool(names))


def _files(path: Path) -> list[Path]:
    """A left-over's files: itself, or those in it; a link is a file."""
    return sorted(path.iterdir()) if path.is_dir() and not path.is_symlink() else [path]


def _remove(path: Path) -> None:
    with storing(path):
        if path.is_dir() and not path.is_symlink():
            remove_folder(path)
        else:
            path.unlink(missing_ok=True)
