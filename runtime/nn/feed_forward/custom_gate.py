"""Feed-forward blocks with a gate that kernels do not know: of what two matrices give a function makes what
the last one reads.
"""

from collections.abc import Callable

import mlx.core as mx

from runtime.nn.activation import sigmoid, silu, softcap
from runtime.nn.feed_forward.experts import Experts
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.linear import linear
from runtime.nn.norm import Normalize
from runtime.nn.residual.sublayer import projections
from runtime.parts.feed_forward import ExpertParts, FeedForwardParts
from runtime.step import Step

Gate = Callable[[mx.array, mx.array], mx.array]
"""(gate, up) -> what the last matrix reads."""


def clipped_behind(limit: float) -> Gate:
    """The gate is clipped behind its activation (Step 3.5)."""
    return lambda gate, up: mx.minimum(silu(gate), limit) * mx.clip(up, -limit, limit)


def clipped_before(limit: float) -> Gate:
    """The gate is clipped before it (DeepSeek V4, Hunyuan V4, GLM-5.3)."""
    return lambda gate, up: silu(mx.minimum(gate, limit)) * mx.clip(up, -limit, limit)


def situ(beta: float, linear_beta: float | None) -> Gate:
    """beta tanh(gate / beta) sigmoid(gate), and up within linear_beta alike (Kimi K3). In float32."""

    def inner(gate: mx.array, up: mx.array) -> mx.array:
        wide, passing = gate.astype(mx.float32), up.astype(mx.float32)
        if linear_beta is not None:
            passing = linear_beta * mx.tanh(passing / linear_beta)
        return (beta * mx.tanh(wide / beta) * sigmoid(wide) * passing).astype(up.dtype)

    return inner


def capped(of_gate: float, of_up: float) -> Gate:
    """Both have soft caps; what opens a gate sees it as it was (Inkling 2). In float32."""

    def inner(gate: mx.array, up: mx.array) -> mx.array:
        wide = gate.astype(mx.float32)
        bent = softcap(wide, of_gate) * sigmoid(wide) * softcap(up.astype(mx.float32), of_up)
        return bent.astype(gate.dtype)

    return inner


class CustomGateMLP(GatedMLP):
    def __init__(self, hidden: int, inner: int, gate: Gate, *, bias: bool = False) -> None:
        super().__init__(hidden, inner, bias=bias)
        self._gate = gate

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        gate, up = projections((self.gate_proj, self.up_proj), x, step)
        return linear(self.down_proj, self._gate(gate, up), step)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> FeedForwardParts | None:
        return None


class CustomGateExperts(Experts):
    def __init__(self, hidden: int, inner: int, experts: int, gate: Gate) -> None:
        super().__init__(hidden, inner, experts)
        self._gate = gate

    def stacks(self) -> ExpertParts | None:
        return None

    def gated(self, gate: mx.array, up: mx.array) -> mx.array:
        return self._gate(gate, up)
