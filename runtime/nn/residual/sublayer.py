"""Sublayers of a residual stream, as blocks call them: x + after(sublayer(norm(x))), in as few operations as
their modules allow.

Where a step adds adapters' products, or somebody has put modules of another class in place of ours, each
module is called by itself. Whoever computes by kernels gets the same bits either way.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.protocol import AttentionCache
from runtime.nn.activation import NAMES, XIELU, Activation
from runtime.nn.linear import MATRICES, linear
from runtime.nn.norm import HeadLayerNorm, LayerNorm, Normalize, PlainRMS, RMSNorm, added_normed
from runtime.nn.operations import ops
from runtime.parts.attention import AttentionParts, LatentAttentionParts, OutputGate
from runtime.parts.feed_forward import FeedForwardParts, MixtureParts, Routing
from runtime.parts.recurrent import RecurrentParts
from runtime.parts.streams import PerLayerGate
from runtime.step import Step

NORMS = RMSNorm, LayerNorm, PlainRMS
HEAD_NORMS = *NORMS, HeadLayerNorm


def added(
    x: mx.array, sublayer: Any, *rest: Any, norm: Normalize | None = None, after: Normalize | None = None
) -> mx.array:
    """x + after(sublayer(norm(x), *rest)), rest being the step and what the sublayer remembers, if it does.
    As one operation where the sublayer says beside its call what it consists of (`parts`) and there is one;
    else by its own `added(x, norm, after, *rest)` where it has that. None: no norm in that place.
    """
    y = at_once(x, parts_of(sublayer, norm, after), *rest)
    if y is not None:
        return y
    if defined_together(type(sublayer), "__call__", "added"):
        return sublayer.added(x, norm, after, *rest)
    y = sublayer(x if norm is None else norm(x), *rest)
    return x + y if after is None else added_normed(x, after, y)


def at_once(x: mx.array, parts: Any, step: Step, *caches: AttentionCache) -> mx.array | None:
    """`added` by what a sublayer says. None: not as one operation. Adapters' products come in between, and so
    do sums over ranks and parts of low rank.
    """
    if (
        step.adapters is not None
        or not isinstance(parts, AttentionParts | FeedForwardParts)
        or parts.sums is not None
    ):
        return None
    if parts.low:
        return None
    if isinstance(parts, AttentionParts):
        return ops.table.attention(x, parts, step, *caches)
    return ops.table.feed_forward(x, parts)


@cache
def defined_together(kind: type, method: str, other: str) -> bool:
    """Is `other`, which says the same as this method in another form, of the class that the method is from?
    Not where only the method was overridden.
    """
    definer = next((base for base in kind.__mro__ if method in vars(base)), object)
    return other in vars(definer)


def projections(modules: Sequence[nn.Module], x: mx.array, step: Step | None) -> Sequence[mx.array]:
    """Several products of one x."""
    if _are_matrices(modules, step):
        return ops.table.projections(modules, x)
    return [linear(module, x, step) for module in modules]


def closing(
    module: nn.Module, x: mx.array, to: mx.array, after: Normalize | None, step: Step | None
) -> mx.array:
    """to + after(x Wᵀ + b)."""
    if _are_matrices((module,), step) and (after is None or isinstance(after, RMSNorm)):
        return ops.table.closing(module, x, to, after)
    y = linear(module, x, step)
    return to + y if after is None else added_normed(to, after, y)


def attention_parts(said: AttentionParts) -> AttentionParts | None:
    """None: it is not as the operation has it."""
    of_heads = all(one is None or isinstance(one, HEAD_NORMS) for one in said.head_norms or ())
    matrices = *said.opening, said.close
    fit = norms_fit(said.norm, said.after) and MATRICES.issuperset(map(type, matrices))
    return said if of_heads and fit else None


def with_output_gate(
    parts: AttentionParts | None, gate: nn.Module, activation: Activation
) -> AttentionParts | None:
    """The same with what heads see under a gate that has a matrix of its own (`OutputGate`)."""
    if parts is None or type(gate) not in MATRICES:
        return None
    return parts._replace(gate=OutputGate(gate, NAMES[activation]))


def feed_forward_parts(
    norm: Normalize | None,
    opening: Sequence[nn.Module],
    activation: Activation,
    down: nn.Module,
    after: Normalize | None,
    *,
    halves: bool = False,
    cut: float | None = None,
) -> FeedForwardParts | None:
    """None: it is not as the operation has it."""
    bends = activation if isinstance(activation, XIELU) else None
    name = "relu" if bends else None if isinstance(activation, nn.Module) else NAMES.get(activation)
    if name is None or not norms_fit(norm, after) or not MATRICES.issuperset(map(type, (*opening, down))):
        return None
    return FeedForwardParts(norm, opening, halves, name, down, after, cut=cut, bends=bends)


def per_layer_gate(
    opening: nn.Module, activation: Activation, place: int, close: nn.Module, after: Normalize | None
) -> PerLayerGate | None:
    """None: it is not as the operation has it."""
    name = None if isinstance(activation, nn.Module) else NAMES.get(activation)
    if name is None or not norms_fit(None, after) or not MATRICES.issuperset((type(opening), type(close))):
        return None
    return PerLayerGate(opening, name, place, close, after)


class Always(NamedTuple):
    """What answers beside the chosen experts, whatever the router says."""

    module: Any
    gate: nn.Module | None = None
    """As in `MixtureParts`."""
    norms: tuple[Normalize | None, Normalize | None] = (None, None)
    """Of its own: before it, and behind."""

    def parts(self) -> FeedForwardParts | None:
        """None: it is not as kernels have it. A sum over ranks would come behind what is added to it, and its
        share is 1.
        """
        said = parts_of(self.module, *self.norms)
        if said is None or said.sums is not None or said.share != 1:
            return None
        return said if self.gate is None or type(self.gate) in MATRICES else None


def mixture_parts(
    norm: Normalize | None,
    router: Any,
    routing: Routing | None,
    experts: Any,
    after: Normalize | None,
    always: Always | None = None,
) -> MixtureParts | None:
    """None: it is not as kernels have it.

    router: a matrix whose products are scores; or, with routing None, a module that says beside its call
    which matrix that is, and the rule (`ruled`, as `runtime.nn.feed_forward.router.RuledRouter`). experts: a
    `runtime.nn.feed_forward.experts.Experts`.
    """
    ruled = _ruled(router, routing)
    stacks = experts.stacks() if defined_together(type(experts), "__call__", "stacks") else None
    if ruled is None or stacks is None or not norms_fit(norm, after):
        return None
    if always is None:
        return MixtureParts(norm, *ruled, stacks, None, None, after)
    shared = always.parts()
    return None if shared is None else MixtureParts(norm, *ruled, stacks, shared, always.gate, after)


def _ruled(router: Any, routing: Routing | None) -> tuple[Any, Routing] | None:
    """The matrix that gives scores, and the rule by which they choose."""
    if routing is not None:
        return (router, routing) if type(router) in MATRICES else None
    if not defined_together(type(router), "__call__", "ruled"):
        return None
    matrix, rule = router.ruled()
    return None if rule is None else (matrix, rule)


def sublayer_parts_of(
    layer: Any,
) -> (
    tuple[AttentionParts | LatentAttentionParts | RecurrentParts | FeedForwardParts | MixtureParts, ...]
    | None
):
    """What a layer's sublayers are, as it says beside its call (`sublayers`), and they beside theirs
    (`parts`). None where one of them is another thing, or where there is none.
    """
    if not defined_together(type(layer), "__call__", "sublayers"):
        return None
    found: list[Any] = []
    for sublayer, norm, after in layer.sublayers():
        found.append(parts_of(sublayer, norm, after))
    if not found or any(one is None for one in found):
        return None
    if layer.share != 1:
        found = [one._replace(share=layer.share) for one in found]
    first, *others = found
    return first, *(one._replace(beside=layer.parallel) for one in others)


def parts_of(sublayer: Any, norm: Normalize | None, after: Normalize | None) -> Any:
    """What it says that it consists of; None where it does not say."""
    return sublayer.parts(norm, after) if defined_together(type(sublayer), "__call__", "parts") else None


def norms_fit(norm: Normalize | None, after: Normalize | None) -> bool:
    """Are these norms as operations take them?"""
    return (norm is None or isinstance(norm, NORMS)) and (after is None or isinstance(after, RMSNorm))


def _are_matrices(modules: Sequence[nn.Module], step: Step | None) -> bool:
    return (step is None or step.adapters is None) and MATRICES.issuperset(map(type, modules))
