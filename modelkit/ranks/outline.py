"""A package of which a rank has all but weights: these it knows by their headers, to open it and to plan.

A hollow file is as large as the weights it stands for and has their header; all else in it is a hole, which
takes no room on disk. It lies in a folder of its own, never among blobs, and is gone when the model is
loaded. Nothing of a package that `create` has made reads numbers before loading does, and that is given
slices of tensors (`slicing`).
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from modelkit.errors import StoreError
from modelkit.opening.read import Opened, open_outlined
from modelkit.pack.sources import DRAFT_FOLDER
from modelkit.store.digest import Blob, Digest
from modelkit.store.disk import storing
from modelkit.store.manifest import Layer, Manifest
from modelkit.store.name import as_name
from modelkit.store.store import Store
from modelkit.store.transaction import Transaction
from runtime.ranks.group import MOST_BYTES
from runtime.records import dataclass

_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Outline:
    """Made once all that is no weights is here. Its transaction keeps that."""

    manifest: Manifest
    package: Digest
    files: Mapping[str, Path]
    """By the package's paths: blobs, and hollow files."""
    hollow: Mapping[Path, Digest]
    """The blobs that hollow files stand for."""
    new: Transaction

    def open(self, name: str, adapters: Sequence[Path]) -> Opened:
        """The package as `open_model` opens a whole one. Raises LoadError and its kin."""
        return open_outlined(self.files, str(as_name(name)), self.package, self.manifest, adapters)


def weights_of(manifest: Manifest) -> list[Layer]:
    """The files that a rank may have in slices: weights of the target and of its draft."""
    return [layer for layer in manifest.layers if _may_be_sliced(layer.path)]


def missing_weights(store: Store, manifest: Manifest) -> list[Layer]:
    """Those of `weights_of` that are not in the store."""
    return [layer for layer in weights_of(manifest) if not _is_stored(store, layer.blob)]


def read_front(path: Path) -> bytes:
    """A safetensors file up to its first number; b"" for what is none, cannot be read, or is more than ranks
    tell each other at once.
    """
    with suppress(OSError), path.open("rb") as file:
        first = file.read(_LENGTH)
        length = int.from_bytes(first, "little")
        if len(first) == _LENGTH and length <= MOST_BYTES - _LENGTH:
            return first + file.read(length)
    return b""


def write_hollow(path: Path, front: bytes, size_bytes: int) -> None:
    """A file of that size, which begins so. Raises StoreError."""
    if len(front) > size_bytes:
        raise StoreError(f"a header of {len(front)} bytes came for a file of {size_bytes}")
    with storing(path), path.open("xb") as file:
        file.truncate(size_bytes)
        file.write(front)


def _may_be_sliced(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return folder in ("", DRAFT_FOLDER) and name.endswith(".safetensors")


def _is_stored(store: Store, blob: Blob) -> bool:
    with suppress(OSError):
        return store.blob_path(blob.digest).lstat().st_size == blob.size_bytes
    return False
