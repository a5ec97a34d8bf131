"""What a name or a path stands for: files and settings of a model to run, nothing loaded yet.

A stored package and a plain model directory look the same from here on. Headers of all weight files are
checked before MLX sees them, and a package's blobs are held so that no `prune` takes them away while they are
read.
"""

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from modelkit.address import looks_like_path
from modelkit.errors import InvalidName, LoadError, ModelNotFound, PlanError
from modelkit.fetch.find import find_local, what_to_do
from modelkit.pack.accept import decide, refuse_unconverted
from modelkit.pack.adapters.carried import Carried, carried, carried_notes
from modelkit.pack.adapters.stored import FOLDER as ADAPTERS
from modelkit.pack.adapters.stored import StoredAdapter, read_stored
from modelkit.pack.checks import check_parts, check_requires
from modelkit.pack.metadata import FILE as METADATA
from modelkit.pack.metadata import Metadata, read_metadata
from modelkit.pack.part import Part
from modelkit.pack.ready import Ready, make_ready
from modelkit.pack.sources import DRAFT_FOLDER, gguf_at, open_gguf, open_source
from modelkit.pack.worded import worded
from modelkit.prefixes import model_digest
from modelkit.settings import Settings
from modelkit.source.inventory import Inventory
from modelkit.source.tensor import TensorInfo
from modelkit.source.tree import Files, is_own, read_directory, read_single_file, subtree
from modelkit.store.name import as_name
from modelkit.store.outline import outlined, refuse_outline
from modelkit.store.package import Package
from modelkit.store.store import Store
from runtime.models import describe
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.ranks.outline import Outline


@dataclass(frozen=True, slots=True)
class Opened:
    """A model about to be loaded."""

    label: str
    """What users call it: the package's name, or the path that was given."""
    inventory: Inventory
    """With the tensors that will be loaded."""
    draft: Inventory | None
    target: Part
    """What is loaded, decided as `create` decides."""
    draft_part: Part | None
    metadata: Metadata
    ready: Ready
    context_length: int
    """The most tokens that the model can follow."""
    notes: tuple[str, ...]
    """Sentences for the user."""
    digest: str | None = None
    """What names its layer memory on disk; None for a folder."""
    package: str | None = None
    """The digest of its manifest; None for a folder."""
    adapters: tuple[Carried, ...] = ()
    """What may be added to the target's weights, in the order in which they were named."""
    added: tuple[Path, ...] = ()
    """Where those of them are that are not in the package."""
    outline: "Outline | None" = None
    """Where the store has an outline: all but the weights of the target, of which headers alone are here."""


@contextmanager
def open_model(
    name: str | os.PathLike[str],
    settings: Settings,
    adapters: Sequence[Path] = (),
    *,
    outlines: bool = False,
) -> Generator[Opened]:
    """Open a stored model by name or a model directory by path. adapters: more than the package has.
    outlines: may its weights be zeros, since no number of them will be read?

    Raises ModelNotFound, SourceError, LoadError.
    """
    text = os.fspath(name)
    if not isinstance(name, str) or looks_like_path(text):
        with _refusing():
            opened = _open_path(Path(text), text, adapters)
        yield opened
        return
    try:
        with (
            Store(settings.home).hold(text) as package,
            _opened_package(package, settings, adapters, outlines=outlines) as opened,
        ):
            yield replace(opened, package=str(package.digest))
    except (ModelNotFound, InvalidName) as error:
        if Path(text, "config.json").is_file():
            raise ModelNotFound(
                error.message, hint=f"For the directory of that name, write ./{text}"
            ) from error
        here = find_local(text)
        if here is not None:
            with _refusing():
                if here.gguf is None:
                    opened = _open(here.files, text, adapters)
                else:
                    opened = _open_path(here.gguf, text, adapters)
            yield replace(opened, notes=(*here.notes, *opened.notes))
            return
        hint = what_to_do(text, error)
        if hint == error.hint:
            raise
        raise ModelNotFound(f"there is no stored model {text!r:.200}", hint=hint) from error


@contextmanager
def _opened_package(
    package: Package, settings: Settings, adapters: Sequence[Path], *, outlines: bool
) -> Generator[Opened]:
    if not outlines:
        refuse_outline(package, "run on one machine")
    said = outlined(package)
    if said is None:
        with _refusing():
            opened = _open(package.files, str(package.name), adapters, model_digest(package.manifest))
        yield opened
        return
    from modelkit.ranks.outline import laid_out

    with laid_out(package, said, Store(settings.home)) as outline:
        yield replace(open_outline(outline, str(package.name), adapters), outline=outline)


def open_outline(outline: "Outline", name: str, adapters: Sequence[Path] = ()) -> Opened:
    """Open a package that `create` has made, of whose weights the headers alone are here. Raises as
    `open_model` does.
    """
    label = str(as_name(name))
    with _refusing():
        opened = _open(outline.files, label, adapters, model_digest(outline.manifest))
    if opened.metadata.provenance is None:
        raise LoadError(f"{label} was not made by `modelkit create`, and cannot be run in slices")
    return replace(opened, package=str(outline.package))


@contextmanager
def _refusing() -> Generator[None]:
    """What `create` would refuse, refused as what cannot be loaded, in the same words."""
    try:
        with worded():
            yield
    except PlanError as error:
        raise LoadError(error.message, hint=error.hint) from error


def _open_path(path: Path, label: str, more: Sequence[Path]) -> Opened:
    gguf = gguf_at(path)
    if gguf is None:
        return _open(read_single_file(path) if path.is_file() else _read_tree(path), label, more)
    target = decide(open_gguf(gguf, label), "target")
    return _opened(target, None, Metadata(), label, (more, {}))


def _read_tree(folder: Path) -> Files:
    """A model directory, and the draft and adapters in it if it is an exported package."""
    files = dict(read_directory(folder))
    inside = [folder / DRAFT_FOLDER, *sorted((folder / ADAPTERS).glob("*"))] if METADATA in files else []
    for one in inside:
        if one.is_dir():
            below = one.relative_to(folder).as_posix()
            files |= {f"{below}/{name}": path for name, path in read_directory(one).items()}
    return files


def _open(files: Files, label: str, more: Sequence[Path], digest: str | None = None) -> Opened:
    metadata = read_metadata(files.get(METADATA), label)
    if metadata.requires:
        check_requires(metadata.requires)
    settled = digest is not None and metadata.provenance is not None
    target, draft = _parts(files, label, settled=settled)
    adapters = more, read_stored(files, label)
    return replace(_opened(target, draft, metadata, label, adapters, settled=settled), digest=digest)


def _opened(
    target: Part,
    draft: Part | None,
    metadata: Metadata,
    label: str,
    adapters: tuple[Sequence[Path], Mapping[str, StoredAdapter]],
    *,
    settled: bool = False,
) -> Opened:
    """adapters: folders of those to be added, and those that the package has."""
    tokenizer, _ = check_parts(target, draft, settled=settled)
    described = describe(target.source.inventory.config)
    ready = make_ready(target.source.inventory, described, tokenizer, metadata.parameters)
    held = carried(*adapters, metadata, target)
    return Opened(
        label=label,
        inventory=_as_loaded(target),
        draft=_as_loaded(draft) if draft else None,
        target=target,
        draft_part=draft,
        metadata=metadata,
        ready=ready,
        context_length=described.context_length,
        notes=(*target.source.notes, *ready.notes, *carried_notes(held, label)),
        adapters=held,
        added=tuple(adapters[0]),
    )


def _as_loaded(part: Part) -> Inventory:
    """The source with the tensors that are loaded: those of its package, where that has others."""
    inventory = part.source.inventory
    if not part.as_planned:
        return inventory
    path = inventory.weights[0].path
    stored = part.plan.stored().items()
    tensors = {name: TensorInfo(name, dtype, shape, path, 0, 0) for name, (dtype, shape) in stored}
    return replace(inventory, config=part.plan.config, tensors=tensors)


def _parts(files: Files, label: str, *, settled: bool) -> tuple[Part, Part | None]:
    """Target and draft, decided as `create` would decide. settled: `create` did."""
    own = {path: real for path, real in files.items() if is_own(path) and path != METADATA}
    target = decide(open_source(own, label, {}), "target", settled=settled)
    inside = subtree(files, DRAFT_FOLDER)
    draft = open_source(inside, f"{label}/{DRAFT_FOLDER}", {}) if inside else None
    parts = target, decide(draft, "draft", settled=settled) if draft else None
    for part in parts:
        if part:
            refuse_unconverted(part)
    return parts
