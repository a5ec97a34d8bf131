"""Activations by the names that they have in papers, computed by the table of operations."""

from collections.abc import Callable

import mlx.core as mx

from runtime.nn.module import Module
from runtime.nn.operations import ops

Activation = Callable[[mx.array], mx.array]


def softmax(x: mx.array) -> mx.array:
    """Along the last axis."""
    return ops.table.softmax(x)


def silu(x: mx.array) -> mx.array:
    """x · sigmoid(x)."""
    return ops.table.silu(x)


def gelu_tanh(x: mx.array) -> mx.array:
    """x / 2 · (1 + tanh z) with z = √(2/π) (x + 0.044715 x³)."""
    return ops.table.gelu_tanh(x)


def gelu(x: mx.array) -> mx.array:
    """x · Φ(x), the exact one."""
    return ops.table.gelu(x)


def relu(x: mx.array) -> mx.array:
    """max(x, 0)."""
    return mx.maximum(x, 0)


def relu2(x: mx.array) -> mx.array:
    """max(x, 0)²."""
    return ops.table.relu2(x)


def softplus(x: mx.array) -> mx.array:
    """log(1 + eˣ)."""
    return ops.table.softplus(x)


def sigmoid(x: mx.array) -> mx.array:
    """1 / (1 + e⁻ˣ)."""
    return ops.table.sigmoid(x)


def softcap(x: mx.array, cap: float) -> mx.array:
    """cap · tanh(x / cap)."""
    return ops.table.softcap(x, cap)


class XIELU(Module):
    """Quadratic above zero, an exponential below, both learned (arXiv 2411.13010).

    The checkpoint stores the softplus inverse of the two slopes, and the constants beta and eps.
    """

    def __init__(self) -> None:
        super().__init__()
        self.alpha_p = mx.zeros((1,))
        self.alpha_n = mx.zeros((1,))
        self.beta = mx.array(0.5)
        self.eps = mx.array(-1e-6)

    def __call__(self, x: mx.array) -> mx.array:
        return ops.table.bend(self, x)


NAMES: dict[Activation, str] = {
    silu: "silu",
    gelu: "gelu",
    gelu_tanh: "gelu_tanh",
    relu: "relu",
    relu2: "relu2",
    softplus: "softplus",
    sigmoid: "sigmoid",
}
"""What the table of operations calls them where one is part of something larger."""


def gated(activation: Activation, gate: mx.array, up: mx.array) -> mx.array:
    """activation(gate) · up."""
    name = NAMES.get(activation)
    return activation(gate) * up if name is None else ops.table.gated(name, gate, up)
