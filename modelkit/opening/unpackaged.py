"""Models that `create` has not made a package of: a folder, a file, a package of another tool.

What it would decide is decided whenever one of them is opened: the same config, the same tensors, or the same
refusal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from modelkit.fetch.local import Local
from modelkit.opening.opened import Opened, opened, recipe_of, target_files, with_notes
from modelkit.pack.accept import decide, refuse_unconverted
from modelkit.pack.adapters.package_adapters import Carried, carried
from modelkit.pack.adapters.stored import FOLDER as ADAPTERS
from modelkit.pack.adapters.stored import StoredAdapter, read_stored
from modelkit.pack.checks import check_parts
from modelkit.pack.metadata import DRAFT_FOLDER, Metadata
from modelkit.pack.metadata import FILE as METADATA
from modelkit.pack.part import Part
from modelkit.pack.sources import gguf_at, open_source
from modelkit.source.inventory import Inventory
from modelkit.source.tensor import TensorInfo
from modelkit.source.tree import Files, read_directory, read_single_file, subtree


def open_path(path: Path, label: str, more: Sequence[Path]) -> Opened:
    """A folder, or one file of weights. more: adapters. Raises SourceError, PlanError."""
    gguf = gguf_at(path, label)
    if gguf is None:
        files = read_single_file(path) if path.is_file() else _read_tree(path)
        return open_files(files, label, more)
    target = decide(gguf, "target")
    return _opened(target, None, Metadata(), label, (more, {}))


def open_local(here: Local, label: str, more: Sequence[Path]) -> Opened:
    """What lies in another program's folder. Raises as `open_path` does."""
    found = open_files(here.files, label, more) if here.gguf is None else open_path(here.gguf, label, more)
    return with_notes(found, here.notes)


def open_files(files: Files, label: str, more: Sequence[Path], digest: str | None = None) -> Opened:
    """A model in files by their names. digest: of a package. Raises as `open_path` does."""
    metadata = recipe_of(files, label)
    target = decide(open_source(target_files(files), label, {}), "target")
    inside = subtree(files, DRAFT_FOLDER)
    draft = decide(open_source(inside, f"{label}/{DRAFT_FOLDER}", {}), "draft") if inside else None
    for part in (target, draft):
        if part:
            refuse_unconverted(part)
    return replace(_opened(target, draft, metadata, label, (more, read_stored(files, label))), digest=digest)


def adapters_with(files: Files, label: str, more: Sequence[Path], metadata: Metadata) -> tuple[Carried, ...]:
    """Those of a package that `create` made, and behind them those in these places. Raises SourceError,
    PlanError.
    """
    target = decide(open_source(target_files(files), label, {}), "target", settled=True)
    return carried(more, read_stored(files, label), metadata, target)


def _read_tree(folder: Path) -> Files:
    """A model directory, and the draft and adapters in it if it is an exported package."""
    files = dict(read_directory(folder))
    inside = [folder / DRAFT_FOLDER, *sorted((folder / ADAPTERS).glob("*"))] if METADATA in files else []
    for one in inside:
        if one.is_dir():
            below = one.relative_to(folder).as_posix()
            files |= {f"{below}/{name}": path for name, path in read_directory(one).items()}
    return files


def _opened(
    target: Part,
    draft: Part | None,
    metadata: Metadata,
    label: str,
    adapters: tuple[Sequence[Path], Mapping[str, StoredAdapter]],
) -> Opened:
    """adapters: places of those to be added, and those that the package has."""
    tokenizer, _ = check_parts(target, draft)
    held = carried(*adapters, metadata, target)
    found = opened(label, target.source.inventory, None, metadata, tokenizer, held)
    return replace(
        with_notes(found, target.source.notes),
        inventory=_as_loaded(target),
        draft=_as_loaded(draft) if draft else None,
        converted=target if target.as_planned else None,
        converted_draft=draft if draft and draft.as_planned else None,
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
