"""A planned GGUF file -> the file, as a stream: it appears whole under its name or not at all, and none is
ever overwritten.
"""

import fcntl
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from modelkit.errors import StoreError
from modelkit.pack.gguf.export import Planned
from modelkit.pack.gguf.plan import Written
from modelkit.pack.gguf.rows import blocks
from modelkit.pack.gguf.tensors import Stored
from modelkit.pack.writing.reader import Reader
from modelkit.progress import Advance
from modelkit.source.gguf.header_bytes import header_bytes, padded
from modelkit.store.disk import hard_link, require_space, storing, sync, sync_folder, write_all
from modelkit.store.export import refuse_place
from modelkit.store.layout import refuse_inside


def write_gguf(planned: Planned, target: Path, progress: Advance | None = None) -> int:
    """Write the file and return its size. Raises StoreError where a file of that name is there already, or
    the disk has no room, SourceError for weights that change while they are read.
    """
    header = header_bytes(planned.metadata, planned.entries)
    with storing(target, exported=True):
        refuse_taken(target)
        require_space(target.parent, len(header) + planned.nbytes, exported=True)
        with _appearing(target) as file:
            write_all(file, memoryview(header))
            with Reader(planned.files) as reader:
                for one in planned.written:
                    _write_tensor(file, one, planned.tensors, reader, progress)
                reader.check_unchanged()
            for values in planned.extra.values():
                data = np.array(values, dtype="<f4").tobytes()
                write_all(file, memoryview(data + bytes(padded(len(data)) - len(data))))
    return len(header) + planned.nbytes


def refuse_taken(target: Path) -> None:
    """Raise StoreError where something has that name, or no file can have it."""
    refuse_inside(target)
    refuse_place(target.parent)
    if not target.parent.exists():
        raise StoreError(f"there is no folder {target.parent}", hint="Make it first, or name another place.")
    if target.is_symlink() or target.exists():
        raise _exists(target)


def _write_tensor(
    file: int, one: Written, tensors: Mapping[str, Stored], reader: Reader, progress: Advance | None
) -> None:
    count = 0
    for piece in blocks(one.origin, one.choice, tensors, reader):
        write_all(file, piece)
        count += len(piece)
        if progress:
            progress(len(piece))
    assert count == one.entry.nbytes, (one.entry, count)
    write_all(file, memoryview(bytes(padded(count) - count)))


@contextmanager
def _appearing(target: Path) -> Generator[int]:
    """A new file that gets its name when the block has ended well; what a killed one left is used again."""
    part = target.parent / f".{target.name}.part"
    file = _locked(part, target)
    try:
        os.ftruncate(file, 0)
        try:
            yield file
            sync(file)
            _name(part, target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        sync_folder(target.parent)
    finally:
        os.close(file)


def _locked(part: Path, target: Path) -> int:
    """The file at `part`, for this export alone. One that was there may have become the `target` of another
    export since it was opened; that is left as it is.
    """
    while True:
        file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(part, file):
                return file
        except BlockingIOError:
            os.close(file)
            raise StoreError(f"{target} is being written by another export") from None
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _is_still(part: Path, file: int) -> bool:
    try:
        return os.path.samestat(part.lstat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _name(part: Path, target: Path) -> None:
    """Give the file its name, unless it was taken meanwhile."""
    try:
        linked = hard_link(part, target)
    except FileExistsError:
        raise _exists(target) from None
    if linked:
        part.unlink()
        return
    if target.exists():
        raise _exists(target)
    os.rename(part, target)


def _exists(target: Path) -> StoreError:
    return StoreError(f"{target} exists already", hint="Name a new file; none is overwritten.")
