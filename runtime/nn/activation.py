"""Activations by the names that they have in papers, computed by the table of operations."""

from collections.abc import Callable

import mlx.core as mx

from runtime.nn import ops

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


def gated(activation: Activation, gate: mx.array, up: mx.array) -> mx.array:
    """activation(gate) · up."""
    return ops.table.swiglu(gate, up) if activation is silu else activation(gate) * up
