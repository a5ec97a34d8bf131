"""A running operation's place in the store: its temporary files, and the list of blobs it needs.

    ingest/<id>/lease     locked while the operation lives; one pinned digest per line
    ingest/<id>/<n>       a blob being written, or another file that the operation has for itself

A pinned blob is deleted by nobody. The lock dies with the process, so what a killed one left is known for
what it is, without process ids or clocks, and the next sweep removes it. Pins are made under the store's
shared lock, which sweeps exclude: a blob is either pinned before a sweep looks, or seen to be gone after it.

A blob's life: private temporary file, hashed as it is written; synced; made read-only; then, pinned first,
renamed to its digest. It takes the place of one there that is not sound (`soundness`): writing again heals.
Methods may be called from several threads; one BlobWriter belongs to one thread.
"""

import errno
import fcntl
import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import TYPE_CHECKING, Self

from modelkit.errors import SourceError, StoreError
from modelkit.progress import Advance
from modelkit.python_faults import os_reason
from modelkit.store.digest import Blob, Digest
from modelkit.store.disk import (
    PageWriter,
    chunks,
    clone,
    create,
    link_file,
    read_small,
    storing,
    sync,
    write_all,
)
from modelkit.store.layout import Layout
from modelkit.store.lock import is_held
from modelkit.store.soundness import Soundness

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Look = Callable[[memoryview], Callable[[], object]]
"""Begins to look at the next piece of a file; what it returns waits until that is done, and raises what it
found. The piece is valid until then.
"""
_PIN_BYTES = len("sha256:") + 64 + len("\n")
_LEASE_LIMIT_BYTES = 64 << 20


class Ingest:
    """One operation's folder, from `begin` to `close`."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.soundness = Soundness(layout)
        self._folder = layout.ingest / token_hex(8)
        self._lease = -1
        self._pins: set[Digest] = set()
        self._mutex = threading.Lock()
        self._numbers = count()

    def begin(self) -> None:
        self.layout.prepare()
        with self.layout.adding():
            self._folder.mkdir(0o700)
            try:
                self._lease = create(self._folder / "lease")
            except OSError:
                self._folder.rmdir()
                raise
            fcntl.flock(self._lease, fcntl.LOCK_EX)

    def close(self) -> frozenset[Digest]:
        """Remove the folder and give up the pins, which are returned: some may be needed by nobody now."""
        try:
            with self.layout.adding():  # a sweep that saw the lease held reads it undisturbed
                remove_folder(self._folder)
        finally:
            os.close(self._lease)
        self.soundness.save()
        return frozenset(self._pins)

    def pin(self, digest: Digest) -> Blob | None:
        """Keep `digest` from being deleted while this lasts. Returns the blob, None if it is not stored."""
        with self.layout.adding():
            return self.pin_locked(digest)

    def pin_locked(self, digest: Digest) -> Blob | None:
        """`pin` for a caller that holds `adding` already."""
        with self._mutex:
            if digest not in self._pins:
                # At its own place: a write that the full disk cut short leaves no half line before the next.
                os.lseek(self._lease, _PIN_BYTES * len(self._pins), os.SEEK_SET)
                write_all(self._lease, memoryview(f"{digest}\n".encode()))
                self._pins.add(digest)
        size_bytes = self.layout.blob_size(digest)
        return None if size_bytes is None else Blob(digest, size_bytes)

    def sound(self, digest: Digest, progress: Advance | None = None) -> Blob | None:
        """`pin`, for a blob whose bytes are known to be right. A large one may have to be read for that."""
        blob = self.pin(digest)
        return blob if blob and self.soundness.is_sound(blob, progress) else None

    def adopt(self, temp: Path, blob: Blob) -> None:
        """Move a finished temporary file to its place, or drop it if that blob is there already, and sound.

        One that would have to be read to find out is replaced: that costs nothing.
        """
        known = self.soundness.is_known(blob.digest)
        with self.layout.adding():
            if self.pin_locked(blob.digest) == blob and known and self.soundness.is_sound(blob):
                temp.unlink()
            else:
                os.rename(temp, self.layout.blob_path(blob.digest))
                self.soundness.learn(blob.digest)

    def write_blob(self, expect: Blob | None = None) -> "BlobWriter":
        return BlobWriter(self, self.temp_path(), expect)

    def copy(
        self,
        source: int,
        path: Path,
        *,
        known: Digest | None,
        expect: Digest | None,
        progress: Advance | None,
        look: Look | None = None,
    ) -> Blob:
        """Store the bytes of the open file `source`: not at all if a sound blob of the digest `known` is
        there, else by sharing its blocks where the disk can, else as a second name of the file (a hard link)
        where that is safe, else by copying. What is hashed is what was stored.

        Whoever writes to a file through one of its names changes the other. So only a file gets a second one
        that is called by its own digest, `<hex>` or `sha256-<hex>`, and is expected to have it: a store like
        this one keeps it (huggingface_hub's cache, Ollama's), which never writes to it again. It must belong
        to this user, and becomes read-only.
        """
        before = os.fstat(source)
        size_bytes = before.st_size
        stored = self.sound(known) if known else None
        if stored and stored.size_bytes == size_bytes:
            return stored
        temp = self.temp_path()
        with storing(temp):
            shared = clone(source, temp) or (_named_by(path, expect) and link_file(source, path, temp))
        with BlobWriter(self, temp, None, cloned=shared) as writer:
            for piece in source_chunks(writer.fileno() if shared else source, size_bytes, path):
                seen = look(piece) if look else None
                writer.take(piece)
                if seen:
                    seen()
                if progress:
                    progress(len(piece))
            if not _same_state(before, os.fstat(source)):  # else half of one file and half of another
                raise changed(path)
            return writer.commit_copy(path, size_bytes, expect)

    def temp_path(self, ending: str = "") -> Path:
        """A fresh one in the folder of this operation."""
        return self._folder / f"{next(self._numbers)}{ending}"


class BlobWriter:
    """A blob being written: `write` its bytes, then `commit`. Leaving the `with` block without discards it.

    With `expect`, more bytes than expected are refused as they come, and other bytes at the end.
    """

    def __init__(self, ingest: Ingest, temp: Path, expect: Blob | None, *, cloned: bool = False) -> None:
        self._ingest = ingest
        self._temp = temp
        self._expect = expect
        self._cloned = cloned
        self._hash = hashlib.sha256()
        self._size_bytes = 0
        with storing(temp):
            self._fd = os.open(temp, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC) if cloned else create(temp)
        self._pages = PageWriter(self._fd)

    def fileno(self) -> int:
        return self._fd

    def write(self, data: "ReadableBuffer") -> None:
        """Append bytes: `bytes`, or any contiguous buffer, such as a numpy array."""
        view = memoryview(data)
        if view.nbytes:  # an empty array cannot be cast
            self.take(view.cast("B"))

    def take(self, piece: memoryview) -> None:
        self._size_bytes += len(piece)
        if self._expect and self._size_bytes > self._expect.size_bytes:
            raise StoreError(
                f"{self._expect.digest} should have {self._expect.size_bytes:,} bytes, but more came"
            )
        self._hash.update(piece)
        if not self._cloned:
            with storing(self._temp):
                self._pages.write(piece)

    def commit(self) -> Blob:
        """Put the blob in its place, durably, and pin it. Raises StoreError if it is not the expected one."""
        blob = Blob(Digest(self._hash.hexdigest()), self._size_bytes)
        if self._expect and blob != self._expect:
            raise StoreError(
                f"{self._expect.digest} was expected with {self._expect.size_bytes:,} bytes;"
                f" what came is {blob.digest} with {blob.size_bytes:,}"
            )
        with storing(self._temp):
            self._pages.end()
            os.fchmod(self._fd, 0o444)
            sync(self._fd)
            self._ingest.adopt(self._temp, blob)
        return blob

    def commit_copy(self, path: Path, size_bytes: int, expect: Digest | None) -> Blob:
        """`commit` for the copy of a source file, which must have all of its bytes."""
        if self._size_bytes != size_bytes:
            raise changed(path)
        if expect and self._hash.hexdigest() != expect.hex:
            raise broken_promise(path, expect)
        return self.commit()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)
        with storing(self._temp):
            self._temp.unlink(missing_ok=True)


def _named_by(path: Path, digest: Digest | None) -> bool:
    """Is the file at the end of `path` called by that digest?"""
    return digest is not None and path.resolve().name in (digest.hex, f"sha256-{digest.hex}")


def _same_state(before: os.stat_result, after: os.stat_result) -> bool:
    """Has nobody written to the file? Its links and rights may differ: a second name changes them."""
    return (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)


def open_source(path: Path) -> int:
    """Open a regular file outside the store for reading, following links. Raises SourceError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise SourceError(f"{path}: {os_reason(error)}") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise SourceError(f"{path} is not a regular file")
    return fd


def source_chunks(fd: int, size_bytes: int, path: Path) -> Iterator[memoryview]:
    """`disk.chunks` of a file outside the store. Raises SourceError when reading fails, even half way."""
    pieces = chunks(fd, size_bytes)
    while True:
        try:
            piece = next(pieces, None)
        except OSError as error:
            raise SourceError(f"cannot read {path}: {os_reason(error)}") from error
        if piece is None:
            return
        yield piece


def changed(path: Path) -> SourceError:
    return SourceError(f"{path} changed while it was being read", hint="Try again when nothing writes to it.")


def broken_promise(path: Path, expected: Digest) -> SourceError:
    return SourceError(
        f"{path} is not what it should be: its digest is not {expected.short}",
        hint=f"It was changed or is damaged. Remove it and get it again: {path.resolve()}",
    )


def live_pins(layout: Layout) -> set[Digest]:
    """What running operations need. The caller holds `changing`."""
    pins: set[Digest] = set()
    for folder in _folders(layout):
        if is_held(folder / "lease"):
            raw = read_small(folder / "lease", _LEASE_LIMIT_BYTES)
            whole = len(raw) - len(raw) % _PIN_BYTES
            pins.update(Digest.parse(line) for line in raw[:whole].decode("ascii").splitlines())
    return pins


def leftovers(layout: Layout) -> list[Path]:
    """What no running operation owns in ingest/: folders of killed ones, single files. The caller holds
    `changing`.
    """
    if not layout.ingest.exists():
        return []
    dead = [folder for folder in _folders(layout) if not is_held(folder / "lease")]
    return dead + [path for path in layout.ingest.iterdir() if path.is_symlink() or not path.is_dir()]


def remove_folder(folder: Path) -> None:
    """Remove a flat folder. Somebody else may be removing it too."""
    try:
        for name in os.listdir(folder):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:  # a thread of this operation still writes; the next sweep finds it
            raise


def _folders(layout: Layout) -> list[Path]:
    if not layout.ingest.exists():
        return []
    return [path for path in layout.ingest.iterdir() if path.is_dir() and not path.is_symlink()]
