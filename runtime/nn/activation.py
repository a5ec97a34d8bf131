"""Activations by the names that they have in papers."""

from collections.abc import Callable

import mlx.core as mx
import mlx.nn as nn

from runtime.cpu import activation as cpu
from runtime.device import on_processor

Activation = Callable[[mx.array], mx.array]


def softmax(x: mx.array) -> mx.array:
    """Along the last axis."""
    return cpu.softmax(x) if on_processor() else mx.softmax(x, axis=-1, precise=True)


def silu(x: mx.array) -> mx.array:
    """x · sigmoid(x)."""
    return cpu.silu(x) if on_processor() else nn.silu(x)


def gelu_tanh(x: mx.array) -> mx.array:
    """x / 2 · (1 + tanh z) with z = √(2/π) (x + 0.044715 x³)."""
    return cpu.gelu_tanh(x) if on_processor() else nn.gelu_approx(x)


def gelu(x: mx.array) -> mx.array:
    """x · Φ(x), the exact one."""
    return cpu.gelu(x) if on_processor() else nn.gelu(x)


def relu(x: mx.array) -> mx.array:
    """max(x, 0)."""
    return mx.maximum(x, 0)


def relu2(x: mx.array) -> mx.array:
    """max(x, 0)²."""
    return cpu.relu2(x) if on_processor() else nn.relu2(x)


def softplus(x: mx.array) -> mx.array:
    """log(1 + eˣ)."""
    return mx.logaddexp(x, 0)
