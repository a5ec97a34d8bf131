"""What a file system refuses to whoever writes, as an error that says which of three it is: there is no room,
it may not be done, or something else is wrong.

Relies on nothing that takes time to import, as `temporary` has it from the start.
"""

import errno
import os
import resource
import shutil
from pathlib import Path

from modelkit.errors import DiskDenied, DiskFull, StoreError
from modelkit.python_faults import os_reason
from modelkit.units import size

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DENIED = (errno.EROFS, errno.EACCES, errno.EPERM)
_TOO_LARGE = "Raise the limit (`ulimit -f`), or take a disk whose file system holds files of that size."
_SPARE = 1.05  # file systems need a little more than the files' bytes


def no_room(error: BaseException | None) -> bool:
    """Is it of a disk, a quota or a limit that has no room for more?"""
    return isinstance(error, DiskFull) or (isinstance(error, OSError) and error.errno in _NO_ROOM)


def by_writing(error: OSError) -> bool:
    """Does only who writes get it?"""
    return no_room(error) or error.errno == errno.EROFS


def disk_fault(error: OSError, where: Path | None = None, hint: str | None = None) -> StoreError:
    """What to raise in its place. where: what was written, where the system does not say. hint: as in
    `advice`.
    """
    hint = advice(error, hint)
    found = error.filename2 or error.filename  # of two, the second is the one that is made
    named = found if isinstance(found, (str, Path)) else where
    said = f"{named}: {os_reason(error)}" if named else os_reason(error)
    if no_room(error):
        return DiskFull(said + _left(error, named), hint=hint)
    return (DiskDenied if error.errno in _DENIED else StoreError)(said, hint=hint)


def advice(error: OSError, hint: str | None) -> str | None:
    """What to do: `hint`, but for files that are too large, where it is the same everywhere."""
    return _TOO_LARGE if error.errno == errno.EFBIG else hint


def require_room(folder: Path, needed_bytes: int, hint: str | None, *, verb: str = "written") -> None:
    """Refuse what would fill the disk: raises DiskFull, and OSError. `folder` need not exist yet."""
    free = free_bytes(folder)
    if needed_bytes * _SPARE > free:
        raise DiskFull(
            f"{size(needed_bytes)}, and a twentieth more, must be {verb} to {folder}, where {size(free)}"
            " are free",
            hint=hint,
        )


def free_bytes(folder: Path) -> int:
    """What the disk has room for on which the folder is, or will be. Raises OSError."""
    return shutil.disk_usage(nearest(folder)).free


def nearest(folder: Path) -> Path:
    """The folder, or the first above it that is there; one that cannot be looked at is not."""
    return next(place for place in (folder, *folder.parents) if os.path.exists(place))


def _left(error: OSError, named: "str | Path | None") -> str:
    """How much room there is all the same, where that is known."""
    if error.errno == errno.EFBIG:
        most_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        return "" if most_bytes == resource.RLIM_INFINITY else f"; a file may have {size(most_bytes)}"
    if error.errno != errno.ENOSPC or named is None:
        return ""
    try:
        return f"; {size(free_bytes(Path(named).absolute()))} are free there"
    except OSError:
        return ""
