"""What the store asks of a file system: durable writes, cheap copies, room; and errors in words.

`sync` means on the platter: macOS needs F_FULLFSYNC for that, its fsync stops at the drive's cache. A file is
durable after `sync`, its name after `sync_folder` on the folder that holds it.
"""

import errno
import fcntl
import mmap
import os
import stat
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from modelkit.disk_faults import disk_fault, require_room

CHUNK_BYTES = 4 << 20
PAGE_BYTES = 2 << 20  # a large page of x86 and, most often, of ARM
_BLANK_PAGE = bytes(PAGE_BYTES)
_AHEAD_BYTES = 4 * PAGE_BYTES

_FICLONE = 0x40049409  # linux/fs.h: share the blocks of another file
_SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h: begin to write, and wait for nothing
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOTTY)  # pipes and some network mounts
_CANNOT_LINK = (
    *(errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK),
    *(errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS),
)

_HINTS = {
    errno.ENOSPC: "The disk is full. Free some room (`modelkit rm`, `modelkit prune`) or move MODELKIT_HOME.",
    errno.EDQUOT: "Your disk quota is used up. Free some space or move MODELKIT_HOME.",
    errno.EROFS: "The file system is read-only. Set MODELKIT_HOME to a folder that can be written.",
    errno.EACCES: "Check who owns the folder, or set MODELKIT_HOME to one of your own.",
    errno.EPERM: "Check who owns the folder, or set MODELKIT_HOME to one of your own.",
    errno.EMFILE: "Too many files are open. Raise the limit with `ulimit -n`.",
    errno.ENOLCK: "This file system cannot lock files. Set MODELKIT_HOME to a local disk.",
    errno.ENOTSUP: "This file system cannot do what a store needs. Set MODELKIT_HOME to a local disk.",
    errno.ENOTDIR: "A file stands where the store needs a folder.",
}
_EXPORT_HINTS = {
    errno.ENOSPC: "The disk is full. Free some room, or name a place on another disk.",
    errno.EDQUOT: "Your disk quota is used up. Free some space, or name another place.",
    errno.EROFS: "The file system is read-only. Name a place that can be written to.",
    errno.EACCES: "Check who owns the folder, or name one of your own.",
    errno.EPERM: "Check who owns the folder, or name one of your own.",
    errno.EMFILE: _HINTS[errno.EMFILE],
    errno.ENOLCK: "This file system cannot lock files. Name a place on a local disk.",
    errno.ENOTDIR: "A file stands where a folder is needed.",
}


@contextmanager
def storing(path: Path, *, exported: bool = False) -> Generator[None]:
    """Turn the OSErrors of a block into StoreErrors (DiskFull, DiskDenied) that name the file, or `path`
    where the system does not say. exported: it is outside the store, where the user wants it.
    """
    try:
        yield
    except OSError as error:
        raise disk_fault(error, path, _advice(error.errno or 0, exported=exported)) from error


def _advice(number: int, *, exported: bool) -> str | None:
    return (_EXPORT_HINTS if exported else _HINTS).get(number)


def sync(fd: int) -> None:
    """Make what was written to `fd` survive a power cut."""
    try:
        if sys.platform == "darwin":
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        else:
            os.fsync(fd)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
        if sys.platform == "darwin":
            os.fsync(fd)


def begin_sync(fd: int, start: int, stop: int) -> None:
    """Let these bytes go to the disk now, where the system does not begin by itself: Linux waits half a
    minute, or for a tenth of the memory. Whether that works is what `sync` says, which is due still.
    """
    if call := _sync_file_range():
        call(fd, start, stop - start, _SYNC_FILE_RANGE_WRITE)


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    if sys.platform != "linux":
        return None
    import ctypes  # only here, as in `_clone_darwin`

    call = ctypes.CDLL(None).sync_file_range
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return call


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(fd)
    finally:
        os.close(fd)


def make_folder(path: Path) -> None:
    """Create a folder only its owner may enter, whatever the umask; fine if it is there."""
    try:
        path.mkdir(0o700)
    except FileExistsError:
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from None
    else:
        path.chmod(0o700)


def create(path: Path) -> int:
    """Open a new private file for reading and writing. Raises FileExistsError, never touches an old one."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def open_plain(path: Path) -> int:
    """Open a file for reading. Never follows a link, never waits on a pipe."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def write_all(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]


class PageWriter:
    """Writes bytes behind each other to a file, from `at` on, in whole large pages: `end` writes what is held
    back by then, and more may follow.

    Linux keeps in its cache what is written in the pieces in which it comes, and whoever maps the file gets
    these: one page of 2 MB, where it was written at once and lies at a multiple of that, in place of 512. A
    matrix that is read at every token is read faster so.

    What is in the cache goes on its way to the disk while more comes, so that a `sync` at the end waits for
    little.
    """

    def __init__(self, fd: int, at: int = 0) -> None:
        self._fd = fd
        self._at = self._sent = at
        self._page = memoryview(mmap.mmap(-1, PAGE_BYTES, mmap.MAP_PRIVATE))  # takes memory as it is used
        self._start = self._stop = at % PAGE_BYTES  # what is held back, at its place in a page

    def write(self, piece: memoryview) -> None:
        """Append bytes, of which less than a page is held back."""
        if self._stop:
            piece = self._hold(piece)
            if self._stop == PAGE_BYTES:
                self.end()
        rest = len(piece) % PAGE_BYTES
        self._put(piece[: len(piece) - rest])
        self._hold(piece[len(piece) - rest :])

    def end(self) -> None:
        held = self._page[self._start : self._stop]
        self._start = self._stop = self._stop % PAGE_BYTES  # first: on a full disk nothing comes twice
        self._put(held)

    def _put(self, data: memoryview) -> None:
        write_all(self._fd, data)
        self._at += len(data)
        if self._at - self._sent >= _AHEAD_BYTES:
            begin_sync(self._fd, self._sent, self._at)
            self._sent = self._at

    def _hold(self, piece: memoryview) -> memoryview:
        """Put what fits behind what is held, and return the rest."""
        part = piece[: PAGE_BYTES - self._stop]
        self._page[self._stop : self._stop + len(part)] = part
        self._stop += len(part)
        return piece[len(part) :]


def blank_pages(fd: int, start: int, stop: int, limit: int) -> None:
    """Write zeros to the whole large pages, up to `limit`, that begin from `start` on and before `stop`.

    For what comes in small pieces, to be written over them: the cache keeps the pages as they were made
    (`PageWriter`).
    """
    for page in range(start + -start % PAGE_BYTES, min(stop, limit - PAGE_BYTES + 1), PAGE_BYTES):
        os.pwrite(fd, _BLANK_PAGE, page)


def replace(path: Path, data: bytes, temp: Path, *, durable: bool = True) -> None:
    """Give `path` new content at once: readers see the old bytes or the new; where `durable`, after a power
    cut too.
    """
    fd = create(temp)
    try:
        try:
            write_all(fd, memoryview(data))
            if durable:
                sync(fd)
        finally:
            os.close(fd)
        os.rename(temp, path)
    except BaseException:
        temp.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def read_small(path: Path, limit_bytes: int) -> bytes:
    """The bytes of a regular file of at most `limit_bytes`."""
    fd = open_plain(path)
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if status.st_size > limit_bytes:
            raise OSError(
                errno.EINVAL, f"{status.st_size:,} bytes, at most {limit_bytes:,} expected", str(path)
            )
        return file.read(status.st_size)  # of the limit all would be allocated first


def chunks(fd: int, size_bytes: int = sys.maxsize) -> Iterator[memoryview]:
    """The rest of an open file, in pieces that are valid until the next is asked for.

    Ends soon after `size_bytes`: a file that grows as fast as it is read must not be read for ever.
    """
    buffer = memoryview(bytearray(CHUNK_BYTES))
    done_bytes = 0
    while done_bytes <= size_bytes and (count := os.readv(fd, [buffer])):
        done_bytes += count
        yield buffer[:count]


def clone(source: int, target: Path) -> bool:
    """Create `target` sharing the blocks of an open file. False, and no file, where this disk cannot."""
    if sys.platform == "darwin":
        return _clone_darwin(source, target)
    fd = create(target)
    try:
        fcntl.ioctl(fd, _FICLONE, source)
    except OSError:
        target.unlink()
        return False
    finally:
        os.close(fd)
    return True


def hard_link(path: Path, target: Path) -> bool:
    """Make `target` a second name of the file at `path`. False, and no file, where that cannot be, as on
    another disk. Raises FileExistsError.
    """
    try:
        os.link(path, target)
    except OSError as error:
        if error.errno in _CANNOT_LINK:
            return False
        raise
    return True


def link_file(source: int, path: Path, target: Path) -> bool:
    """Make `target` a second name of an open file, found at `path` or at the end of the links there. False,
    and no file, where it is another's, on another disk, or not there any more.
    """
    status = os.fstat(source)
    if status.st_uid != os.geteuid():
        return False  # its mode would be another's, too
    try:
        os.link(path.resolve(), target, follow_symlinks=False)
    except OSError:
        return False
    if os.path.samestat(target.lstat(), status):
        return True
    target.unlink()
    return False


def _clone_darwin(source: int, target: Path) -> bool:
    import ctypes  # only here: its import costs more than most commands

    at_working_folder, no_owner = -2, 2  # AT_FDCWD, CLONE_NOOWNERCOPY (sys/clonefile.h)
    return ctypes.CDLL(None).fclonefileat(source, at_working_folder, os.fsencode(target), no_owner) == 0


def room_of(path: Path) -> int:
    """Bytes that the file takes on disk, at most those that it has: one may have holes. Small ones may lie
    where no blocks are counted. 0 for one that is gone.
    """
    try:
        its = path.lstat()
    except FileNotFoundError:
        return 0
    return min(its.st_size, its.st_blocks * 512 or its.st_size)


def require_space(folder: Path, needed_bytes: int, *, exported: bool = False) -> None:
    """Refuse what would fill the disk. `folder` need not exist yet. exported: as for `storing`.

    Raises DiskFull.
    """
    with storing(folder, exported=exported):
        require_room(folder, needed_bytes, _advice(errno.ENOSPC, exported=exported))
