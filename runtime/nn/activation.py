"""Activations, each with a form for a processor.

`mx.exp` is slow there: a polynomial whose fused multiply-adds are calls into the C library (10 to 25 ns an
element, where a sum takes 0.2 to 1). `mx.power` goes to the library's own power, three times faster and no
less exact, so long arrays take their exponentials from it. And those of `mlx.nn` are compiled, which on a
processor means to run a C++ compiler in the middle of a prompt.
"""

import math
from collections.abc import Callable

import mlx.core as mx
import mlx.nn as nn

from runtime.device import on_processor

Activation = Callable[[mx.array], mx.array]

LONG = 1 << 12
"""Elements from which the longer chain of nodes is the faster one."""


def long_here(x: mx.array) -> bool:
    """Is it worth avoiding `mx.exp` for this array?"""
    return x.size >= LONG and x.dtype == mx.float32 and on_processor()


def exp(x: mx.array) -> mx.array:
    """eˣ by the power function, for arrays that are `long_here`."""
    return mx.power(math.e, x)


def softmax(x: mx.array) -> mx.array:
    """Along the last axis."""
    if not long_here(x):
        return mx.softmax(x, axis=-1, precise=True)
    weights = exp(x - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def silu(x: mx.array) -> mx.array:
    """x · sigmoid(x)."""
    if long_here(x):
        return x / (mx.power(1 / math.e, x) + 1)
    return x * mx.sigmoid(x) if on_processor() else nn.silu(x)


def gelu_tanh(x: mx.array) -> mx.array:
    """x / 2 · (1 + tanh z) with z = √(2/π) (x + 0.044715 x³), which is x · sigmoid(2 z)."""
    if not on_processor():
        return nn.gelu_approx(x)
    twice = x * (x.square() * (0.044715 * _SLOPE) + _SLOPE)
    return x / (exp(-twice) + 1) if long_here(x) else x * mx.sigmoid(twice)


def gelu(x: mx.array) -> mx.array:
    """x · Φ(x), the exact one."""
    return x * (1 + mx.erf(x / math.sqrt(2))) / 2 if on_processor() else nn.gelu(x)


def relu(x: mx.array) -> mx.array:
    """max(x, 0)."""
    return mx.maximum(x, 0)


def relu2(x: mx.array) -> mx.array:
    """max(x, 0)²."""
    return relu(x).square() if on_processor() else nn.relu2(x)


def softplus(x: mx.array) -> mx.array:
    """log(1 + eˣ)."""
    return mx.logaddexp(x, 0)


_SLOPE = 2 * math.sqrt(2 / math.pi)
