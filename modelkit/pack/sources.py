"""What FROM and DRAFT point at, opened: a folder, one file of weights, a stored package, or a model that is
fetched first.

A source is judged by headers alone. A package brings more than a model: its recipe (modelkit.json) and
perhaps a draft, which the new package inherits.
"""

from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path

from modelkit.address import RegistryAddress
from modelkit.errors import FetchError, InvalidName, ModelNotFound, UnsupportedSource
from modelkit.fetch.access import Access
from modelkit.fetch.find import find_local, obtain, what_to_do
from modelkit.fetch.local import Local
from modelkit.fetch.upstream import Upstream
from modelkit.modelfile import Directive, Reference
from modelkit.pack.adapters.stored import CONFIG, StoredAdapter, read_stored
from modelkit.pack.adapters.stored import FOLDER as ADAPTERS
from modelkit.pack.metadata import DRAFT_FOLDER, Metadata, read_metadata
from modelkit.pack.metadata import FILE as METADATA
from modelkit.pack.ollama_template import with_needed_template
from modelkit.source.companion_files import TEMPLATE, TOKENIZER, documents_in, is_document, kept_of
from modelkit.source.gguf.folder import gguf_in, is_beside, is_gguf, is_gguf_file
from modelkit.source.gguf.lone_head import HeadAlone
from modelkit.source.inventory import Inventory, read_inventory
from modelkit.source.prequantized import CodeWeights, SourceKind, recognise
from modelkit.source.tree import Files, is_own, read_directory, read_single_file, subtree
from modelkit.store.digest import Digest
from modelkit.store.name import Name
from modelkit.store.outline import refuse_outline
from modelkit.store.package import Package
from modelkit.store.store import Store
from runtime.quoting import MOST_OF_A_PATH, quoted, shown
from runtime.records import dataclass

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Source:
    """One model to import."""

    inventory: Inventory
    kind: SourceKind
    known: Mapping[Path, Digest]
    """The digests of files that are blobs already."""
    notes: tuple[str, ...] = ()
    """What was decided beside its config.json (`tying`), and of a GGUF file what it has that is not run or
    read otherwise: for the user.
    """
    promised: Mapping[Path, Digest] = field(default_factory=dict[Path, Digest])
    """The digests that files outside the store must turn out to have when they are read."""
    upstream: Upstream | None = None
    """Where it was fetched from."""
    hollow: bool = False
    """Are its weights there by their headers alone? Then it can be planned with and no more."""

    def expected(self, path: Path) -> Digest | None:
        """The digest that one of its files must have, where that is known before it is read."""
        return self.known.get(path) or self.promised.get(path)


@dataclass(frozen=True, slots=True)
class Origin:
    """All that a reference brings."""

    source: Source
    """The model."""
    metadata: Metadata
    """The recipe that it was packaged with."""
    draft: Source | None
    """The one beside it, if any."""
    said: tuple[Directive, ...] = ()
    """What was packaged with it elsewhere, as lines under those of the Modelfile."""
    beside: tuple[Local, ...] = ()
    """Adapters that were packaged with it elsewhere."""
    adapters: Mapping[str, StoredAdapter] = field(default_factory=dict[str, StoredAdapter])
    """Those beside it, by name."""


def open_origin(reference: Reference, store: Store, access: Access, *, with_draft: bool = True) -> Origin:
    """Open what a Modelfile's FROM or DRAFT names; an address is fetched, as far as `access` allows.
    with_draft: is the draft of a package looked at, too?

    Raises SourceError, ModelNotFound, StoreError, FetchError.
    """
    if reference.path is not None:
        return _open_path(reference.path)
    if reference.address is not None and reference.address in access.here:
        return _open_local(access.here[reference.address])
    if isinstance(reference.address, RegistryAddress):
        return open_package(store.resolve(_pulled(reference.address, access)), with_draft=with_draft)
    if reference.address is not None:
        return _open_local(obtain(reference.address, access))
    try:
        return open_package(store.resolve(reference.text), with_draft=with_draft)
    except (ModelNotFound, InvalidName) as error:
        here = find_local(reference.text)
        if here is not None:
            return _open_local(here)
        hint = what_to_do(reference.text, error)
        if hint == error.hint and isinstance(error, InvalidName):
            raise
        raise ModelNotFound(
            f"there is no file, folder or stored model {quoted(reference.text, MOST_OF_A_PATH)}", hint=hint
        ) from error


def _pulled(address: RegistryAddress, access: Access) -> Name:
    """Packages are not fetched here, as that makes packages of some: see `pulling.bring`."""
    name = access.packages.get(address)
    if name is None:
        raise FetchError(
            f"{address} is a package in a registry, and is not in the store",
            hint=f"Fetch it first: modelkit pull {address}",
        )
    return name


def _open_path(path: Path) -> Origin:
    """A folder, or one file of weights; a .safetensors file with what lies beside it."""
    gguf = gguf_at(path, str(path))
    if gguf is not None:
        return Origin(gguf, Metadata(), None)
    files = read_directory(path) if path.is_dir() else read_single_file(path)
    source = open_source(files, str(path), {})
    return Origin(replace(source, notes=(*_left_inside(path, files), *source.notes)), Metadata(), None)


def _left_inside(path: Path, files: Files) -> tuple[str, ...]:
    """A note on what else there is in a folder that a package was exported to."""
    if METADATA not in files:
        return ()
    adapters = sorted(shown(one.parent.name) for one in path.glob(f"{ADAPTERS}/*/{CONFIG}"))
    listed = ", ".join(adapters[:_SHOWN]) + (", ..." if len(adapters) > _SHOWN else "")
    found = [f"its adapters ({listed})"] if adapters else []
    found += ["its draft"] if (path / DRAFT_FOLDER).is_dir() else []
    if not found:
        return ()
    return (f"not kept: {' and '.join(found)}, which come with the package where FROM has its name",)


def gguf_at(path: Path, label: str) -> Source | None:
    """The GGUF model that a path stands for: that of the file, or the only one in the folder, with documents
    beside it; None for other sources. Raises SourceError for a folder with several, or one that cannot be
    read.
    """
    if is_gguf_file(path):
        return open_gguf(path, label)
    files = read_directory(path) if path.is_dir() else {}
    gguf = gguf_in(files, path)
    if gguf is None:
        return None
    source, others = open_gguf(gguf, label), [name for name in kept_of(files) if not is_document(name)]
    if others:
        note = f"not kept: {', '.join(map(shown, others))} (the GGUF file says what they would say)"
        source = replace(source, notes=(note, *source.notes))
    beside = [shown(name) for name in files if is_gguf(name) and is_beside(name)]
    if beside:
        note = f"not kept: {', '.join(beside)} (beside the model; ADAPTER takes an adapter, DRAFT a draft)"
        source = replace(source, notes=(note, *source.notes))
    return _with_files(source, documents_in(files, label))


def open_gguf(path: Path, label: str) -> Source:
    """The model of a GGUF file. Raises SourceError."""
    from modelkit.source.gguf.checkpoint import read_checkpoint

    inventory, weights = read_checkpoint(path, label)
    return Source(inventory, weights, {}, weights.notes)


def with_head(origin: Origin, head: HeadAlone) -> Origin:
    """A model of a GGUF file, with the draft head that lies in a file of its own. Raises SourceError."""
    from modelkit.source.gguf.checkpoint import GgufWeights, read_checkpoint

    source = origin.source
    if not isinstance(source.kind, GgufWeights):
        raise UnsupportedSource(
            f"{head.path} is only a draft head; {source.inventory.origin} is not a GGUF file of its model",
            hint="FROM has to name the GGUF file of its model.",
        )
    read, weights = read_checkpoint(source.inventory.weights[0].path, source.inventory.origin, head.path)
    files = {**source.inventory.files, **read.files}
    notes = *(note for note in source.notes if note not in source.kind.notes), *weights.notes
    joined = replace(source, inventory=replace(read, files=files), kind=weights, notes=notes)
    return replace(origin, source=joined)


def _open_local(local: Local) -> Origin:
    """What was fetched, or lies in another program's folder."""
    if local.gguf is None:
        opened = open_source(local.files, local.label, {})
    else:  # which may have any name
        try:
            beside = documents_in(local.files, local.label)
            template = {name: path for name, path in local.files.items() if name == TEMPLATE}
            opened = _with_files(open_gguf(local.gguf, local.label), {**beside, **template})
        except HeadAlone as head:
            head.upstream = local.upstream
            raise
    said, left_out = with_needed_template(local.directives, opened.inventory.files)
    source = replace(
        opened,
        notes=(*local.notes, *left_out, *opened.notes),
        promised=local.promised,
        upstream=local.upstream,
        hollow=local.hollow,
    )
    return Origin(source, Metadata(), None, said=said, beside=local.adapters)


def _with_files(source: Source, files: Files) -> Source:
    """With what belongs to a GGUF file and lies beside it."""
    kept = {**source.inventory.files, **files}
    return replace(source, inventory=replace(source.inventory, files=kept))


def open_package(package: Package, *, with_draft: bool = True) -> Origin:
    """A stored package, with its recipe and its draft. Raises StoreError for an outline."""
    refuse_outline(package, "read")
    known = {package.files[layer.path]: layer.blob.digest for layer in package.manifest.layers}
    return open_files(package.files, str(package.name), known, with_draft=with_draft)


def open_files(files: Files, label: str, known: Mapping[Path, Digest], *, with_draft: bool = True) -> Origin:
    """Those of a package. known: the digests of blobs."""
    metadata = read_metadata(files.get(METADATA), label)
    target = {name: path for name, path in files.items() if is_own(name) and name != METADATA}
    inside = subtree(files, DRAFT_FOLDER) if with_draft else {}
    draft = open_source(inside, f"{label}/{DRAFT_FOLDER}", known) if inside else None
    adapters = read_stored(files, label)
    return Origin(open_source(target, label, known), metadata, draft, adapters=adapters)


def open_source(files: Files, label: str, known: Mapping[Path, Digest]) -> Source:
    """One model. `label` is how messages call it."""
    inventory, notes = read_inventory(files, label), tuple[str, ...]()
    if TOKENIZER not in inventory.files:
        from modelkit.source.vocabularies.tokenizer_file import with_tokenizer  # every kind that there is

        inventory, notes = with_tokenizer(inventory)
    kind = recognise(inventory)
    if isinstance(kind, CodeWeights):
        inventory = kind.as_floats(inventory)
    return Source(inventory, kind, known, notes)
