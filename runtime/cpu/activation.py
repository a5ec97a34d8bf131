"""Activations and the softmax for a processor.

`mx.exp` is slow there: a polynomial whose fused multiply-adds are calls into the C library (10 to 25 ns an
element, where a sum takes 0.2 to 1). `mx.power` goes to the library's own power, three times faster and no
less exact, so long arrays take their exponentials from it. And those of `mlx.nn` are compiled, which on a
processor means to run a C++ compiler in the middle of a prompt.
"""

import math
from collections.abc import Callable

import mlx.core as mx

LONG = 1 << 12
"""Elements from which the longer chain of nodes is the faster one."""


def is_long(x: mx.array) -> bool:
    """Is it worth avoiding `mx.exp` for this array?"""
    return x.size >= LONG and x.dtype == mx.float32


def exp(x: mx.array) -> mx.array:
    """eˣ by the power function, for arrays that are long."""
    return mx.power(math.e, x)


def softmax(x: mx.array) -> mx.array:
    """Along the last axis."""
    if not is_long(x):
        return mx.softmax(x, axis=-1, precise=True)
    weights = exp(x - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def silu(x: mx.array) -> mx.array:
    """x · sigmoid(x)."""
    return x / (mx.power(1 / math.e, x) + 1) if is_long(x) else x * mx.sigmoid(x)


def gelu_tanh(x: mx.array) -> mx.array:
    """x / 2 · (1 + tanh z) with z = √(2/π) (x + 0.044715 x³), which is x · sigmoid(2 z)."""
    twice = x * (x.square() * (0.044715 * _SLOPE) + _SLOPE)
    return x / (exp(-twice) + 1) if is_long(x) else x * mx.sigmoid(twice)


def gelu(x: mx.array) -> mx.array:
    """x · Φ(x)."""
    return x * (1 + mx.erf(x / math.sqrt(2))) / 2


def relu2(x: mx.array) -> mx.array:
    """max(x, 0)²."""
    return mx.maximum(x, 0).square()


def gating(otherwise: Callable[..., mx.array]) -> Callable[..., mx.array]:
    """act(gate) · up: by the activations of this room, else by `otherwise`."""
    known = {"silu": silu, "gelu": gelu, "gelu_tanh": gelu_tanh, "relu2": relu2}

    def gated(activation: str, gate: mx.array, up: mx.array) -> mx.array:
        act = known.get(activation)
        return otherwise(activation, gate, up) if act is None else act(gate) * up

    return gated


_SLOPE = 2 * math.sqrt(2 / math.pi)
