"""Sublayers by the kernels, each in one node: norm, products, gate, closing product, what it is added to.

For float32 activations, matrices that `products` has a kernel for and norms with float32 weights. What the
weights say is checked once and kept beside a module, or beside the memory that is attended to (`watched`).

deck: the adapters that rows may have, so that their pairs go along with matrices (`pairs.paired`); or None.
"""

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from runtime.cache.lanes import Kept, Lanes
from runtime.cache.protocol import AttentionCache
from runtime.cpu.composed import RELU, Composed, by_name
from runtime.cpu.native.activations import KINDS
from runtime.cpu.native.attend import form_of
from runtime.cpu.native.experts import MOST_ASKED, block_of
from runtime.cpu.native.pairs import paired
from runtime.cpu.native.products import matrix_of
from runtime.cpu.native.rope import cosines
from runtime.cpu.native.route import routing_of
from runtime.cpu.native.watched import made_once
from runtime.cpu.stated import Asks, Attends, Feeds, Folds
from runtime.cpu.turn import Rotary
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


def norm_of(kernels: Any, module: Any) -> Any:
    """The kernels' view of a norm; None where its weights are no float32."""
    return made_once(kernels, vars(module), f"_norm {module.eps}", (module,), _norm, kernels, module)


def _norm(kernels: Any, module: Any) -> Any:
    weight, bias = module.get("weight"), module.get("bias")
    fits = all(part is None or part.dtype == mx.float32 for part in (weight, bias))
    return kernels.Norm(module.centred, weight, bias, module.eps) if fits else None


def norms_of(kernels: Any, modules: Sequence[Any]) -> list[Any] | None:
    """Of each module, None for none; None where one has no view."""
    norms = [None if module is None else norm_of(kernels, module) for module in modules]
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


def _feed_forward(kernels: Any, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    def feed_forward(x: mx.array, by: Feeds) -> mx.array:
        key = f"_fed {by.activation} {by.halves} {by.share}"
        chain = made_once(kernels, vars(by.down), key, by, make, by)
        return otherwise(x, by) if chain is None or x.dtype != mx.float32 else chain(x)[0]

    def make(by: Feeds) -> Any:
        part = feeding(kernels, by)
        return None if part is None else kernels.Chain([part])

    return feed_forward


def feeding(kernels: Any, by: Feeds, deck: Any = None) -> Any:
    """The kernels' view of a sublayer that feeds forward; None where they have none."""
    norms, inner = norms_of(kernels, (by.norm, by.after)), _inner(kernels, by, deck)
    if norms is None or inner is None:
        return None
    return sharing(by, kernels.feed_forward(norms[0], inner, norms[1]))


def sharing(by: Attends | Folds | Feeds | Asks, part: Any) -> Any:
    part.share, part.beside = by.share, by.beside
    return part


def _inner(kernels: Any, by: Feeds, deck: Any) -> Any:
    """But for the norms."""
    matrices = [paired(kernels, module, deck) for module in (*by.opening, by.down)]
    if None in matrices:
        return None
    *opening, down = matrices
    return kernels.Feeding(opening, by.halves, KINDS[by.activation], down)


def asking(kernels: Any, by: Asks, deck: Any = None) -> Any:
    """The kernels' view of a sublayer that asks experts; None where they have none."""
    norms = norms_of(kernels, (by.norm, by.after))
    if deck is not None and any(deck.get(stack) for stack in (*by.experts.opening, by.experts.down)):
        return None
    router, experts = paired(kernels, by.router, deck), block_of(kernels, by.experts)
    if norms is None or router is None or experts is None or by.routing.each > MOST_ASKED:
        return None
    shared = None if by.shared is None else _inner(kernels, by.shared, deck)
    gate = None if by.gate is None else paired(kernels, by.gate, deck)
    if (shared is None) != (by.shared is None) or (gate is None) != (by.gate is None):
        return None
    routing = routing_of(kernels, by.routing)
    return sharing(by, kernels.asking(norms[0], router, routing, *experts, shared, gate, norms[1]))


def _attention(kernels: Any, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    def attention(x: mx.array, by: Attends, step: Step, cache: AttentionCache) -> mx.array:
        lanes = cache.open(step) if x.dtype == mx.float32 else None
        if lanes is not None:
            kept = lanes.kept
            chain = made_once(kernels, kept.made, by.heads, by, make, kept, by)
            if chain is not None:
                memory = memory_of(table_of(kernels, by.heads.rope, step), lanes)
                y, *written = chain(x, step.starts, step.counts, lanes.first, [memory])
                cache.close(step, lanes, written)
                return y
        return otherwise(x, by, step, cache)

    def make(kept: Kept, by: Attends) -> Any:
        part = attending(kernels, kept, by)
        return None if part is None else kernels.Chain([part])

    return attention


def attending(kernels: Any, kept: Kept, by: Attends, deck: Any = None) -> Any:
    """The kernels' view of a sublayer that attends to such a memory; None where they have none."""
    heads = by.heads
    attend = form_of(kernels, kept, heads.count, heads.scale, heads.softcap, None, heads.rope)
    norms = norms_of(kernels, (by.norm, *(by.head_norms or (None, None)), by.after))
    matrices = [paired(kernels, module, deck) for module in (*by.opening, by.close)]
    if by.sinks is not None and by.sinks.dtype != mx.float32:
        return None
    if attend is None or norms is None or None in matrices or len(kept.codecs) == 1:
        return None
    *opening, close = matrices
    how = attend, by.sinks, heads.gated, heads.normed_together
    return sharing(by, kernels.attention(norms[0], opening, norms[1], norms[2], *how, close, norms[3]))


def table_of(kernels: Any, rope: Rotary | None, step: Step) -> mx.array | None:
    """What heads are turned by."""
    return None if rope is None else cosines(kernels, rope, step)


def memory_of(table: mx.array | None, lanes: Lanes) -> tuple[Any, ...]:
    """What a sublayer that attends has in a step, as kernels take it."""
    return table, lanes.arrays, lanes.bases, not lanes.fits
