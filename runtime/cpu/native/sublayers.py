"""Sublayers by the kernels, each in one node: norm, products, gate, closing product, what it is added to.

For float32 activations, matrices that `products` has a kernel for and norms with float32 weights. What the
weights say is checked once and kept beside a module, or beside the memory that is attended to (`watched`).

stacks: the adapters that rows may have (`runtime.nn.adapters.stacks`), so that their pairs go along with
matrices (`pairs.adapted_matrix_of`); or None.
"""

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from runtime.cache.lanes import Lanes, LaneTraits
from runtime.cache.protocol import AttentionCache
from runtime.cpu.composed import RELU, Composed, by_name
from runtime.cpu.native.activations import KINDS, bend_of
from runtime.cpu.native.attend import form_of
from runtime.cpu.native.experts import MOST_ASKED, block_of
from runtime.cpu.native.module_cache import made_once
from runtime.cpu.native.pairs import adapted_matrix_of
from runtime.cpu.native.products import matrix_of
from runtime.cpu.native.rope import cosines
from runtime.cpu.native.route import routing_of
from runtime.parts.attention import AttentionParts, LatentAttentionParts
from runtime.parts.feed_forward import FeedForwardParts, MixtureParts
from runtime.parts.recurrent import RecurrentParts
from runtime.parts.rotary import Rotary
from runtime.parts.streams import Multiply, PerLayerGate
from runtime.records import dataclass
from runtime.step import Step


def table(kernels: Any, column: Any) -> dict[str, Callable[..., Any]]:
    """column: what the parts of a sublayer are computed by where there is no kernel for the whole."""
    parts = Composed(by_name(column, RELU))
    return {
        "projections": _projections(kernels, parts.projections),
        "closing": _closing(kernels, parts.closing),
        "feed_forward": _feed_forward(kernels, parts.feed_forward),
        "attention": _attention(kernels, parts.attention),
    }


def norm_of(kernels: Any, module: Any, times: float = 1.0) -> Any:
    """The kernels' view of a norm, and of what it gives times a number; None where its weights are no
    float32.
    """
    key = f"_norm {module.eps} {times}"
    return made_once(kernels, vars(module), key, (module,), _norm, kernels, module, times)


def _norm(kernels: Any, module: Any, times: float) -> Any:
    weight, bias = module.get("weight"), module.get("bias")
    fits = all(part is None or part.dtype == mx.float32 for part in (weight, bias))
    return kernels.Norm(module.centred, weight, bias, module.eps, times) if fits else None


def norms_of(kernels: Any, modules: Sequence[Any], first: float = 1.0) -> list[Any] | None:
    """Of each module, None for none; None where one has no view. first: what the first one gives is
    multiplied by it.
    """
    times = (first, *(1.0 for _ in modules[1:]))
    norms = [
        None if module is None else norm_of(kernels, module, by)
        for module, by in zip(modules, times, strict=True)
    ]
    if first != 1 and modules[0] is None:
        return None
    missing = any(norm is None and module is not None for norm, module in zip(norms, modules, strict=True))
    return None if missing else norms


def _projections(kernels: Any, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    node = kernels.projections

    def projections(modules: Sequence[Any], x: mx.array) -> Sequence[mx.array]:
        matrices = [matrix_of(kernels, module) for module in modules] if x.dtype == mx.float32 else [None]
        return otherwise(modules, x) if None in matrices else node(x, None, matrices)

    return projections


def _closing(kernels: Any, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    node = kernels.closing

    def closing(module: Any, x: mx.array, to: mx.array, after: Any) -> mx.array:
        if x.dtype == to.dtype == mx.float32:
            matrix = matrix_of(kernels, module)
            behind = None if after is None else norm_of(kernels, after)
            if matrix is not None and (after is None or behind is not None):
                return node(x, matrix, behind, to)
        return otherwise(module, x, to, after)

    return closing


def low_of(
    kernels: Any, low: Sequence[tuple[Any, Any] | None], stacks: Any
) -> list[tuple[Any, ...] | None] | None:
    """The kernels' view of what is added to products; None where they have none of some of it."""
    found = [
        None if pair is None else tuple(adapted_matrix_of(kernels, one, stacks) for one in pair)
        for pair in low
    ]
    return None if any(pair is not None and None in pair for pair in found) else found


def _feed_forward(kernels: Any, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    def feed_forward(x: mx.array, by: FeedForwardParts) -> mx.array:
        key = f"_fed {by.activation} {by.halves} {by.share} {by.gate_scale} {by.bends is None} {by.cut}"
        chain = made_once(kernels, vars(by.down), key, by, make, by)
        return otherwise(x, by) if chain is None or x.dtype != mx.float32 else chain(x)[0]

    def make(by: FeedForwardParts) -> Any:
        part = feed_forward_of(kernels, by)
        return None if part is None else kernels.Chain([part])

    return feed_forward


def feed_forward_of(kernels: Any, by: FeedForwardParts, stacks: Any = None) -> Any:
    """The kernels' view of a sublayer that feeds forward; None where they have none."""
    norms, inner = norms_of(kernels, (by.norm, by.after)), _inner(kernels, by, stacks)
    if norms is None or inner is None:
        return None
    return joined_to_stream(by, kernels.feed_forward(norms[0], inner, norms[1]))


def joined_to_stream(
    by: AttentionParts | LatentAttentionParts | RecurrentParts | FeedForwardParts | MixtureParts, part: Any
) -> Any:
    """The kernels' view of a sublayer, told how its answer comes to the residual stream."""
    part.share, part.beside = by.share, by.beside
    if by.sums is not None:
        part.sum_by(by.sums)
    return part


def _inner(kernels: Any, by: FeedForwardParts, stacks: Any) -> Any:
    """But for the norms."""
    matrices = [adapted_matrix_of(kernels, module, stacks) for module in (*by.opening, by.down)]
    low = low_of(kernels, by.low, stacks)
    if None in matrices or low is None:
        return None
    bend = None if by.bends is None else bend_of(kernels, by.bends)
    if (bend is None) != (by.bends is None):
        return None
    *opening, down = matrices
    act = KINDS[by.activation]
    return kernels.Feeding(opening, by.halves, act, down, by.gate_scale, bend, by.cut, low)


def mixture_of(kernels: Any, by: MixtureParts, stacks: Any = None) -> Any:
    """The kernels' view of a sublayer that asks experts; None where they have none."""
    norms = norms_of(kernels, (by.norm, by.after, by.answered, *_norms_of_shared(by)))
    if stacks is not None and any(stacks.get(stack) for stack in (*by.experts.opening, by.experts.down)):
        return None
    router, experts = adapted_matrix_of(kernels, by.router, stacks), block_of(kernels, by.experts)
    if norms is None or router is None or experts is None or by.routing.each > MOST_ASKED:
        return None
    shared = None if by.shared is None else _inner(kernels, by.shared, stacks)
    gate = None if by.gate is None else adapted_matrix_of(kernels, by.gate, stacks)
    if (shared is None) != (by.shared is None) or (gate is None) != (by.gate is None):
        return None
    reading = None
    if by.reading is not None:
        if by.reading.by.dtype != mx.float32:
            return None
        reading = kernels.Norm(False, by.reading.by, None, by.reading.eps), by.reading.times
    routing, (norm, after, *rest) = routing_of(kernels, by.routing), norms
    always = shared, gate, after, reading, *rest
    return joined_to_stream(by, kernels.mixture(norm, router, routing, *experts, *always, by.fed))


def _norms_of_shared(by: MixtureParts) -> tuple[Any, Any]:
    return (None, None) if by.shared is None else (by.shared.norm, by.shared.after)


def _attention(kernels: Any, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    def attention(x: mx.array, by: AttentionParts, step: Step, cache: AttentionCache) -> mx.array:
        lanes = None
        if x.dtype == mx.float32:
            lanes = cache.lanes(step) if by.reads else cache.open(step)
        if lanes is not None:
            kept = lanes.kept
            chain = made_once(kernels, kept.made, by.heads, by, make, kept, by)
            if chain is not None:
                memory = memory_of(by, lanes, table_of(kernels, by.heads.rope, step), step)
                y, *written = chain(x, step.starts, step.counts, lanes.first, [memory])
                if not by.reads:
                    cache.close(step, lanes, written)
                return y
        return otherwise(x, by, step, cache)

    def make(kept: LaneTraits, by: AttentionParts) -> Any:
        part = attention_of(kernels, kept, by)
        return None if part is None else kernels.Chain([part])

    return attention


def attention_of(kernels: Any, kept: LaneTraits, by: AttentionParts, stacks: Any = None) -> Any:
    """The kernels' view of a sublayer that attends to such a memory; None where they have none."""
    heads = by.heads
    attend = form_of(kernels, kept, heads.count, heads.scale, heads.softcap, rope=heads.rope)
    norms = norms_of(kernels, (by.norm, by.after), by.norm_scale)
    of_heads = norms_of(kernels, (*(by.head_norms or (None, None)), by.value_norm))
    matrices = [adapted_matrix_of(kernels, module, stacks) for module in (*by.opening, by.close)]
    if by.sinks is not None and by.sinks.dtype != mx.float32:
        return None
    low = low_of(kernels, by.low, stacks)
    if None in (attend, norms, of_heads, low) or None in matrices or len(kept.codecs) == 1:
        return None
    assert norms is not None
    assert of_heads is not None
    gate = None if by.gate is None else adapted_matrix_of(kernels, by.gate.by, stacks)
    if by.gate is not None and gate is None:
        return None
    *opening, close = matrices
    forms = heads.normed_together, heads.normed_turned, heads.gated
    made = kernels.Heads(*of_heads, *forms, by.value_scale, by.key_scale, heads.by_head)
    act = 0 if by.gate is None else KINDS[by.gate.activation]
    gated = gate, act
    part = kernels.attention(
        norms[0], opening, made, attend, by.sinks, by.reads, close, norms[1], *gated, low
    )
    return joined_to_stream(by, part)


def per_layer_gate_of(kernels: Any, by: PerLayerGate, stacks: Any = None) -> Any:
    """The kernels' view of a sublayer that is gated by what a step brings; None where they have none."""
    norms = norms_of(kernels, (by.after,))
    opening, close = adapted_matrix_of(kernels, by.open, stacks), adapted_matrix_of(kernels, by.close, stacks)
    if norms is None or opening is None or close is None:
        return None
    return kernels.per_layer_gate(opening, KINDS[by.activation], by.place, close, norms[0])


def multiply_of(kernels: Any, by: Multiply) -> Any:
    return kernels.multiply(by.by, by.width) if by.by.dtype == mx.float32 else None


def table_of(kernels: Any, rope: Rotary | None, step: Step) -> mx.array | None:
    """What heads are turned by."""
    return None if rope is None else cosines(kernels, rope, step)


@dataclass(slots=True, frozen=True, eq=False)
class Seen:
    """Keys and values that another sublayer of the same node writes in this step."""

    kept: LaneTraits
    donor: int
    """Which of the node's memories."""


def memory_of(
    by: AttentionParts | LatentAttentionParts, one: Lanes | Seen, table: mx.array | None, step: Step
) -> tuple[Any, ...]:
    """What a sublayer that attends has in a step, as kernels take it. table: what its heads are turned by."""
    turned = table, None if by.factors is None else by.factors(step)
    if isinstance(one, Seen):
        return *turned, one.donor
    if by.reads:
        return *turned, one.arrays, one.beside, one.bases
    return *turned, one.arrays, one.bases, not one.fits
