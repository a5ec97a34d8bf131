"""What stands on the engine's thread around one model: made there, whole, before anything is asked of it."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from runtime import device
from runtime.cache.budget import Budget
from runtime.cache.build import build_memory
from runtime.cache.layout import sequence_bytes
from runtime.cache.memory import LayerMemory
from runtime.cache.prompts import KeptPrompts
from runtime.cache.sharing import Sharing
from runtime.cpu import native
from runtime.cpu.threads import Threads
from runtime.engine.adapters import Adapters, AdapterSource
from runtime.engine.options import Options
from runtime.engine.places import Places
from runtime.engine.prefixes import Prefixes
from runtime.engine.sources import Sources
from runtime.loaded import LoadedModel
from runtime.nn.positions.rope_spec import long_after
from runtime.records import dataclass
from runtime.speculate.drafter import Drafter
from runtime.speculate.drafting import Drafting

if TYPE_CHECKING:
    from runtime.ranks.lead import Lead, Leading

Drafters = Callable[[LoadedModel, LayerMemory], Mapping[str, Drafter]]
"""Makes the drafters of a model, by their names."""


@dataclass(frozen=True, slots=True)
class Room:
    """The parts of an engine around one model, which live on its thread."""

    model: LoadedModel
    memory: LayerMemory
    """The target's."""
    drafting: Drafting
    """Chooses drafters and learns what they cost."""
    prefixes: Prefixes
    """What is known of earlier sequences."""
    sources: Sources
    """Prompts that an encoder reads."""
    threads: Threads
    """How many products get, chosen before each step."""
    places: Places
    """Which row has which place in memory."""
    adapters: Adapters
    """Those that rows may have."""
    lead: "Lead | None" = None
    """What tells other machines; None where there are none."""

    @property
    def parts(self) -> int:
        """In how many parts rows decode (`runtime.engine.in_flight`)."""
        return 1 if self.lead is None else self.lead.parts


def furnish(
    model: LoadedModel,
    options: Options,
    drafters: Drafters | None,
    learned: object,
    sources: Sequence[AdapterSource] = (),
    leading: "Leading | None" = None,
) -> Room:
    """learned, sources, leading: as in Engine."""
    device.spare_little()
    lead = None if leading is None else leading(model)
    try:
        return _furnished(model, options, drafters, learned, sources, lead)
    except BaseException:
        if lead is not None:
            lead.end()  # the others wait for what is to be computed
        raise


def _furnished(
    model: LoadedModel,
    options: Options,
    drafters: Drafters | None,
    learned: object,
    sources: Sequence[AdapterSource],
    lead: "Lead | None",
) -> Room:
    budget = Budget(options.cache_bytes)
    if lead is None:
        memory = build_memory(
            model.described.layout,
            dtype=model.dtype,
            kept_format=options.kv_format,
            budget=budget,
            by_pages=native.by_pages(),
        )
    else:
        model, memory = lead.model, lead.memory(options.kv_format, budget)
    drafting = Drafting({} if drafters is None else drafters(model, memory), memory, learned)
    limit_bytes = own_prefix_bytes(memory, options, drafting, options.prefix_bytes)
    keeping = KeptPrompts if lead is None else lead.prompts
    prompts = Sources.of(model, memory, options, limit_bytes, keeping)
    adapters = Adapters(model, sources)
    prefixes = Prefixes.of(
        memory,
        options,
        model.dtype,
        limit_bytes=limit_bytes,
        long_after=long_after(model.described.config),
        ahead=drafting.ahead,
        sharing=Sharing if lead is None else lead.sharing,
    )
    places = Places(memory, prefixes, drafting, options.max_rows)
    threads = Threads(options.threads, ranks=options.ranks_here)
    return Room(model, memory, drafting, prefixes, prompts, threads, places, adapters, lead)


def own_prefix_bytes(
    memory: LayerMemory, options: Options, drafting: Drafting, limit_bytes: int | None
) -> int | None:
    """The target's part of what may be kept of earlier sequences, `limit_bytes`; drafters get the rest."""
    if limit_bytes is None:
        return None
    own = sequence_bytes(memory.layout, options.context_length, kept_format=options.kv_format)
    return drafting.share(limit_bytes, own, options.context_length)
