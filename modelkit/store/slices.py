"""Slices of tensors, which a rank holds in place of blobs that are not here: no blobs, and of no package.

    slices/<hex of the blob>/<hex of the slice>     a safetensors file of one tensor; its metadata have the
                                                    SHA-256 of the numbers

What a digest covers is a whole blob, so nobody can say of a slice alone that it is right: it is what the
machine that sent it has vouched for, or what went by as a part of that blob. A file is written elsewhere
(ingest) and moved here when its numbers have the SHA-256 that was told with them, or when the blob has been
seen to be right. The slices of a blob stay until a `prune` that finds no operation which has pinned that
blob.
"""

import hashlib
import json
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from modelkit.errors import StoreError
from modelkit.progress import Advance
from modelkit.store.canonical import canonical
from modelkit.store.digest import Blob, Digest
from modelkit.store.disk import PageWriter, chunks, create, make_folder, storing, sync
from modelkit.store.layout import Layout
from runtime.records import dataclass

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_ALIGNED = 64
_LENGTH = 8
_HEADER_LIMIT_BYTES = 1 << 16
_NONE_YET = "0" * 64


@dataclass(frozen=True, slots=True)
class Sliced:
    """What a file is to hold."""

    blob: Digest
    """That it is a slice of."""
    tensor: str
    which: str
    """What tells this slice of the tensor from others."""
    dtype: str
    """As safetensors calls it."""
    shape: tuple[int, ...]
    nbytes: int

    def path(self, layout: Layout) -> Path:
        key = hashlib.sha256(canonical({"tensor": self.tensor, "which": self.which})).hexdigest()
        return layout.slices / self.blob.hex / key

    def is_here(self, layout: Layout) -> bool:
        """Of the right size, that is: the numbers are believed, as those of a stored blob are."""
        with suppress(OSError):
            return self.path(layout).lstat().st_size == len(self.header(_NONE_YET)) + self.nbytes
        return False

    def header(self, sha256: str) -> bytes:
        """As long whatever the SHA-256."""
        entry = {"dtype": self.dtype, "shape": self.shape, "data_offsets": [0, self.nbytes]}
        text = json.dumps({"__metadata__": {"sha256": sha256}, self.tensor: entry}).encode()
        text += b" " * (-(_LENGTH + len(text)) % _ALIGNED)
        return len(text).to_bytes(_LENGTH, "little") + text


class SliceWriter:
    """A slice that comes: `write` its numbers, then `commit`, or `seal` it, and `place` it when it is known
    to be right. Leaving the block without discards it.
    """

    def __init__(self, layout: Layout, temp: Path, wanted: Sliced) -> None:
        self._layout, self._temp, self._wanted = layout, temp, wanted
        self._hash = hashlib.sha256()
        self._size_bytes = 0
        with storing(temp):
            self._fd = create(temp)
            self._open = True
            self._pages = PageWriter(self._fd)
            self._pages.write(memoryview(wanted.header(_NONE_YET)))

    def write(self, data: "ReadableBuffer") -> None:
        view = memoryview(data)
        self._hash.update(view)
        self._size_bytes += view.nbytes
        with storing(self._temp):
            self._pages.write(view)

    def commit(self, sha256: str) -> None:
        """Put it in its place. Raises StoreError where the numbers are not those of that SHA-256."""
        if (self._hash.hexdigest(), self._size_bytes) != (sha256, self._wanted.nbytes):
            raise StoreError(f"other numbers than those of {self._wanted.tensor} have come")
        self.seal()
        self.place()

    def seal(self) -> None:
        """All of it is written: have it on the disk, and let go of the file."""
        assert self._size_bytes == self._wanted.nbytes
        with storing(self._temp):
            self._pages.end()
            os.pwrite(self._fd, self._wanted.header(self._hash.hexdigest()), 0)
            os.fchmod(self._fd, 0o444)
            sync(self._fd)
            self._close()

    def place(self) -> None:
        """Put it in its place, once it is sealed."""
        path = self._wanted.path(self._layout)
        with storing(path), self._layout.adding():
            make_folder(path.parent)
            os.rename(self._temp, path)

    def _close(self) -> None:
        if self._open:
            self._open = False
            os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        with storing(self._temp):
            self._temp.unlink(missing_ok=True)


def loose_slices(layout: Layout, pinned: Collection[Digest]) -> list[Path]:
    """The folders that no running operation uses. The caller holds `changing`."""
    used = {digest.hex for digest in pinned}
    return [folder for folder in _folders(layout) if folder.name not in used]


def sliced_blobs(layout: Layout) -> set[Digest]:
    """Those of which there are slices."""
    found: set[Digest] = set()
    for folder in _folders(layout):
        with suppress(StoreError):
            found.add(Digest(folder.name))
    return found


def damaged_slices(layout: Layout, progress: Advance) -> list[Path]:
    """Those that are not what was written. progress: of the bytes that are read for it."""
    files = [
        path
        for folder in _folders(layout)
        for path in (sorted(folder.iterdir()) if folder.is_dir() else [folder])
    ]
    return [path for path in files if not _is_sound(path, progress)]


def _folders(layout: Layout) -> list[Path]:
    """One for each blob."""
    return sorted(layout.slices.iterdir()) if layout.slices.exists() else []


def _is_sound(path: Path, progress: Advance) -> bool:
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH), "little")
            told = json.loads(file.read(min(length, _HEADER_LIMIT_BYTES)))["__metadata__"]["sha256"]
            os.lseek(file.fileno(), _LENGTH + length, os.SEEK_SET)
            return Blob.of(chunks(file.fileno()), progress).digest.hex == told
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
