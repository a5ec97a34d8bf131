"""Laying a package out as a folder of ordinary files, which other programs can load.

Files are hard links to the store's blobs, so they cost no space, and read-only, because they are the store's
own bytes: to change one, replace it, never write into it. Where links cannot reach (another disk), or are not
wanted, files are copied.

A file appears whole or not at all, and none is ever overwritten: what stands in the folder already must be
this package's files, or the export is refused before it begins. A file that the caller makes anew
(`GeneratedFile`) stands in the place of the package's own of that name, under the same rules.
"""

import errno
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from modelkit.disk_faults import nearest
from modelkit.errors import StoreError
from modelkit.progress import Advance
from modelkit.store.digest import Blob
from modelkit.store.disk import chunks, hard_link, open_plain, require_space, storing, write_all
from modelkit.store.layout import refuse_inside
from modelkit.store.outline import refuse_outline
from modelkit.store.package import Package
from runtime.records import dataclass

Piece = bytes | bytearray | memoryview


class GeneratedFile(Protocol):
    """A file that stands in a folder for the package's own."""

    @property
    def size_bytes(self) -> int: ...

    def pieces(self) -> Iterator[tuple[int, Piece]]:
        """(offset, bytes) until the whole file was given, the same ones every time."""
        ...


@dataclass(frozen=True, slots=True)
class Exported:
    """How many of the package's files were linked, copied, there already, and made anew."""

    linked: int
    copied: int
    present: int
    made: int = 0


def export_package(
    package: Package,
    folder: Path,
    *,
    link: bool,
    progress: Advance | None,
    made: Mapping[str, GeneratedFile] | None = None,
) -> Exported:
    """Lay out `package`, whose blobs the caller holds, in `folder`, created if need be. `made`: by path."""
    refuse_outline(package, "exported")
    instead = made or {}
    ways: list[str] = []
    with storing(folder, exported=True):
        present = _present(package, folder, instead)
        copies = not link or _is_elsewhere(folder, package)
        needed = {layer.path: layer.blob.size_bytes for layer in package.manifest.layers if copies}
        needed.update((path, one.size_bytes) for path, one in instead.items())
        needed_bytes = sum(count for path, count in needed.items() if path not in present)
        require_space(folder, needed_bytes, exported=True)
        for layer in package.manifest.layers:
            fresh = instead.get(layer.path)
            size_bytes = fresh.size_bytes if fresh else layer.blob.size_bytes
            advance = progress or _silent
            if layer.path in present:
                advance(size_bytes)
                continue
            target = folder / layer.path
            target.parent.mkdir(parents=True, exist_ok=True)
            if fresh is None and link and hard_link(package.files[layer.path], target):
                ways.append("linked")
                advance(size_bytes)
            else:
                pieces = fresh.pieces() if fresh else _in_order(package.files[layer.path])
                _write(pieces, target, _part_of(target, layer.blob), advance)
                ways.append("made" if fresh else "copied")
    return Exported(ways.count("linked"), ways.count("copied"), len(present), ways.count("made"))


def refuse_place(folder: Path) -> None:
    """Raise StoreError where no folder can be, or none of the user's."""
    refuse_inside(folder)
    for place in (folder, *folder.parents):
        if place.is_symlink() and not place.exists():
            raise StoreError(f"{place} is a link to {place.readlink()}, which is not there")
        if place.exists():
            if not place.is_dir():
                raise StoreError(f"{place} is a file; a folder was expected", hint="Name a new folder.")
            return


def write_folder(files: Mapping[str, bytes], folder: Path) -> None:
    """Write small files into `folder`, new or empty. Raises StoreError."""
    with storing(folder, exported=True):
        refuse_place(folder)
        if folder.exists() and any(folder.iterdir()):
            raise StoreError(f"{folder} is not empty", hint="Name a new folder.")
        require_space(folder, sum(map(len, files.values())), exported=True)
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            part = folder / f".{hashlib.sha256(content).hexdigest()}.part"
            _write(iter([(0, content)]), folder / name, part, _silent)


def _is_elsewhere(folder: Path, package: Package) -> bool:
    """Is the folder on another disk than the package?"""
    disk = nearest(folder).stat().st_dev
    return any(blob.stat().st_dev != disk for blob in package.files.values())


def _silent(_: int) -> None:
    pass


def _present(package: Package, folder: Path, made: Mapping[str, GeneratedFile]) -> set[str]:
    """The package's files that the folder holds. Raises StoreError if it holds anything else."""
    refuse_place(folder)
    if not folder.exists():
        return set()
    expected = {layer.path: layer.blob for layer in package.manifest.layers}
    parts = {_part_of(folder / layer.path, layer.blob) for layer in package.manifest.layers}
    found: set[str] = set()
    for path in _files_under(folder):
        relative = path.relative_to(folder).as_posix()
        if path in parts:  # one that was cut short
            path.unlink()
        elif _stands(path, expected.get(relative), package.files.get(relative), made.get(relative)):
            found.add(relative)
        else:
            raise StoreError(
                f"{folder} is not empty: {relative} is not a file of {package.name}",
                hint="Name a new folder. Only this very package's files may be there before.",
            )
    return found


def _files_under(folder: Path) -> Iterator[Path]:
    """Everything in a folder that is not a folder; links to folders are not followed."""
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


def _stands(path: Path, expected: Blob | None, blob: Path | None, made: GeneratedFile | None) -> bool:
    if made is not None:
        return _is_made(path, made)
    return expected is not None and blob is not None and _is_same(path, blob, expected)


def _is_made(path: Path, made: GeneratedFile) -> bool:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != made.size_bytes:
        return False
    with path.open("rb") as file:
        return all(os.pread(file.fileno(), len(piece), at) == piece for at, piece in made.pieces())


def _in_order(blob: Path) -> Iterator[tuple[int, Piece]]:
    source = open_plain(blob)
    at = 0
    try:
        for piece in chunks(source):
            yield at, piece
            at += len(piece)
    finally:
        os.close(source)


def _write(pieces: Iterator[tuple[int, Piece]], target: Path, part: Path, advance: Advance) -> None:
    """A file that gets its name when all of it is there."""
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        for at, piece in pieces:
            os.lseek(file, at, os.SEEK_SET)
            write_all(file, memoryview(piece))
            advance(len(piece))
    except BaseException:
        part.unlink()
        raise
    finally:
        os.close(file)
    if target.exists():
        part.unlink()
        raise FileExistsError(errno.EEXIST, "appeared during the export", str(target))
    os.rename(part, target)


def _part_of(target: Path, blob: Blob) -> Path:
    return target.parent / f".{blob.digest.hex}.part"
