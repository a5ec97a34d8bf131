"""Blobs that come in pieces over minutes, and stay where they are when the process dies.

    partial/<hex>         the bytes, at their places; locked while somebody fetches them
    partial/<hex>.done    how many bytes each stretch has from its start on: 8 bytes each, little endian

A stretch is an even part of the blob; several of them can come side by side. What the journal says is only a
hint where to go on: the blob counts after its SHA-256 over all bytes on the disk, so a journal that a power
cut left ahead of the data costs a second fetch and nothing else. What no process has locked, `prune` removes.
"""

import fcntl
import os
import struct
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from modelkit.errors import StoreError
from modelkit.progress import Advance
from modelkit.store.digest import Blob
from modelkit.store.disk import blank_pages, chunks, storing, sync
from modelkit.store.layout import Layout
from modelkit.store.lock import is_held
from runtime.records import dataclass

MOST_STRETCHES = 16
_DONE = ".done"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a blob, and how much of it is here."""

    number: int
    start: int
    stop: int
    done_bytes: int

    @property
    def next(self) -> int:
        """The first byte that is missing."""
        return self.start + self.done_bytes

    @property
    def missing_bytes(self) -> int:
        return self.stop - self.next


class PartialBlob:
    """One blob on its way here. Each stretch may be written by a thread of its own."""

    def __init__(self, layout: Layout, expect: Blob, adopt: Callable[[Path, Blob], None]) -> None:
        self._layout = layout
        self._expect = expect
        self._adopt = adopt
        self._path = layout.partial / expect.digest.hex
        self._journal = layout.partial / (expect.digest.hex + _DONE)
        self._opened = ExitStack()
        self._fd = self._done_fd = -1
        self._starts: list[int] = []

    def __enter__(self) -> Self:
        """Waits while another process fetches the same blob."""
        with ExitStack() as opened, storing(self._path):
            # A file that stayed open here would keep its lock, and every later attempt waiting for it.
            self._fd = _open_locked(self._layout, self._path)
            opened.callback(os.close, self._fd)
            self._done_fd = os.open(self._journal, _FLAGS, 0o600)
            opened.callback(os.close, self._done_fd)
            count = os.fstat(self._done_fd).st_size // 8
            self._starts = _starts(self._expect.size_bytes, count)
            if not count or any(not 0 <= one.done_bytes <= one.stop - one.start for one in self.stretches()):
                self.restart(1)
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    @property
    def here_bytes(self) -> int:
        return sum(one.done_bytes for one in self.stretches())

    def stretches(self) -> list[Stretch]:
        """All of them, with what they have by now."""
        stops = [*self._starts[1:], self._expect.size_bytes]
        with storing(self._journal):
            raw = os.pread(self._done_fd, 8 * len(stops), 0).ljust(8 * len(stops), b"\0")
        done = struct.unpack(f"<{len(stops)}q", raw)
        return [
            Stretch(number, start, stop, done[number])
            for number, (start, stop) in enumerate(zip(self._starts, stops, strict=True))
        ]

    def restart(self, count: int) -> None:
        """Forget what is here, and divide the blob into `count` stretches."""
        self._starts = _starts(self._expect.size_bytes, count)
        with storing(self._path):
            os.ftruncate(self._done_fd, 0)
            os.ftruncate(self._fd, 0)
            os.pwrite(self._done_fd, b"\0" * (8 * len(self._starts)), 0)

    def write(self, stretch: Stretch, done_bytes: int, data: bytes) -> int:
        """Put `data` behind the first `done_bytes` of the stretch; returns how many it has then.

        Raises StoreError for bytes beyond its end.
        """
        place = stretch.start + done_bytes
        if done_bytes < 0 or place + len(data) > stretch.stop:
            raise StoreError(f"more bytes came for {self._expect.digest} than it has")
        with storing(self._path):
            blank_pages(self._fd, place, place + len(data), stretch.stop)
            left = memoryview(data)
            while left:
                count = os.pwrite(self._fd, left, place)
                left, place = left[count:], place + count
            done_bytes += len(data)
            os.pwrite(self._done_fd, struct.pack("<q", done_bytes), 8 * stretch.number)
        return done_bytes

    def commit(self, progress: Advance | None = None) -> bool:
        """Hash what is on the disk and put the blob in its place. False, and the bytes forgotten, where they
        are other ones.
        """
        with storing(self._path):
            os.lseek(self._fd, 0, os.SEEK_SET)
            if Blob.of(chunks(self._fd, self._expect.size_bytes), progress) != self._expect:
                self.restart(1)
                return False
            os.fchmod(self._fd, 0o444)
            sync(self._fd)
            self._adopt(self._path, self._expect)
            self._journal.unlink(missing_ok=True)
        return True

    def remove(self) -> None:
        """It is not needed any more."""
        with storing(self._path):
            self._path.unlink(missing_ok=True)
            self._journal.unlink(missing_ok=True)


def here_bytes(layout: Layout, expect: Blob) -> int:
    """How much of a blob an attempt that goes on would find here. Another one may be bringing more."""
    path = layout.partial / expect.digest.hex
    if not os.access(path, os.R_OK | os.W_OK):  # not there, or one that is begun anew: see `_opened`
        return 0
    try:
        raw = (layout.partial / (path.name + _DONE)).read_bytes()[: 8 * MOST_STRETCHES]
    except OSError:
        return 0
    done_bytes = sum(struct.unpack_from(f"<{len(raw) // 8}q", raw))
    return done_bytes if 0 <= done_bytes <= expect.size_bytes else 0


def abandoned(layout: Layout) -> list[Path]:
    """Files of partial/ that nobody is fetching. The caller holds `changing`."""
    if not layout.partial.exists():
        return []
    held = {
        path.name for path in layout.partial.iterdir() if not path.name.endswith(_DONE) and _is_fetched(path)
    }
    return [path for path in sorted(layout.partial.iterdir()) if path.name.removesuffix(_DONE) not in held]


def _starts(size_bytes: int, count: int) -> list[int]:
    count = max(1, min(count, MOST_STRETCHES))
    return [size_bytes * number // count for number in range(count)]


def _open_locked(layout: Layout, path: Path) -> int:
    """Open the file and lock it. Under the store's lock, so that no sweep removes it in between; that lock is
    not held while we wait for this one.
    """
    while True:
        with layout.adding():
            fd = _opened(path)
            if _lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB):
                if _is_still(path, fd):
                    return fd
                os.close(fd)
                continue
        _lock(fd, fcntl.LOCK_EX)
        os.close(fd)  # whoever had it may have moved it to its place: look again


def _opened(path: Path) -> int:
    try:
        return os.open(path, _FLAGS, 0o600)
    except PermissionError:  # all of it was here, and a kill came before it had its place
        path.unlink()
        return os.open(path, _FLAGS, 0o600)


def _lock(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how)
    except BlockingIOError:
        return False
    return True


def _is_still(path: Path, fd: int) -> bool:
    try:
        there, here = path.lstat(), os.fstat(fd)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _is_fetched(path: Path) -> bool:
    """Is somebody at it? Not at what is not a file, or cannot be opened."""
    with suppress(OSError):
        return is_held(path)
    return False
