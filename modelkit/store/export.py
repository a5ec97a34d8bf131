"""Laying a package out as a folder of ordinary files, which other programs can load.

Files are hard links to the store's blobs, so they cost no space, and read-only, because they are the store's
own bytes: to change one, replace it, never write into it. Where links cannot reach (another disk), or are not
wanted, files are copied.

A file appears whole or not at all, and none is ever overwritten: what stands in the folder already must be
this package's files, or the export is refused before it begins.
"""

import errno
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from modelkit.errors import StoreError
from modelkit.store.digest import Blob
from modelkit.store.disk import chunks, storing, write_all
from modelkit.store.package import Package
from modelkit.store.soundness import Progress

_CANNOT_LINK = (
    *(errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK),
    *(errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS),
)


@dataclass(frozen=True, slots=True)
class Exported:
    """How many of the package's files were linked, copied, and there already."""

    linked: int
    copied: int
    present: int


def export_package(package: Package, folder: Path, *, link: bool, progress: Progress | None) -> Exported:
    """Lay out `package`, whose blobs the caller holds, in `folder`, created if need be."""
    with storing(folder):
        present = _present(package, folder)
        linked = copied = 0
        for layer in package.manifest.layers:
            if layer.path not in present:
                blob, target = package.files[layer.path], folder / layer.path
                target.parent.mkdir(parents=True, exist_ok=True)
                if link and _link(blob, target):
                    linked += 1
                else:
                    _copy(blob, layer.blob, target)
                    copied += 1
            if progress:
                progress(layer.blob.size_bytes)
    return Exported(linked, copied, len(present))


def _present(package: Package, folder: Path) -> set[str]:
    """The package's files that the folder holds. Raises StoreError if it holds anything else."""
    if not folder.exists():
        return set()
    expected = {layer.path: layer.blob for layer in package.manifest.layers}
    parts = {_part_of(folder / layer.path, layer.blob) for layer in package.manifest.layers}
    found: set[str] = set()
    for path in _files_under(folder):
        relative = path.relative_to(folder).as_posix()
        if path in parts:  # a copy that was cut short
            path.unlink()
        elif relative in expected and _is_same(path, package.files[relative], expected[relative]):
            found.add(relative)
        else:
            raise StoreError(
                f"{folder} is not empty: {relative} is not a file of {package.name}",
                hint="Name a new folder. Only this very package's files may be there before.",
            )
    return found


def _files_under(folder: Path) -> Iterator[Path]:
    """Everything in a folder that is no folder; links to folders are not followed."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            yield from _files_under(Path(entry.path))
        else:
            yield Path(entry.path)


def _is_same(path: Path, blob: Path, expected: Blob) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != expected.size_bytes:
        return False
    if path.samefile(blob):
        return True
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == expected.digest.hex


def _link(blob: Path, target: Path) -> bool:
    try:
        os.link(blob, target)
    except OSError as error:
        if error.errno in _CANNOT_LINK:
            return False
        raise
    return True


def _copy(blob: Path, expected: Blob, target: Path) -> None:
    part = _part_of(target, expected)
    source = os.open(blob, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    copy = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        for piece in chunks(source):
            write_all(copy, piece)
    except BaseException:
        part.unlink()
        raise
    finally:
        os.close(source)
        os.close(copy)
    if target.exists():
        part.unlink()
        raise FileExistsError(errno.EEXIST, "appeared during the export", str(target))
    os.rename(part, target)


def _part_of(target: Path, blob: Blob) -> Path:
    return target.parent / f".{blob.digest.hex}.part"
