"""Locks between processes and threads: `flock` on a file that stays.

A lock belongs to the open file, so a killed process holds none, and two threads of one process exclude each
other as two processes do. A thread must not take a lock it already holds: it would wait for itself.
"""

import errno
import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from modelkit.store.disk import open_plain


@contextmanager
def locked(path: Path, *, exclusive: bool) -> Generator[None]:
    """Hold the lock at `path`, created if need be. Waits. Raises OSError where files cannot be locked."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


@contextmanager
def locked_for_reading(path: Path, *, exclusive: bool = False) -> Generator[None]:
    """Hold `path` where it exists and may be opened; a store that nobody can write needs no lock. exclusive:
    where the file system lets somebody have that who may only read (NFS does not), else shared.
    """
    try:
        fd = open_plain(path)
    except (FileNotFoundError, PermissionError):
        yield
        return
    try:
        if not (exclusive and _locked_alone(fd)):
            fcntl.flock(fd, fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


def _locked_alone(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
        return False
    return True


def is_held(path: Path) -> bool:
    """Does somebody hold the lock at `path` exclusively? A missing file is held by nobody."""
    try:
        fd = open_plain(path)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(fd)
