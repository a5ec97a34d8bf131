"""What a name or a path stands for, opened for running: files, settings, and the weights to read.

A stored package and a plain model directory look the same from here on. Headers of all weight files are
checked before MLX sees them, and a package's blobs are held so that no `prune` takes them away while they are
read.
"""

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from modelkit.chat.find import find_template
from modelkit.chat.template import ChatTemplate
from modelkit.errors import InvalidName, LoadError, ModelNotFound, ParameterError
from modelkit.learned import Learning, setting_of
from modelkit.memory import Memory, forecast, kept_format, shortage
from modelkit.modelfile import Parameters, Resolved, looks_like_path
from modelkit.pack.checks import check_requires
from modelkit.pack.metadata import FILE as METADATA
from modelkit.pack.metadata import Metadata, read_metadata
from modelkit.pack.sources import DRAFT_FOLDER
from modelkit.prefixes import keeping, model_digest
from modelkit.settings import Settings
from modelkit.source.inventory import Inventory, read_inventory
from modelkit.source.tree import Files, read_directory, subtree
from modelkit.store.store import Store
from modelkit.tokenizer import Tokenizer
from runtime import device
from runtime.cache.build import LayerMemory
from runtime.engine.engine import Engine
from runtime.engine.options import Options
from runtime.errors import TooLarge, UnsupportedModel, WeightMismatch
from runtime.loaded import LoadedModel, load_model
from runtime.models import Described, describe
from runtime.speculate.drafter import Drafter
from runtime.speculate.pair import pair_problem, runs_inside
from runtime.speculate.standing import standing_drafters

# Sampling settings that authors ship in generation_config.json, and what they are called here.
_GENERATION_CONFIG = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "repetition_penalty": "repeat_penalty",
}


@dataclass(frozen=True, slots=True)
class Opened:
    """A model about to be loaded. `parameters` are the author's and the package's; `notes` are for the
    user. digest: what names its layer memory on disk, and package: the digest of its manifest; None for a
    folder. suppressed: ids that are never drawn.
    """

    label: str
    inventory: Inventory
    draft: Inventory | None
    metadata: Metadata
    parameters: Parameters
    context_length: int
    notes: tuple[str, ...]
    digest: str | None = None
    package: str | None = None
    suppressed: tuple[int, ...] = ()


@contextmanager
def open_model(name: str | os.PathLike[str], settings: Settings) -> Generator[Opened]:
    """Open a stored model by name or a model directory by path. Raises ModelNotFound, SourceError,
    LoadError.
    """
    text = os.fspath(name)
    if not isinstance(name, str) or looks_like_path(text):
        yield _open(_read_tree(Path(text)), text)
        return
    try:
        with Store(settings.home).hold(text) as package:
            opened = _open(package.files, str(package.name), model_digest(package))
            yield replace(opened, package=str(package.digest))
    except (ModelNotFound, InvalidName) as error:
        if Path(text, "config.json").is_file():
            raise ModelNotFound(
                error.message, hint=f"For the directory of that name, write ./{text}"
            ) from error
        raise


def _read_tree(folder: Path) -> Files:
    """A model directory, and the draft in it if it is an exported package."""
    files = dict(read_directory(folder))
    if METADATA in files and (folder / DRAFT_FOLDER).is_dir():
        inside = read_directory(folder / DRAFT_FOLDER)
        files |= {f"{DRAFT_FOLDER}/{name}": path for name, path in inside.items()}
    return files


def _open(files: Files, label: str, digest: str | None = None) -> Opened:
    target = {path: real for path, real in files.items() if "/" not in path and path != METADATA}
    inventory = read_inventory(target, label)
    metadata = read_metadata(files.get(METADATA), label)
    if metadata.requires:
        check_requires(metadata.requires)
    try:
        described = describe(inventory.config)
    except UnsupportedModel as fault:
        raise LoadError(f"{label} cannot be run: {fault}") from fault
    if runs_inside(described):
        raise LoadError(
            f"{label} is a draft that only runs inside its target", hint="Name it by DRAFT in a Modelfile."
        )
    inside = subtree(files, DRAFT_FOLDER)
    draft = read_inventory(inside, f"{label}/{DRAFT_FOLDER}") if inside else None
    if draft is not None:
        _check_pair(label, draft, described)
    authors, notes = read_generation_config(inventory.generation_config or {})
    suppressed, more = read_suppressed(inventory.generation_config or {}, described.vocab_size)
    return Opened(
        label=label,
        inventory=inventory,
        draft=draft,
        metadata=metadata,
        parameters=authors.merge(metadata.parameters),
        context_length=described.context_length,
        notes=described.notes + notes + more,
        digest=digest,
        suppressed=suppressed,
    )


def _check_pair(label: str, draft: Inventory, target: Described) -> None:
    """Raise LoadError for a draft that cannot be run, or not with this target."""
    try:
        described = describe(draft.config)
    except UnsupportedModel as fault:
        raise LoadError(f"the draft of {label} cannot be run: {fault}") from fault
    problem = pair_problem(described, target)
    if problem is not None:
        raise LoadError(f"the draft of {label} does not fit it: {problem}")


def read_generation_config(config: Mapping[str, Any]) -> tuple[Parameters, tuple[str, ...]]:
    """The sampling that the model's authors recommend, and a note for each value that cannot be used.

    `do_sample: false` means greedy. A repetition penalty acts on the whole context there, so it does here.
    """
    values: dict[str, object] = {}
    notes: list[str] = []
    for theirs, ours in _GENERATION_CONFIG.items():
        value = config.get(theirs)
        if value is None:
            continue
        try:
            values[ours] = Parameters({ours: value})[ours]
        except ParameterError as error:
            notes.append(f"generation_config.json: {error.message}; the default is used")
    if config.get("do_sample") is False:
        values["temperature"] = 0.0
    if values.get("repeat_penalty", 1.0) != 1.0:
        values["repeat_last_n"] = -1
    return Parameters(values), tuple(notes)


def read_suppressed(config: Mapping[str, Any], vocab_size: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The ids that the model's authors never want drawn, and a note for what cannot be used."""
    notes: list[str] = []
    named = config.get("suppress_tokens")
    ids: list[Any] = [] if named is None else named if isinstance(named, list) else [named]
    known = [one for one in ids if type(one) is int and 0 <= one < vocab_size]
    if len(known) < len(ids):
        other = next(one for one in ids if not (type(one) is int and 0 <= one < vocab_size))
        notes.append(
            f"generation_config.json: suppress_tokens has {str(other)[:40]}, expected ids "
            f"below {vocab_size}; it is left out"
        )
    if len(set(known)) == vocab_size:
        known = []
        notes.append("generation_config.json: suppress_tokens has every id there is; none is suppressed")
    if config.get("begin_suppress_tokens"):
        notes.append("generation_config.json: begin_suppress_tokens is not applied")
    return tuple(sorted(set(known))), tuple(notes)


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
    )

    def weights() -> LoadedModel:
        device.bind_blas()
        if wanted.num_thread:
            device.set_threads(wanted.num_thread)
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
    blas = device.report()
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


def template_of(files: Mapping[str, Path], tokenizer: Tokenizer) -> ChatTemplate | None:
    source = find_template(files)
    if source is None:
        return None
    special = tokenizer.specials
    return ChatTemplate(
        source,
        bos_token=special.bos,
        eos_token=special.eos,
        unk_token=special.unk,
        pad_token=special.pad,
    )
