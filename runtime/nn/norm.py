"""Norms, computed by the table of operations. D: the dimension a norm runs over. All answer in x's type.

Zero-centred norms (Gemma's RMSNorm, Nemotron's LayerNorm1P) multiply by 1 + weight. Their weights get the 1
added once, when they are loaded (`one_added`), and run as plain norms after that. The sum is float32 whatever
the file's type: near 1 a 16-bit float has 3 digits, and files store less than 1 because it has more near 0.
"""

from collections.abc import Callable
from typing import ClassVar

import mlx.core as mx

from runtime.nn.module import Module
from runtime.nn.operations import ops

Normalize = Callable[[mx.array], mx.array]
"""A norm, as blocks call it: a module with that call."""

Norm = Callable[[], Normalize]
"""Makes one norm of a block; blocks call it once for each place that has one."""


class RMSNorm(Module):
    """x over the root of its mean square along the last axis, times the weight [D]."""

    centred: ClassVar[bool] = False

    def __init__(self, dims: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = mx.ones((dims,))
        self.eps = eps

    def __call__(self, x: mx.array) -> mx.array:
        return ops.table.rms_norm(self, x)


class LayerNorm(Module):
    """x less its mean, over its spread, times the weight [D], plus the bias [D]; each where it has one."""

    centred: ClassVar[bool] = True

    def __init__(self, dims: int, eps: float = 1e-5, *, weight: bool = True, bias: bool = True) -> None:
        super().__init__()
        if weight:
            self.weight = mx.ones((dims,))
        if bias:
            self.bias = mx.zeros((dims,))
        self.eps = eps

    def __call__(self, x: mx.array) -> mx.array:
        return ops.table.layer_norm(self, x)


def added_normed(x: mx.array, norm: Normalize, y: mx.array) -> mx.array:
    """x + norm(y)"""
    return ops.table.add_rms_norm(norm, y, x) if isinstance(norm, RMSNorm) else x + norm(y)


def rms(x: mx.array, eps: float) -> mx.array:
    """x over the root of its mean square along the last axis, without a weight."""
    return ops.table.rms(x, eps)


class PlainRMS(Module):
    """The same as a module, for places where others have a norm with weights."""

    centred: ClassVar[bool] = False

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def __call__(self, x: mx.array) -> mx.array:
        return rms(x, self.eps)


class UnitNorm(Module):
    """x over its length along the last axis, which is 1 then; no weight."""

    centred: ClassVar[bool] = False

    def __init__(self, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps

    def __call__(self, x: mx.array) -> mx.array:
        size = x.shape[-1]
        return rms(x, self.eps / size) * size**-0.5


def one_added(weights: dict[str, mx.array], suffix: str = "norm.weight") -> dict[str, mx.array]:
    """The same tensors, 1 added in float32 to those whose name ends in `suffix`. Lazy."""
    return {name: plus_one(array) if name.endswith(suffix) else array for name, array in weights.items()}


def plus_one(weight: mx.array) -> mx.array:
    return weight.astype(mx.float32) + 1


class HeadLayerNorm(Module):
    """LayerNorm of each head with that head's own weight [heads, D] and no bias; x is [B, heads, L, D]."""

    centred: ClassVar[bool] = True

    def __init__(self, heads: int, dims: int, eps: float) -> None:
        super().__init__()
        self.weight = mx.ones((heads, dims))
        self.eps = eps

    def __call__(self, x: mx.array) -> mx.array:
        return ops.table.standardize(x, self.eps) * self.weight[:, None]
