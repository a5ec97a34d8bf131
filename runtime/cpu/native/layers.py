"""Layers of a trunk whose sublayers attend, fold, feed forward or ask experts, many as one node.

A layer says what it consists of (`sublayer_parts`, of `runtime.nn.residual.block`). Layers side by side that
kernels know make a run, which is known again for as long as nobody puts other weights into them. Where
several tokens are read at once, the last of a trunk's layers is a run of its own, in two nodes: whoever reads
a prompt wants memory alone, and nothing that comes behind. What adapters add for some rows is part of the
node (`pairs`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import mlx.core as mx

from runtime.cpu.native.altup import active_of, correct_of, join_of, laurel_of, predict_of
from runtime.cpu.native.appended import append_input_of, read_appended_of, update_appended_of
from runtime.cpu.native.latent import latent_attention_of
from runtime.cpu.native.module_cache import made_once
from runtime.cpu.native.pairs import members_of
from runtime.cpu.native.recurrent import recurrence_of
from runtime.cpu.native.sublayers import (
    Seen,
    attention_of,
    feed_forward_of,
    memory_of,
    mixture_of,
    multiply_of,
    per_layer_gate_of,
    table_of,
)
from runtime.parts.attention import AttentionParts, LatentAttentionParts
from runtime.parts.feed_forward import FeedForwardParts, MixtureParts
from runtime.parts.recurrent import RecurrentParts
from runtime.parts.streams import (
    AltUpActive,
    AltUpCorrect,
    AltUpJoin,
    AltUpPredict,
    AppendInput,
    LaurelParts,
    Multiply,
    PerLayerGate,
    ReadAppended,
    UpdateAppended,
)
from runtime.records import dataclass
from runtime.step import Step

MOST = 16
"""Layers of a run. Each output of a node knows all of its inputs and outputs; a layer has two or more."""

Sublayer = (
    AttentionParts
    | LatentAttentionParts
    | RecurrentParts
    | FeedForwardParts
    | MixtureParts
    | PerLayerGate
    | Multiply
    | AltUpPredict
    | AltUpActive
    | LaurelParts
    | AltUpCorrect
    | AltUpJoin
    | AppendInput
    | UpdateAppended
    | ReadAppended
)
LayerParts = tuple[Sublayer, ...]
"""A layer's sublayers."""


class Remembers(NamedTuple):
    """A sublayer that has a memory or is given something."""

    layer: int
    """Which of the run's."""
    place: int | None
    """Which of the layer's memories it has; None where it has one."""
    by: AttentionParts | LatentAttentionParts | RecurrentParts | PerLayerGate | AppendInput

    def cache(self, caches: Sequence[Any]) -> Any:
        """Its own, of the run's layers'."""
        own = caches[self.layer]
        return own if self.place is None else own[self.place]


@dataclass(slots=True, frozen=True, eq=False)
class LayerInput:
    """What a step brings for layers."""

    array: mx.array
    """[B, L, N * P], P numbers for each of N sublayers; [B, L, P], the same for all."""
    kept: None = None


@dataclass(slots=True, frozen=True, eq=False)
class Run:
    """Layers side by side that say what they consist of."""

    first: int
    layers: tuple[LayerParts, ...]
    apart: bool
    """What comes behind memory is a node of its own."""
    memories: tuple[Remembers, ...]
    behind: int
    """So many sublayers of the last layer come behind its memories."""
    ropes: frozenset[Any]
    """What those that attend turn by."""

    @classmethod
    def of(cls, first: int, layers: Sequence[LayerParts], *, apart: bool) -> "Run":
        memories = tuple(one for layer, parts in enumerate(layers) for one in _remembering(layer, parts))
        ropes = frozenset(
            one.by.heads.rope for one in memories if isinstance(one.by, AttentionParts | LatentAttentionParts)
        )
        return cls(first, tuple(layers), apart, memories, _behind(layers[-1]), ropes)


def _behind(parts: LayerParts) -> int:
    """How many come behind the last memory. A way around what remembers stays with it."""
    its = [_inner(one) for one in parts]
    here = max(
        (
            at
            for at, one in enumerate(its)
            if isinstance(one, AttentionParts | LatentAttentionParts | RecurrentParts)
        ),
        default=-1,
    )
    while here >= 0 and here + 1 < len(its) and isinstance(its[here + 1], LaurelParts):
        here += 1
    return len(its) - 1 - here


def _inner(one: Sublayer) -> Any:
    """What a sublayer of one stream, or of what lies behind, is to that."""
    return one.by if isinstance(one, AltUpActive | AltUpJoin | UpdateAppended | ReadAppended) else one


def _remembering(layer: int, parts: LayerParts) -> Iterator[Remembers]:
    several = (
        sum(isinstance(_inner(one), AttentionParts | LatentAttentionParts | RecurrentParts) for one in parts)
        > 1
    )
    place = 0
    for one in map(_inner, parts):
        if isinstance(one, PerLayerGate | AppendInput):
            yield Remembers(layer, None, one)
        elif isinstance(one, AttentionParts | LatentAttentionParts | RecurrentParts):
            yield Remembers(layer, place if several else None, one)
            place += 1


def running(kernels: Any, otherwise: Callable[..., mx.array]) -> Callable[..., mx.array]:
    """The operation `layers`."""

    def layers(
        layers: Sequence[Any],
        x: mx.array,
        step: Step,
        caches: Sequence[Any],
        given: mx.array | None = None,
    ) -> mx.array:
        if x.dtype != mx.float32 or not layers or (given is not None and given.dtype != mx.float32):
            return otherwise(layers, x, step, caches, given)

        def plainly(x: mx.array, start: int, stop: int) -> mx.array:
            own = given if given is None or given.shape[2] == 1 else given[:, :, start:stop]
            return otherwise(layers[start:stop], x, step, caches[start:stop], own) if start < stop else x

        brought = None if given is None else LayerInput(given.flatten(2))
        at, whole = 0, step.width == 1
        for run in known_runs(kernels, layers, whole):
            x = plainly(x, at, run.first)
            at = run.first + len(run.layers)
            y = _through(kernels, run, x, step, caches[run.first : at], brought)
            x = plainly(x, run.first, at) if y is None else y
        return plainly(x, at, len(layers))

    return layers


def known_runs(kernels: Any, layers: Sequence[Any], whole: bool) -> list[Run]:
    """Found once. whole: the last layer is like the others."""
    return made_once(kernels, vars(layers[0]), f"_runs {whole}", layers, runs_of, layers, whole)


def runs_of(layers: Sequence[Any], whole: bool) -> list[Run]:
    found: list[tuple[int, list[LayerParts]]] = []
    for place, layer in enumerate(layers):
        parts = layer.sublayer_parts() if hasattr(layer, "sublayer_parts") else None
        if parts is None:
            continue
        first, its = found[-1] if found else (0, [])
        apart = place == len(layers) - 1 and not whole
        if not its or apart or first + len(its) < place or len(its) == MOST:
            found.append((place, [parts]))
        else:
            its.append(parts)
    last = len(layers) - 1
    return [Run.of(first, its, apart=first + len(its) > last and not whole) for first, its in found]


def _through(
    kernels: Any, run: Run, x: mx.array, step: Step, caches: Sequence[Any], given: LayerInput | None
) -> mx.array | None:
    """None: not as one node."""
    opened = opened_of(run, step, caches, given)
    if not opened:
        return None
    chains = chains_of(kernels, run, opened, None if step.adapters is None else step.adapters.stacks)
    if chains is None:
        return None
    members = members_of(kernels, step.adapters)
    tables = {rope: table_of(kernels, rope, step) for rope in run.ropes}
    memories, where = memories_of(run, opened, tables, step), (step.starts, step.counts, step.first)
    late = (
        0
        if len(chains) == 1
        else sum(isinstance(_inner(one), PerLayerGate) for one in run.layers[-1][-run.behind :])
    )
    cut = len(memories) - late
    y, *written = chains[0](x, *where, memories[:cut], members)
    close(run, step, caches, opened, written)
    return y if len(chains) == 1 else chains[1](y, *where, memories[cut:], members)[0]


def opened_of(
    run: Run, step: Step, caches: Sequence[Any], given: LayerInput | None = None
) -> list[Any] | None:
    """What is remembered before the step, by memory; None where some memory cannot be handed out so."""
    opened: list[Any] = []
    for its in run.memories:
        if isinstance(its.by, PerLayerGate | AppendInput):
            one = given
        elif isinstance(its.by, RecurrentParts):
            # Kernels count from a row's first token.
            one = None if step.moved and its.by.by_position else its.cache(caches).before(step)
        elif its.by.reads:
            one = _seen(run, caches, its, opened, step)
        else:
            one = its.cache(caches).open(step)
        if one is None:
            return None
        opened.append(one)
    return opened


def _seen(run: Run, caches: Sequence[Any], its: Remembers, opened: list[Any], step: Step) -> Any:
    """What this sublayer reads: what the run writes itself, or what one before the run has written."""
    cache = its.cache(caches)
    for donor, other in enumerate(run.memories[: len(opened)]):
        if isinstance(other.by, AttentionParts) and not other.by.reads and other.cache(caches) is cache:
            return Seen(opened[donor].kept, donor)
    return cache.lanes(step)


def memories_of(
    run: Run, opened: Sequence[Any], tables: Mapping[Any, mx.array | None], step: Step
) -> list[Any]:
    """The same as kernels take it. tables: what heads are turned by, for each rope."""
    found: list[Any] = []
    for its, one in zip(run.memories, opened, strict=True):
        match its.by:
            case AttentionParts() | LatentAttentionParts() as by:
                found.append(memory_of(by, one, tables[by.heads.rope], step))
            case RecurrentParts():
                found.append((one.arrays, one.again, one.own))
            case PerLayerGate() | AppendInput():
                found.append((one.array,))
    return found


def close(
    run: Run, step: Step, caches: Sequence[Any], opened: Sequence[Any], written: Sequence[mx.array]
) -> None:
    """Hand memories what a node has made of them."""
    at = 0
    for its, one in zip(run.memories, opened, strict=True):
        by = its.by
        if isinstance(by, PerLayerGate | AppendInput) or (isinstance(by, AttentionParts) and by.reads):
            continue
        own = written[at : at + len(one.arrays)]
        at += len(own)
        if isinstance(by, AttentionParts | LatentAttentionParts):
            its.cache(caches).close(step, one, own)
        else:
            scan = partial(by.scan, step) if by.by_step else by.scan
            products = written[at : at + len(by.opening)] if one.again else ()
            at += len(products)
            its.cache(caches).folded(step, scan, by.scanned(products) if products else None, own)


def chains_of(kernels: Any, run: Run, opened: Sequence[Any], stacks: Any = None) -> list[Any] | None:
    """The run over these memories, as one node or two; None where kernels have no view of some part, or
    nothing here remembers. stacks: of adapters that rows may have; None where none has one.
    """
    kept = [one.kept for one in opened]
    made = next((one.made for one in kept if one is not None), None)
    if made is None:  # what is made for each memory has no place to be kept
        return None
    key = "run", run.first, run.apart, stacks is None
    found = made.get(key)
    if found is None or found[0] is not run or found[1] != kept or found[2] is not stacks:
        found = made[key] = run, kept, stacks, _chains(kernels, run, kept, stacks)
    return found[3]


def _chains(kernels: Any, run: Run, memory: list[Any], stacks: Any) -> list[Any] | None:
    kept, parts = iter(memory), []
    for layer in run.layers:
        parts += [_view_of(kernels, one, kept, stacks) for one in layer]
    if None in parts:
        return None
    if not run.apart or not run.behind or run.behind == len(parts):
        return [kernels.Chain(parts)]
    if getattr(_inner(run.layers[-1][-run.behind]), "beside", False):
        return None  # its sublayers cannot be parted
    return [kernels.Chain(parts[: -run.behind]), kernels.Chain(parts[-run.behind :])]


def _view_of(kernels: Any, sublayer: Sublayer, kept: Iterator[Any], stacks: Any) -> Any:
    """kept: of the memories of those that remember, in order."""
    match sublayer:
        case AttentionParts():
            return attention_of(kernels, next(kept), sublayer, stacks)
        case LatentAttentionParts():
            return latent_attention_of(kernels, next(kept), sublayer, stacks)
        case RecurrentParts():
            next(kept)
            return recurrence_of(kernels, sublayer, stacks)
        case FeedForwardParts():
            return feed_forward_of(kernels, sublayer, stacks)
        case MixtureParts():
            return mixture_of(kernels, sublayer, stacks)
        case PerLayerGate():
            next(kept)
            return per_layer_gate_of(kernels, sublayer, stacks)
        case Multiply():
            return multiply_of(kernels, sublayer)
        case AppendInput():
            next(kept)
            return append_input_of(kernels, sublayer)
        case UpdateAppended():
            return update_appended_of(kernels, _view_of(kernels, sublayer.by, kept, stacks))
        case ReadAppended():
            return read_appended_of(kernels, sublayer, _view_of(kernels, sublayer.by, kept, stacks), stacks)
        case AltUpPredict():
            return predict_of(kernels, sublayer, stacks)
        case AltUpCorrect():
            return correct_of(kernels, sublayer, stacks)
        case LaurelParts():
            return laurel_of(kernels, sublayer, stacks)
        case AltUpActive():
            return active_of(kernels, _view_of(kernels, sublayer.by, kept, stacks), sublayer.streams)
        case AltUpJoin():
            return join_of(kernels, _view_of(kernels, sublayer.by, kept, stacks), sublayer.streams)
