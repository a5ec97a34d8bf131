"""What a name or a path stands for, opened for running: files, settings, and the weights to read.

A stored package and a plain model directory look the same from here on. Headers of all weight files are
checked before MLX sees them, and a package's blobs are held so that no `prune` takes them away while they are
read.
"""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from modelkit.elsewhere import where_to_get
from modelkit.errors import InvalidName, LoadError, ModelNotFound, PlanError
from modelkit.learned import Learning, setting_of
from modelkit.memory import Memory, forecast, shortage
from modelkit.modelfile import Resolved, looks_like_path
from modelkit.pack.accept import decide, refuse_unconverted
from modelkit.pack.checks import check_parts, check_requires
from modelkit.pack.conversion import Part
from modelkit.pack.metadata import FILE as METADATA
from modelkit.pack.metadata import Metadata, read_metadata
from modelkit.pack.ready import Ready, kept_format, make_ready
from modelkit.pack.sources import DRAFT_FOLDER, open_source
from modelkit.pack.worded import worded
from modelkit.prefixes import keeping, model_digest
from modelkit.settings import Settings
from modelkit.source.inventory import Inventory
from modelkit.source.tree import Files, read_directory, subtree
from modelkit.store.store import Store
from runtime import cpu, device
from runtime.cache.build import LayerMemory
from runtime.engine.engine import Engine
from runtime.engine.options import Options
from runtime.errors import TooLarge, UnsupportedModel, WeightMismatch
from runtime.loaded import LoadedModel, load_model
from runtime.models import describe
from runtime.speculate.drafter import Drafter
from runtime.speculate.standing import standing_drafters


@dataclass(frozen=True, slots=True)
class Opened:
    """A model about to be loaded. `notes` are for the user. digest: what names its layer memory on disk, and
    package: the digest of its manifest; None for a folder.
    """

    label: str
    inventory: Inventory
    draft: Inventory | None
    metadata: Metadata
    ready: Ready
    context_length: int
    notes: tuple[str, ...]
    digest: str | None = None
    package: str | None = None


@contextmanager
def open_model(name: str | os.PathLike[str], settings: Settings) -> Generator[Opened]:
    """Open a stored model by name or a model directory by path. Raises ModelNotFound, SourceError,
    LoadError.
    """
    text = os.fspath(name)
    if not isinstance(name, str) or looks_like_path(text):
        with _refusing():
            opened = _open(_read_tree(Path(text)), text)
        yield opened
        return
    try:
        with Store(settings.home).hold(text) as package:
            with _refusing():
                opened = _open(package.files, str(package.name), model_digest(package))
            yield replace(opened, package=str(package.digest))
    except (ModelNotFound, InvalidName) as error:
        if Path(text, "config.json").is_file():
            raise ModelNotFound(
                error.message, hint=f"For the directory of that name, write ./{text}"
            ) from error
        elsewhere = where_to_get(text)
        if elsewhere is None:
            raise
        raise ModelNotFound(f"there is no stored model {text!r:.200}", hint=elsewhere) from error


@contextmanager
def _refusing() -> Generator[None]:
    """What `create` would refuse, refused as what cannot be loaded, in the same words."""
    try:
        with worded():
            yield
    except PlanError as error:
        raise LoadError(error.message, hint=error.hint) from error


def _read_tree(folder: Path) -> Files:
    """A model directory, and the draft in it if it is an exported package."""
    files = dict(read_directory(folder))
    if METADATA in files and (folder / DRAFT_FOLDER).is_dir():
        inside = read_directory(folder / DRAFT_FOLDER)
        files |= {f"{DRAFT_FOLDER}/{name}": path for name, path in inside.items()}
    return files


def _open(files: Files, label: str, digest: str | None = None) -> Opened:
    metadata = read_metadata(files.get(METADATA), label)
    if metadata.requires:
        check_requires(metadata.requires)
    settled = digest is not None and metadata.provenance is not None
    target, draft = _parts(files, label, settled=settled)
    tokenizer, _ = check_parts(target, draft, settled=settled)
    described = describe(target.source.inventory.config)
    ready = make_ready(target.source.inventory, described, tokenizer, metadata.parameters)
    return Opened(
        label=label,
        inventory=target.source.inventory,
        draft=draft.source.inventory if draft else None,
        metadata=metadata,
        ready=ready,
        context_length=described.context_length,
        notes=(*target.source.notes, *described.notes, *ready.notes),
        digest=digest,
    )


def _parts(files: Files, label: str, *, settled: bool) -> tuple[Part, Part | None]:
    """Target and draft, decided as `create` would decide. settled: `create` did."""
    own = {path: real for path, real in files.items() if "/" not in path and path != METADATA}
    target = decide(open_source(own, label, {}), "target", settled=settled)
    inside = subtree(files, DRAFT_FOLDER)
    draft = open_source(inside, f"{label}/{DRAFT_FOLDER}", {}) if inside else None
    parts = target, decide(draft, "draft", settled=settled) if draft else None
    for part in parts:
        if part:
            refuse_unconverted(part)
    return parts


@dataclass(frozen=True, slots=True)
class Started:
    """A running engine, and the limits that were found on the way. kv_format: as in Options. learning: where
    what it learns about drafts is kept; None for nowhere.
    """

    engine: Engine
    context_length: int
    memory: Memory
    notes: tuple[str, ...]
    kv_format: str | None
    learning: Learning | None = None


def start_engine(
    opened: Opened,
    wanted: Resolved,
    settings: Settings,
    on_memory: Callable[[Memory, str | None], None] | None = None,
) -> Started:
    """Load the weights and start. Raises LoadError for a model that does not fit its config or the memory.

    on_memory: called before anything is loaded with what it will take, and a sentence where that is more than
    there is.
    """
    context, notes = _context(opened, wanted)
    draft_bytes, guesses = 0, wanted.draft_num_predict != 0
    layout = describe(opened.inventory.config).layout
    kv_format, more = kept_format(opened.label, layout, wanted.kv_format)
    free = device.device().available_bytes
    with _loading(opened):
        foreseen = forecast(opened.inventory, opened.draft, drafts=guesses, kv_format=kv_format)
    left = free - foreseen.weight_bytes - foreseen.draft_bytes
    kept = keeping(settings, opened.label, opened.digest, left)
    memory = foreseen.memory(context, kept.memory_bytes or 0, free)
    short = shortage(opened.label, foreseen, context, memory)
    if on_memory is not None:
        on_memory(memory, short)
    notes += (*more, *kept.notes, *((short,) if short else ()))
    options = Options(
        context_length=context,
        budget_tokens=wanted.num_batch,
        prefix_bytes=kept.memory_bytes,
        prefix_folder=kept.folder,
        kv_format=kv_format,
        threads=wanted.num_thread or None,
    )

    def weights() -> LoadedModel:
        cpu.bind_blas()
        return _load(opened.inventory, with_head=guesses and opened.draft is None)

    def drafters(target: LoadedModel, memory: LayerMemory) -> dict[str, Drafter]:
        nonlocal draft_bytes
        if not guesses:
            return {}
        draft = None if opened.draft is None else _load(opened.draft)
        own = draft or target.head
        draft_bytes = own.weight_bytes if own else 0
        return standing_drafters(target, draft, memory)

    learning = None
    if guesses and opened.package is not None:
        learning = Learning(settings.home, opened.package, setting_of(wanted.num_thread, kv_format))
    with _loading(opened):
        engine = Engine(weights, options, drafters, learning.recall() if learning else None)
    device.give_back()  # packed weights that were expanded have left as much behind
    notes += engine.model.notes
    blas = cpu.report()
    if wanted.num_thread and not blas.bound:
        notes += (f"num_thread has no effect here: {blas.reason or 'MLX brings its own threads'}",)
    held = replace(memory, weight_bytes=engine.model.weight_bytes, draft_bytes=draft_bytes)
    return Started(engine, context, held, notes, kv_format, learning)


_SMALLER = "Create it with --quantize q4 (or fewer bits), or take a smaller model."


@contextmanager
def _loading(opened: Opened) -> Generator[None]:
    """Errors of the floor below, in the words of this one."""
    try:
        yield
    except (UnsupportedModel, WeightMismatch) as fault:
        raise LoadError(f"{opened.label} cannot be loaded: {fault}") from fault
    except TooLarge as fault:
        raise LoadError(f"{opened.label} does not fit: {fault}", hint=_SMALLER) from fault


def _context(opened: Opened, wanted: Resolved) -> tuple[int, tuple[str, ...]]:
    if wanted.num_ctx is None:
        return opened.context_length, ()
    if wanted.num_ctx <= opened.context_length:
        return wanted.num_ctx, ()
    longest = opened.context_length
    return longest, (f"num_ctx {wanted.num_ctx} is more than the model's {longest}; it runs with {longest}",)


def _load(inventory: Inventory, *, with_head: bool = False) -> LoadedModel:
    shards = [shard.path for shard in inventory.weights]
    return load_model(inventory.config, shards, on=device.device(), with_head=with_head)
