"""What a name or a path stands for, opened for running: files, settings, and the weights to read.

A stored package and a plain model directory look the same from here on. Headers of all weight files are
checked before MLX sees them, and a package's blobs are held so that no `prune` takes them away while they are
read.
"""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelkit.chat.find import find_template
from modelkit.chat.template import ChatTemplate
from modelkit.errors import InvalidName, LoadError, ModelNotFound, ParameterError
from modelkit.modelfile import Parameters, Resolved, looks_like_path
from modelkit.pack.checks import check_requires
from modelkit.pack.metadata import FILE as METADATA
from modelkit.pack.metadata import Metadata, read_metadata
from modelkit.pack.sources import DRAFT_FOLDER
from modelkit.settings import Settings
from modelkit.source.inventory import Inventory, read_inventory
from modelkit.source.tree import Files, read_directory, subtree
from modelkit.store.store import Store
from modelkit.tokenizer import Tokenizer
from runtime import device
from runtime.cache.layout import sequence_bytes
from runtime.engine.engine import Engine
from runtime.engine.options import Options
from runtime.errors import TooLarge, UnsupportedModel, WeightMismatch
from runtime.loaded import LoadedModel, load_model
from runtime.models import Described, describe
from runtime.speculate.assistant import assistant_problem, is_assistant
from runtime.speculate.drafter import Drafter
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
    user.
    """

    label: str
    inventory: Inventory
    draft: Inventory | None
    metadata: Metadata
    parameters: Parameters
    context_length: int
    notes: tuple[str, ...]


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
            yield _open(package.files, str(package.name))
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


def _open(files: Files, label: str) -> Opened:
    target = {path: real for path, real in files.items() if "/" not in path and path != METADATA}
    inventory = read_inventory(target, label)
    metadata = read_metadata(files.get(METADATA), label)
    if metadata.requires:
        check_requires(metadata.requires)
    try:
        described = describe(inventory.config)
    except UnsupportedModel as fault:
        raise LoadError(f"{label} cannot be run: {fault}") from fault
    if is_assistant(described):
        raise LoadError(
            f"{label} is a draft that only runs inside its target", hint="Name it by DRAFT in a Modelfile."
        )
    inside = subtree(files, DRAFT_FOLDER)
    draft = read_inventory(inside, f"{label}/{DRAFT_FOLDER}") if inside else None
    if draft is not None:
        _check_pair(label, draft, described)
    authors, notes = read_generation_config(inventory.generation_config or {})
    return Opened(
        label=label,
        inventory=inventory,
        draft=draft,
        metadata=metadata,
        parameters=authors.merge(metadata.parameters),
        context_length=described.context_length,
        notes=notes,
    )


def _check_pair(label: str, draft: Inventory, target: Described) -> None:
    """Raise LoadError for a draft that cannot be run, or not with this target."""
    try:
        described = describe(draft.config)
    except UnsupportedModel as fault:
        raise LoadError(f"the draft of {label} cannot be run: {fault}") from fault
    problem = assistant_problem(described, target) if is_assistant(described) else None
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


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes: weights and draft as they are held, layer memory of one sequence of the whole context, and what
    was free for it when the weights were loaded (0: unknown).
    """

    weight_bytes: int
    draft_bytes: int
    cache_bytes: int
    available_bytes: int


@dataclass(frozen=True, slots=True)
class Started:
    """A running engine, and the limits that were found on the way."""

    engine: Engine
    context_length: int
    memory: Memory
    notes: tuple[str, ...]


def start_engine(opened: Opened, wanted: Resolved, cache_memory_bytes: int | None = None) -> Started:
    """Load the weights and start. Raises LoadError for a model that does not fit its config or the memory.

    cache_memory_bytes: for what is kept of earlier prompts; None takes an eighth of what is free, 0 keeps
    nothing.
    """
    context, notes = _context(opened, wanted)
    kept = device.device().available_bytes // 8 if cache_memory_bytes is None else cache_memory_bytes
    options = Options(context_length=context, budget_tokens=wanted.num_batch, prefix_bytes=kept or None)
    draft_bytes, guesses = 0, wanted.draft_num_predict != 0

    def weights() -> LoadedModel:
        device.bind_blas()
        if wanted.num_thread:
            device.set_threads(wanted.num_thread)
        return _load(opened.inventory, with_head=guesses and opened.draft is None)

    def drafters(target: LoadedModel) -> dict[str, Drafter]:
        nonlocal draft_bytes
        if not guesses:
            return {}
        draft = None if opened.draft is None else _load(opened.draft)
        own = draft or target.head
        draft_bytes = own.weight_bytes if own else 0
        return standing_drafters(target, draft, lambda: engine._memory)  # pyright: ignore[reportPrivateUsage] -- drafters read it on the engine's thread, where it lives

    try:
        engine = Engine(weights, options, drafters)
    except (UnsupportedModel, WeightMismatch) as fault:
        raise LoadError(f"{opened.label} cannot be loaded: {fault}") from fault
    except TooLarge as fault:
        raise LoadError(f"{opened.label} does not fit: {fault}", hint=_SMALLER) from fault
    notes += engine.model.notes
    blas = device.report()
    if wanted.num_thread and not blas.bound:
        notes += (f"num_thread has no effect here: {blas.reason or 'MLX brings its own threads'}",)
    model, free = engine.model, device.device().available_bytes
    cache = sequence_bytes(model.described.layout, context, model.dtype.size)
    memory = Memory(model.weight_bytes, draft_bytes, cache, free)
    if cache > free > 0:
        notes = (*notes, _too_long(opened.label, context, cache, free))
    return Started(engine, context, memory, notes)


_SMALLER = "Create it with --quantize q4 (or fewer bits), or take a smaller model."


def _context(opened: Opened, wanted: Resolved) -> tuple[int, tuple[str, ...]]:
    if wanted.num_ctx is None:
        return opened.context_length, ()
    if wanted.num_ctx <= opened.context_length:
        return wanted.num_ctx, ()
    longest = opened.context_length
    return longest, (f"num_ctx {wanted.num_ctx} is more than the model's {longest}; it runs with {longest}",)


def _too_long(label: str, context: int, cache_bytes: int, free_bytes: int) -> str:
    fits = max(int(context * free_bytes / cache_bytes), 1)
    return (
        f"a sequence of {label}'s whole context ({context} tokens) would take {cache_bytes:,} bytes and "
        f"{free_bytes:,} are free; about {fits} tokens fit (num_ctx)"
    )


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
