"""The store on disk: an OCI image layout (OCI image specification, image-layout.md), not yet about models.

    oci-layout              which version of the layout this is
    index.json              the names: one descriptor of a manifest each, in the order of their refs
    blobs/sha256/<hex>      every file, config and manifest, under its digest, read-only
    ingest/                 what running operations are writing (see ingest.py)
    partial/                blobs that come from the network (see partial.py)
    conversions/            what earlier operations can save later ones (see memo.py)
    slices/                 parts of tensors that a rank was given (see slices.py)
    sources.json            digests of files outside (see memo.py)
    checked.json            which large blobs were found sound, and when (see soundness.py)
    lock                    shared: adding a blob, reading; exclusive: changing names, deleting blobs

Invariants: a file in blobs/ has exactly the bytes its name promises, from the moment it appears there.
index.json is replaced whole, by rename, only under the exclusive lock. Nothing here is reached through a
symbolic link.
"""

import errno
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from secrets import token_hex

from modelkit.errors import StoreError
from modelkit.store.canonical import canonical, parse_object
from modelkit.store.digest import Digest
from modelkit.store.disk import make_folder, read_small, replace, storing, sync_folder
from modelkit.store.index import INDEX_LIMIT_BYTES, Index
from modelkit.store.lock import locked, locked_for_reading

_VERSION = {"imageLayoutVersion": "1.0.0"}
_MARK = "oci-layout"


class Layout:
    """One OCI layout folder. Reading one that does not exist finds it empty; `prepare` creates it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.blobs = root / "blobs" / "sha256"
        self.ingest = root / "ingest"
        self.partial = root / "partial"
        self.conversions = root / "conversions"
        self.slices = root / "slices"
        self._cleared = (self.ingest, self.partial, self.conversions, self.slices)

    def prepare(self) -> None:
        """Make ready for writing: create what is missing. Raises StoreError where the folder is somebody
        else's.
        """
        with storing(self.root):
            _make_folders(self.root.parent)
            for folder in (self.root, self.blobs.parent, self.blobs, *self._cleared):
                make_folder(folder)
            self.check_own_folders()
            self._check_owner()
            if not self._is_layout():
                with self.changing():
                    self._create()

    def reading(self) -> AbstractContextManager[None]:
        """Within: no name changes and no blob goes."""
        return self._guarded(locked_for_reading(self.root / "lock"))

    def looking(self) -> AbstractContextManager[None]:
        """As `changing`, for who only looks: nobody else adds or deletes, and nothing has to be writable."""
        return self._guarded(locked_for_reading(self.root / "lock", exclusive=True))

    def adding(self) -> AbstractContextManager[None]:
        """As `reading`, on a prepared layout: what a writer holds while it pins or adds a blob."""
        return self._guarded(locked(self.root / "lock", exclusive=False))

    def changing(self) -> AbstractContextManager[None]:
        """Within: nobody else reads, adds or deletes. Held for moments only."""
        return self._guarded(locked(self.root / "lock", exclusive=True))

    def blob_path(self, digest: Digest) -> Path:
        return self.blobs / digest.hex

    def blob_size(self, digest: Digest) -> int | None:
        """The size of a stored blob in bytes, or None where there is none (or something that is not a plain
        file).
        """
        try:
            status = self.blob_path(digest).lstat()
        except FileNotFoundError:
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def read_blob(self, digest: Digest, limit_bytes: int) -> bytes:
        """The bytes of a small blob, checked against its digest. Raises StoreError if missing or damaged."""
        path = self.blob_path(digest)
        with storing(path):
            raw = read_small(path, limit_bytes)
        if Digest.of(raw) != digest:
            raise StoreError(f"{path}: the bytes are not those its name promises; the file is damaged")
        return raw

    def stored(self) -> Iterator[tuple[Digest | None, Path]]:
        """Every entry of blobs/; None in place of the digest for one that is not named like a blob."""
        with storing(self.blobs):
            names = sorted(os.listdir(self.blobs)) if self.blobs.exists() else []
        for name in names:
            try:
                yield Digest(name), self.blobs / name
            except StoreError:
                yield None, self.blobs / name

    def read_index(self) -> Index:
        path = self.root / "index.json"
        with self._mended_by_hand(), storing(path):
            if not self._is_layout() and not path.exists():
                return Index(())  # nobody has written here yet
            return Index.parse(read_small(path, INDEX_LIMIT_BYTES))

    def write_index(self, index: Index) -> None:
        """Replace the names. The caller holds `changing`; the blobs it names are durable already."""
        replace(self.root / "index.json", index.to_bytes(), self.temp_path())

    def temp_path(self) -> Path:
        """A fresh path for a file that is renamed within the same hold of a lock; left-overs go in the next
        sweep.
        """
        return self.ingest / f"{token_hex(8)}.tmp"

    def _create(self) -> None:
        if not (self.root / "index.json").exists():
            self.write_index(Index(()))
        sync_folder(self.root.parent)
        sync_folder(self.blobs.parent)
        replace(self.root / _MARK, canonical(_VERSION), self.temp_path())

    def _is_layout(self) -> bool:
        path = self.root / _MARK
        try:
            raw = read_small(path, 4096)
        except FileNotFoundError:
            return False
        with self._mended_by_hand():
            version = parse_object(raw, str(path), 4096)
        if version != _VERSION:
            raise StoreError(
                f"{path}: an OCI layout of version 1.0.0 is expected, and this file says otherwise",
                hint="Another program's folder, or a later modelkit's? Set MODELKIT_HOME to another one.",
            )
        return True

    @contextmanager
    def _mended_by_hand(self) -> Generator[None]:
        """Within, a file is read that says what else is there: nothing here can make it again."""
        try:
            yield
        except StoreError as error:
            if error.hint is not None:
                raise
            hint = (
                f"Put back an earlier copy of the file. Without one, move {self.root} away and create anew."
            )
            raise StoreError(error.message, hint=hint) from error

    def check_own_folders(self) -> None:
        """What lies in these and is nobody's is removed; behind a link it may be the user's."""
        for folder in self._cleared:
            if folder.is_symlink():
                raise StoreError(
                    f"{folder} is a link to {folder.readlink()}, where files of others would be cleared away",
                    hint="Remove the link. A store on another disk is moved as a whole: MODELKIT_HOME.",
                )

    def _check_owner(self) -> None:
        if self.root.stat().st_uid != os.geteuid():
            raise StoreError(
                f"{self.root} belongs to another user, who could no longer use what is written there now",
                hint="Run modelkit as that user, or set MODELKIT_HOME to a folder of your own.",
            )

    @contextmanager
    def _guarded(self, lock: AbstractContextManager[None]) -> Generator[None]:
        with storing(self.root), lock:
            yield


def refuse_inside(place: Path) -> None:
    """Raise StoreError for a place of the user's choice within a layout: what lies there and is not the
    layout's own is cleared away, or taken for damage.
    """
    real = Path(os.path.realpath(place))  # where `resolve` raises for links in a circle
    for folder in (real, *real.parents):
        if os.path.isfile(folder / _MARK):
            raise StoreError(
                f"{place} is within {folder}, where models are stored: no other file may be there",
                hint="Name a place outside of it.",
            )


def _make_folders(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:  # mkdir's word for a file, or a link to nowhere, at the end of the path
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from error
