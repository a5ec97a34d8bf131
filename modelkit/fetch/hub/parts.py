"""What came of a file so far.

huggingface_hub deletes what it has of a file when it is interrupted. Here that stays beside the blobs as
`<digest>.part`, also after a kill, and the next attempt hashes it. Nobody else writes to that file: it is
locked while somebody does.
"""

import fcntl
import hashlib
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from modelkit.disk_faults import disk_fault
from modelkit.errors import FetchError
from modelkit.fetch.hub.cache import HINT
from modelkit.fetch.hub.listing import Listed
from modelkit.store.disk import PageWriter

CHUNK_BYTES = 1 << 20


class Part:
    """What is there of a file, open for writing and hashed as far as it goes."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path, self._fd = path, fd
        self._hash: Any = None
        self._new: Callable[[], Any] = hashlib.sha256
        self._pages = PageWriter(fd)
        self.size_bytes = 0

    def begin(self, file: Listed) -> None:
        """Take over what an earlier attempt left."""
        self._new = hashlib.sha256 if file.sha256 else lambda: git_hash(file.size_bytes)
        self._hash = self._new()
        if os.fstat(self._fd).st_size > file.size_bytes:
            self.restart()
        for piece in _pieces(self._fd):
            self._hash.update(piece)
            self.size_bytes += len(piece)
        self._pages = PageWriter(self._fd, self.size_bytes)

    @contextmanager
    def flushed(self) -> Generator[None]:
        """When the block ends, however, all that was written is in the file."""
        try:
            yield
        finally:
            self._pages.end()

    def write(self, piece: bytes) -> None:
        self._pages.write(memoryview(piece))
        self._hash.update(piece)
        self.size_bytes += len(piece)

    def restart(self) -> None:
        os.ftruncate(self._fd, 0)
        os.lseek(self._fd, 0, os.SEEK_SET)
        self._hash, self._pages, self.size_bytes = self._new(), PageWriter(self._fd), 0

    def is_right(self, file: Listed) -> bool:
        return bool(self._hash.hexdigest() == file.blob_name)

    def drop(self) -> None:
        self._path.unlink(missing_ok=True)

    def finish(self, file: Listed, blob: Path) -> None:
        """Make it a blob, if it is what was promised; else it goes."""
        if not self.is_right(file):
            self.drop()
            raise FetchError(
                f"{file.name}: what came is not what the server announced: its digest is"
                f" {self._hash.hexdigest()[:12]}, not {file.blob_name[:12]}",
                hint="Try again. If it stays so, the server or something on the way changes files.",
            )
        os.fsync(self._fd)
        os.fchmod(self._fd, 0o644)
        os.replace(self._path, blob)


def git_hash(size_bytes: int) -> Any:
    """Git's digest of a file: sha1 of a header and the bytes. It tells damage, not an attacker, who could
    write these files anyway."""
    return hashlib.sha1(b"blob %d\0" % size_bytes, usedforsecurity=False)


def left_bytes(file: Listed, blob: Path) -> int:
    """What `Transfer.fetch` would ask for: all but what an earlier attempt left."""
    try:
        here_bytes = part_of(blob).stat().st_size
    except OSError:
        return file.size_bytes
    return file.size_bytes - (here_bytes if here_bytes <= file.size_bytes else 0)


def part_of(blob: Path) -> Path:
    return blob.with_name(f"{blob.name}.part")


@contextmanager
def alone(path: Path) -> Generator[Part]:
    """The part at `path`, for this process and thread alone."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
            try:
                same = os.fstat(fd).st_ino == path.stat().st_ino
            except FileNotFoundError:
                same = False
            if same:
                break
            os.close(fd)  # it became a blob, or was dropped, while we waited
    except OSError as error:
        raise disk_fault(error, path, HINT) from error
    try:
        yield Part(path, fd)
        path.unlink(missing_ok=True)
    except OSError as error:
        raise disk_fault(error, path, HINT) from error
    finally:
        os.close(fd)


def _pieces(fd: int) -> Iterator[bytes]:
    while piece := os.read(fd, CHUNK_BYTES):
        yield piece
