"""Starting an opened model: limits are settled from headers, then weights are loaded and an engine runs.

What it will take is told before anything is loaded, so that one can still stop.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx

from modelkit.errors import LoadError
from modelkit.learned import Learning, setting_of
from modelkit.memory import Memory, demand_of, forecast, shortage
from modelkit.modelfile import Resolved
from modelkit.opening.opened import Opened
from modelkit.pack.model_setup import context_of, kept_format
from modelkit.prefixes import Keeping, keeping
from modelkit.ranks.current import current_group
from modelkit.requests import attached
from modelkit.settings import Settings
from modelkit.source.inventory import Inventory
from runtime import cpu, device
from runtime.cache.memory import LayerMemory
from runtime.engine.engine import Engine
from runtime.engine.options import Options
from runtime.engine.thread import MlxThread
from runtime.errors import ProcessLimit, TooLarge, UnsupportedModel, WeightMismatch
from runtime.loaded import LoadedModel
from runtime.loading.forecast import Demand
from runtime.loading.load import Loading, begin_load
from runtime.models import describe
from runtime.nn.operations import ops
from runtime.records import dataclass
from runtime.speculate.drafter import Drafter
from runtime.speculate.pair import drafters_for

if TYPE_CHECKING:
    from modelkit.pack.part import Part
    from modelkit.ranks.agreement import Read
    from modelkit.ranks.progress import OnBytes
    from modelkit.ranks.rank_group import RankGroup
    from modelkit.ranks.wants import SlicedWeights
    from runtime.ranks.load import Assignment

_SMALLER = "Create it with --quantize q4 (or fewer bits), or take a smaller model."


@dataclass(frozen=True, slots=True)
class Started:
    """A running engine, and the limits that were found on the way."""

    engine: Engine
    context_length: int
    """In tokens, answer included."""
    memory: Memory
    notes: tuple[str, ...]
    """Sentences for the user."""
    kv_format: str | None
    """How keys and values are kept; None: in the activations' type."""
    learning: Learning | None = None
    """Where what it learns about drafts is kept; None for nowhere."""
    guesses: bool = True
    """Is anything drafted where a request wants it?"""


@dataclass(frozen=True, slots=True)
class _Limits:
    """What is settled before anything is loaded."""

    context: int
    """Tokens of prompt and answer together."""
    kv_format: str | None
    kept: Keeping
    memory: Memory
    shortage: str | None
    """A sentence where the model takes more than there is."""
    notes: tuple[str, ...]
    """Sentences for the user."""


@dataclass(slots=True)
class _Weights:
    """Foresees what the weights will take and reads them, on the engine's thread."""

    opened: Opened
    guesses: bool
    """Will anything be drafted? If not, neither a draft nor the model's own head is read."""
    on_bytes: Callable[[int], object]
    """Called with the bytes of each tensor that was read; what it raises ends the load."""
    copied: frozenset[int]
    """Layers of other ranks that rank 0 reads, too (`runtime.ranks.load.Assignment`)."""
    share: "Callable[[Read, OnBytes], LoadedModel] | None" = None
    """Has the ranks load that run it together, and gives rank 0's share; None for this process alone."""
    draft_bytes: int = 0
    """What drafts take in memory, once they are loaded."""
    elsewhere_bytes: int = 0
    """What the other ranks hold of the target, once it is loaded."""
    begun: dict[str, Loading] = field(default_factory=dict[str, Loading])
    """What has been foreseen of files as they are read: both build the same network. By origin."""

    @property
    def with_head(self) -> bool:
        """Is the model's own head read?"""
        return self.guesses and self.opened.draft is None

    def share_by(self, rank_group: "RankGroup", options: Options, settings: Settings) -> None:
        """Let the target be loaded by all of its ranks."""
        from modelkit.ranks.job import job_of

        head = self.with_head
        job = job_of(self.opened, options, settings.shards, with_head=head, copied=self.copied)
        self.share = partial(rank_group.share, self.opened, job, settings.home)

    def demands(self, *, alone: bool) -> tuple[Demand, Demand | None]:
        """What target and draft will take. alone: are there no other ranks?"""
        opened, draft = self.opened, self.opened.draft
        target = self._demand(opened.inventory, opened.converted, alone=alone, with_head=self.with_head)
        if draft is None or not self.guesses:
            return target, None
        with _of_draft():
            return target, self._demand(draft, opened.converted_draft, alone=True)

    def target(self) -> LoadedModel:
        cpu.bind_blas()
        if self.share is not None:
            return self.share(self._read_share, self.on_bytes)
        return self._read(self.opened.inventory, self.opened.converted, with_head=self.with_head)

    def drafters(self, target: LoadedModel, memory: LayerMemory) -> dict[str, Drafter]:
        if not self.guesses:
            return {}
        inventory = self.opened.draft
        with _of_draft():
            draft = None if inventory is None else self._read(inventory, self.opened.converted_draft)
        own = draft or target.head
        self.draft_bytes = own.weight_bytes if own else 0
        return drafters_for(target, draft, memory)

    def _read_share(
        self,
        opened: Opened,
        assigned: "Assignment",
        on_bytes: "OnBytes",
        sliced: "SlicedWeights | None",
    ) -> LoadedModel:
        self.elsewhere_bytes = sum(share.weight_bytes for share in assigned.plan.shares[1:])
        return read_share(opened, assigned, on_bytes, sliced)

    def _demand(
        self, inventory: Inventory, converted: "Part | None", *, alone: bool, with_head: bool = False
    ) -> Demand:
        if converted is not None or not alone:
            return demand_of(inventory, with_head=with_head)
        begun = self.begun[inventory.origin] = self._begin(inventory, None, with_head=with_head)
        return begun.demand

    def _begin(self, inventory: Inventory, converted: "Part | None", *, with_head: bool) -> Loading:
        files = stored_weights(inventory, converted)
        fixed = converted is None and self.opened.package is not None  # the store's never change
        return begin_load(inventory.config, files, on=device.device(), with_head=with_head, fixed=fixed)

    def _read(
        self, inventory: Inventory, converted: "Part | None", *, with_head: bool = False
    ) -> LoadedModel:
        on, begun = device.device(), self.begun.pop(inventory.origin, None)
        if begun is None or not begun.plan.stands(on):  # other models may have come or gone since
            begun = self._begin(inventory, converted, with_head=with_head)
        return begun.read(on, self.on_bytes)


def start_engine(
    opened: Opened,
    wanted: Resolved,
    settings: Settings,
    on_memory: Callable[[Memory, str | None], None] | None = None,
    on_weights: Callable[[int], object] | None = None,
) -> Started:
    """Load the weights and start. Raises LoadError for a model that does not fit its config or the memory.

    on_memory: called before anything is loaded with what it will take, and a sentence where that is more than
    there is. on_weights: called with the bytes of each tensor that was read. What either raises ends the
    load.
    """
    ops.use(settings.operations)  # first: how weights are held depends on it
    device.keep_compiled(settings.home / "compiled")
    guesses = wanted.draft_num_predict != 0 and describe(opened.inventory.config).writes
    rank_group = current_group()
    copied = _copied(opened, settings, rank_group, guesses=guesses)
    weights = _Weights(opened, guesses, on_weights or (lambda _: None), copied)
    thread = MlxThread()
    try:
        with _loading(opened):
            demands = thread.call(lambda: weights.demands(alone=rank_group is None))
        limits = _limits(opened, wanted, settings, rank_group, demands, guesses=guesses)
        if on_memory is not None:
            on_memory(limits.memory, limits.shortage)
        return _started(weights, limits, wanted, settings, rank_group, thread)
    except BaseException:
        thread.close()
        raise


def _started(
    weights: _Weights,
    limits: _Limits,
    wanted: Resolved,
    settings: Settings,
    rank_group: "RankGroup | None",
    thread: MlxThread,
) -> Started:
    """Load and start. thread: the engine's from here on."""
    opened, learning = weights.opened, None
    if weights.guesses and opened.package is not None and rank_group is None:
        # What drafts cost on ranks is another matter.
        learning = Learning(settings.home, opened.package, setting_of(wanted.num_thread, limits.kv_format))
    learned = learning.recall() if learning else None
    options, lead = _options(wanted, limits, settings.max_waiting), None
    if rank_group is not None:
        weights.share_by(rank_group, options, settings)
        spare = limits.memory.spare_of(rank_group.size)
        options = replace(options, ranks_here=rank_group.ranks_here, spare_bytes=spare)
        lead = rank_group.lead()
    adapters = attached.sources(opened.adapters, describe(opened.inventory.config))
    with _loading(opened):
        engine = Engine(weights.target, options, weights.drafters, learned, adapters, lead, thread)
    device.give_back()  # packed weights that were expanded have left as much behind
    loaded = engine.model.weight_bytes + weights.elsewhere_bytes + opened.ready.pooling.dense_bytes
    held = replace(limits.memory, weight_bytes=loaded, draft_bytes=weights.draft_bytes)
    notes = (*limits.notes, *engine.model.notes, *_idle_threads(wanted))
    return Started(engine, limits.context, held, notes, limits.kv_format, learning, weights.guesses)


def _copied(
    opened: Opened, settings: Settings, rank_group: "RankGroup | None", *, guesses: bool
) -> frozenset[int]:
    """Layers of other ranks that rank 0 reads, too. Raises LoadError for what these ranks cannot do, or one
    alone.
    """
    if rank_group is not None:
        from modelkit.ranks.job import copied_layers

        return copied_layers(opened, drafts=guesses, shards=settings.shards)
    if settings.shards > 1:
        raise LoadError(
            f"shards is {settings.shards}: parts of every layer, for as many ranks, and there are no ranks",
            hint=f"Give the number of processes too: --ranks {settings.shards}.",
        )
    if opened.outline is not None:
        from modelkit.ranks.outline import without_weights

        raise without_weights(opened.outline, opened.label)
    return frozenset()


def read_share(
    opened: Opened,
    assigned: "Assignment",
    on_bytes: "OnBytes",
    sliced: "SlicedWeights | None",
) -> LoadedModel:
    """What is assigned to this rank of the target. on_bytes: called with the bytes of each tensor. sliced:
    what it loads of, where it has not all the files.
    """
    from runtime.ranks.load import load_share

    files = stored_weights(opened.inventory, opened.converted)
    fixed = opened.converted is None and opened.package is not None
    on = device.device()
    sources = attached.sources(opened.adapters, describe(opened.inventory.config))
    brought = {source.name: source.read() for source in sources}
    if sliced is not None:
        files, on = sliced.files, sliced.on
    return load_share(
        opened.inventory.config,
        files,
        assigned,
        on=on,
        fixed=fixed,
        advance=on_bytes,
        adapters=brought,
        sliced=sliced and (sliced.headers, sliced.slices),
    )


def stored_weights(inventory: Inventory, converted: "Part | None") -> Sequence[Path] | Mapping[str, mx.array]:
    """Where its tensors are: its files, or what they are converted to now, as in Opened."""
    if converted is None:
        return [shard.path for shard in inventory.weights]
    from modelkit.pack.writing.arrays import read_arrays

    return read_arrays(converted)


def _limits(
    opened: Opened,
    wanted: Resolved,
    settings: Settings,
    rank_group: "RankGroup | None",
    demands: tuple[Demand, Demand | None],
    *,
    guesses: bool,
) -> _Limits:
    context, notes = context_of(opened.context_length, wanted.num_ctx)
    described = describe(opened.inventory.config)
    kv_format, more = kept_format(opened.label, described.layout, wanted.kv_format)
    free = device.device().available_bytes if rank_group is None else rank_group.free_bytes
    foreseen = forecast(*demands, drafts=guesses, kv_format=kv_format)
    adapters = attached.held_bytes(opened.adapters, foreseen.element_bytes)
    weights = foreseen.weight_bytes + opened.ready.pooling.dense_bytes
    foreseen = replace(foreseen, adapter_bytes=adapters, weight_bytes=weights)
    left = free - foreseen.weight_bytes - foreseen.draft_bytes - adapters
    # Nothing is kept of texts that embeddings are made of.
    kept = keeping(settings, opened.label, opened.digest, left) if described.writes else Keeping(None, None)
    if rank_group is not None and kept.folder is not None:
        part = rank_group.part(settings.shards)
        kept = replace(kept, folder=replace(kept.folder, part=part, numbers=rank_group.numbers))
    memory = foreseen.memory(context, kept.memory_bytes or 0, free, wanted.num_parallel, wanted.num_batch)
    short = shortage(opened.label, foreseen, context, memory)
    notes += (*more, *kept.notes, *((short,) if short else ()))
    return _Limits(context, kv_format, kept, memory, short, notes)


def _options(wanted: Resolved, limits: _Limits, max_waiting: int) -> Options:
    return Options(
        context_length=limits.context,
        budget_tokens=wanted.num_batch,
        max_waiting=max_waiting,
        spare_bytes=limits.memory.spare_bytes,
        prefix_bytes=limits.kept.memory_bytes,
        prefix_folder=limits.kept.folder,
        kv_format=limits.kv_format,
        threads=wanted.num_thread or None,
        max_rows=wanted.num_parallel,
    )


@contextmanager
def _of_draft() -> Generator[None]:
    """Which of the two models of a package does not fit its config."""
    try:
        yield
    except (UnsupportedModel, WeightMismatch) as fault:
        raise UnsupportedModel(f"its draft: {fault}") from fault


@contextmanager
def _loading(opened: Opened) -> Generator[None]:
    """Errors of the floor below, in the words of this one."""
    try:
        yield
    except (UnsupportedModel, WeightMismatch, ProcessLimit) as fault:
        raise LoadError(f"{opened.label} cannot be loaded: {fault}") from fault
    except TooLarge as fault:
        raise LoadError(f"{opened.label} does not fit: {fault}", hint=_SMALLER) from fault


def _idle_threads(wanted: Resolved) -> tuple[str, ...]:
    if not wanted.num_thread or cpu.thread_count():
        return ()
    return (f"num_thread has no effect here: {cpu.report().reason or 'MLX brings its own threads'}",)
