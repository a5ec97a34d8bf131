"""Feed-forward blocks of a router and experts, [B, L, D] -> [B, L, D], named as most checkpoints do."""

from typing import ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.nn.activation import sigmoid
from runtime.nn.feed_forward.experts import Experts
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.feed_forward.router import Router, choose
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize
from runtime.nn.residual.sublayer import Always, mixture_parts
from runtime.parts.feed_forward import MixtureParts, Routing
from runtime.step import Step


class SoftmaxMoE(Module):
    """The probabilities of the best experts weigh their answers (Mixtral, OLMoE, Qwen3-MoE)."""

    adds: ClassVar[tuple[str, ...]] = ("switch_mlp",)
    """Said beside the call of a mixture: children whose answers it adds up, each times numbers that do not
    depend on them. So parts of these give parts of its answer (`runtime.ranks.splits`); what else it has
    stays whole. A name that it has no child of counts for nothing.
    """

    def __init__(
        self, hidden: int, inner: int, experts: int, chosen: int, *, normalize: bool, activation: str = "silu"
    ) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.switch_mlp = Experts(hidden, inner, experts, activation=activation)
        self._routing = Routing("softmax", chosen, normalize=normalize)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        return self.switch_mlp(x, choose(self._routing, linear(self.gate, x, step)), step)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> MixtureParts | None:
        """See `sublayer.added`."""
        return mixture_parts(norm, self.gate, self._routing, self.switch_mlp, after)


class GatedSharedMoE(SoftmaxMoE):
    """With one more expert that always answers, under a sigmoid gate (Qwen2-MoE)."""

    adds: ClassVar[tuple[str, ...]] = ("switch_mlp", "shared_expert")

    def __init__(
        self,
        hidden: int,
        inner: int,
        experts: int,
        chosen: int,
        *,
        shared: int,
        normalize: bool,
        activation: str = "silu",
    ) -> None:
        super().__init__(hidden, inner, experts, chosen, normalize=normalize, activation=activation)
        self.shared_expert = GatedMLP(hidden, shared, activation=activation)
        self.shared_expert_gate = nn.Linear(hidden, 1, bias=False)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        gate = sigmoid(linear(self.shared_expert_gate, x, step))
        return super().__call__(x, step) + gate * self.shared_expert(x, step)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> MixtureParts | None:
        """See `sublayer.added`."""
        shared = Always(self.shared_expert, self.shared_expert_gate)
        return mixture_parts(norm, self.gate, self._routing, self.switch_mlp, after, shared)


class SharedMoE(Module):
    """Any router, and shared experts fused into one MLP, 0 wide for none (DeepSeek). clip: as of `Experts`,
    for both.
    """

    adds: ClassVar[tuple[str, ...]] = ("switch_mlp", "shared_experts")

    def __init__(
        self,
        hidden: int,
        inner: int,
        experts: int,
        router: Router,
        *,
        shared: int,
        activation: str = "silu",
        clip: tuple[float, float] | None = None,
    ) -> None:
        super().__init__()
        self.gate: Router = router
        self.switch_mlp = Experts(hidden, inner, experts, activation=activation, clip=clip)
        if shared:
            self.shared_experts = GatedMLP(hidden, shared, activation=activation, clip=clip)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        answer = self.switch_mlp(x, self.gate(x, step), step)
        return answer + self.shared_experts(x, step) if "shared_experts" in self else answer

    def parts(self, norm: Normalize | None, after: Normalize | None) -> MixtureParts | None:
        """See `sublayer.added`."""
        shared = Always(self.shared_experts) if "shared_experts" in self else None
        return mixture_parts(norm, self.gate, None, self.switch_mlp, after, shared)
