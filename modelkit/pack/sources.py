"""What FROM and DRAFT point at, opened: a folder, one .safetensors file, or a stored package.

A source is judged by headers alone. A package brings more than a model: its recipe (modelkit.json) and
perhaps a draft, which the new package inherits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from modelkit.elsewhere import where_to_get
from modelkit.errors import InvalidName, ModelNotFound
from modelkit.modelfile import Reference
from modelkit.pack.metadata import FILE as METADATA
from modelkit.pack.metadata import Metadata, read_metadata
from modelkit.source.inventory import Inventory, read_inventory
from modelkit.source.prequantized import SourceKind, recognise
from modelkit.source.tree import Files, read_directory, read_single_file, subtree
from modelkit.store.digest import Digest
from modelkit.store.package import Package
from modelkit.store.store import Store

DRAFT_FOLDER = "draft"


@dataclass(frozen=True, slots=True)
class Source:
    """One model to import."""

    inventory: Inventory
    kind: SourceKind
    known: Mapping[Path, Digest]
    """The digests of files that are blobs already."""
    notes: tuple[str, ...] = ()
    """What was decided beside its config.json (`tying`), for the user."""


@dataclass(frozen=True, slots=True)
class Origin:
    """All that a reference brings."""

    source: Source
    """The model."""
    metadata: Metadata
    """The recipe that it was packaged with."""
    draft: Source | None
    """The one beside it, if any."""


def open_origin(reference: Reference, store: Store) -> Origin:
    """Open what a Modelfile's FROM or DRAFT names. Raises SourceError, ModelNotFound, StoreError."""
    if reference.path is None:
        return _open_package(_resolve(reference, store))
    path = reference.path
    files = read_directory(path) if path.is_dir() else read_single_file(path)
    return Origin(open_source(files, str(path), {}), Metadata(), None)


def _resolve(reference: Reference, store: Store) -> Package:
    try:
        return store.resolve(reference.text)
    except (ModelNotFound, InvalidName) as error:
        elsewhere = where_to_get(reference.text)
        if elsewhere is None and isinstance(error, InvalidName):
            raise
        raise ModelNotFound(
            f"there is no file, folder or stored model {reference.text!r:.200}",
            hint=elsewhere or error.hint,
        ) from error


def _open_package(package: Package) -> Origin:
    label = str(package.name)
    known = {package.files[layer.path]: layer.blob.digest for layer in package.manifest.layers}
    metadata = read_metadata(package.files.get(METADATA), label)
    target = {name: path for name, path in package.files.items() if "/" not in name and name != METADATA}
    inside = subtree(package.files, DRAFT_FOLDER)
    draft = open_source(inside, f"{label}/{DRAFT_FOLDER}", known) if inside else None
    return Origin(open_source(target, label, known), metadata, draft)


def open_source(files: Files, label: str, known: Mapping[Path, Digest]) -> Source:
    """One model. `label` is how messages call it."""
    inventory = read_inventory(files, label)
    return Source(inventory, recognise(inventory), known)
