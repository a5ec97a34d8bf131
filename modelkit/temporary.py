"""Folders for files that are needed for a while, below TMPDIR: made of a model, or for a program to look at.

    <TMPDIR>/modelkit-<kind>-<random>/modelkit-lease    locked while the folder is needed

A folder goes with its TemporaryFolder, or when Python ends. One that a killed process left is told by its
lease, which nobody holds any more, without process ids or clocks: whoever makes the next folder takes it
away. So that none is taken from a process that has only just made it, that one looks, once it holds the
lease, whether the folder is there still.

Relies on nothing that takes time to import, as `cli.terminal.interrupts` has it from the start.
"""

import fcntl
import os
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from modelkit.errors import DiskDenied, DiskFull
from modelkit.python_faults import os_reason

_PREFIX = "modelkit-"
_LEASE = "modelkit-lease"
_held: set[str] = set()  # the folders of this process, which a fork of it does not own
os.register_at_fork(after_in_child=_held.clear)


class Unwritable(DiskDenied):
    """There is no place for temporary files."""


class NoTemporaryRoom(Unwritable, DiskFull):
    """There is one, and it is full."""


class TemporaryFolder:
    """One that is made when it is first asked for. kind: what it is for, in its name. what: the files that
    will be in it, for a message.
    """

    def __init__(self, kind: str, what: str) -> None:
        self._kind, self._what = kind, what
        self._path: Path | None = None
        self._numbers = count()
        self._remove: Callable[[], object] = lambda: None

    @property
    def path(self) -> Path:
        """Raises Unwritable where none can be made."""
        if self._path is None:
            with self.writing():
                _take_away_left()
                folder, lease = _make(self._kind)
            self._remove = weakref.finalize(self, _remove, folder, lease)
            self._path = Path(folder)
        return self._path

    def new(self) -> Path:
        """A folder inside, for one of several that want to call their files alike. Raises Unwritable."""
        with self.writing():
            inside = self.path / str(next(self._numbers))
            inside.mkdir()
        return inside

    @contextmanager
    def writing(self) -> Generator[None]:
        """A block that writes files there. Raises Unwritable, with what to do, where that cannot be."""
        try:
            yield
        except OSError as error:
            from modelkit.disk_faults import advice, no_room  # which takes its time

            raise (NoTemporaryRoom if no_room(error) else Unwritable)(
                f"cannot write {self._what}: {os_reason(error)}",
                hint=advice(error, "Set TMPDIR to a folder that can be written to and has room for them."),
            ) from error

    def remove(self) -> None:
        self._remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def put_away() -> None:
    """Remove all folders of this process, which is about to end: it may do so without another word."""
    for folder in tuple(_held):
        _remove_tree(folder)


def _make(kind: str) -> tuple[str, int]:
    """A folder, and its lease."""
    import tempfile

    while True:
        folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-")
        _held.add(folder)
        name = os.path.join(folder, _LEASE)
        try:
            lease = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            _remove(folder)
            raise
        with suppress(OSError):  # where nothing can be locked, nothing is taken away either
            fcntl.flock(lease, fcntl.LOCK_EX)
        if os.path.exists(name):
            return folder, lease
        _remove(folder, lease)


def _take_away_left() -> None:
    """Those of this user, whose processes are gone."""
    import tempfile

    above = tempfile.gettempdir()
    with suppress(OSError), os.scandir(above) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX):
                with suppress(OSError):
                    if (
                        entry.is_dir(follow_symlinks=False)
                        and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
                    ):
                        take_away(entry.path)


def take_away(folder: str) -> None:
    """Remove one that a process left which is gone. Raises OSError where that is not so."""
    lease = os.open(os.path.join(folder, _LEASE), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_tree(folder)
    finally:
        os.close(lease)


def _remove(folder: str, lease: int | None = None) -> None:
    if folder in _held:
        _remove_tree(folder)
        _held.discard(folder)
    if lease is not None:
        os.close(lease)


def _remove_tree(folder: str) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
