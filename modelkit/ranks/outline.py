"""A package of which a rank has all but weights: these it knows by their headers, to open it and to plan.
Others have them all, or rank 0 has an outline in its store (`modelkit.store.outline`) and has them come from
a registry.

A hollow file is as large as the weights it stands for and has their header; all else in it is a hole, which
takes no room on disk. It lies where the store has what is being written, never among blobs, and is gone when
the model is loaded. Nothing of a package that `create` has made reads numbers before loading does, and that
is given slices of tensors (`slicing`).
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from modelkit.address import RegistryAddress, read_address
from modelkit.errors import LoadError, ModelkitError, StoreError
from modelkit.pack.metadata import DRAFT_FOLDER
from modelkit.store.digest import Blob, Digest
from modelkit.store.disk import storing
from modelkit.store.manifest import Layer, Manifest
from modelkit.store.outline import Outlined, apart, outlined
from modelkit.store.package import Package
from modelkit.store.store import Store
from modelkit.store.transaction import Transaction
from runtime.quoting import quoted
from runtime.ranks.group import MOST_BYTES
from runtime.records import dataclass

_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Outline:
    """Made once all that is not weights is here. Its transaction keeps that."""

    manifest: Manifest
    package: Digest
    files: Mapping[str, Path]
    """By the package's paths: blobs, and hollow files."""
    hollow: Mapping[Path, Digest]
    """The blobs that hollow files stand for."""
    new: Transaction
    address: RegistryAddress | None = None
    """Of the registry that rank 0 has its outline from; None on other ranks."""
    insecure: bool = False
    """May that be asked over plain http?"""


@contextmanager
def laid_out(package: Package, said: Outlined, store: Store) -> Generator[Outline]:
    """A stored outline, within the block. Weights that are in the store for other reasons are used."""
    address = read_address(said.address)
    if not isinstance(address, RegistryAddress):
        raise StoreError(f"the outline {package.name} says no registry: {quoted(said.address)}")
    kept = {
        layer.path: package.files[layer.path] for layer in said.manifest.layers if layer.path in package.files
    }
    with store.begin() as new:
        hollow = [one for one in apart(said.manifest) if new.has(one.blob.digest) != one.blob]
        whole = {
            one.path: store.blob_path(one.blob.digest) for one in apart(said.manifest) if one not in hollow
        }
        files, stands = hollow_files(new, hollow, said.fronts)
        yield Outline(said.manifest, said.package, kept | whole | files, stands, new, address, said.insecure)


@contextmanager
def in_whole(package: Package, store: Store) -> Generator[Package]:
    """What an outline is an outline of, with hollow files for its weights, within the block; any other
    package as it is.
    """
    said = outlined(package)
    if said is None:
        yield package
        return
    with laid_out(package, said, store) as outline:
        yield replace(package, files=outline.files, manifest=outline.manifest)


def hollow_files(
    new: Transaction, layers: Sequence[Layer], fronts: Mapping[str, bytes]
) -> tuple[dict[str, Path], dict[Path, Digest]]:
    """Hollow files for these, by the package's paths, and which blobs they stand for; gone with `new`."""
    files: dict[str, Path] = {}
    stands: dict[Path, Digest] = {}
    for layer in layers:
        path = new.own_path(".safetensors")
        write_hollow(path, fronts[layer.path], layer.blob.size_bytes)
        files[layer.path], stands[path] = path, layer.blob.digest
    return files, stands


def without_weights(outline: Outline, label: str) -> LoadError:
    """What is said where one process is to run it."""
    return LoadError(
        f"{label} is an outline: the weights are not here",
        hint="Run it on several machines, or with --ranks N; "
        f"`modelkit pull {outline.address}` has all of it here.",
    )


def is_outline_of(store: Store, name: str, digest: Digest) -> bool:
    """Does the name stand for an outline of that package?"""
    with suppress(ModelkitError):
        said = outlined(store.resolve(name))
        return said is not None and said.package == digest
    return False


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
        raise StoreError(f"a header of {len(front):,} bytes came for a file of {size_bytes:,}")
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
