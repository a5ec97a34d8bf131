"""Norms beyond the two that MLX has. D: the dimension a norm runs over.

Zero-centred norms (Gemma's RMSNorm, Nemotron's LayerNorm1P) multiply by 1 + weight. Their weights get the 1
added once, when they are loaded (`one_added`), and run as plain norms after that. The sum is float32 whatever
the file's type: near 1 a 16-bit float has 3 digits, and files store less than 1 because it has more near 0.
"""

from collections.abc import Callable

import mlx.core as mx
import mlx.nn as nn

Norm = Callable[[], nn.Module]
"""Makes one norm of a block; blocks call it once for each place that has one."""


def rms(x: mx.array, eps: float) -> mx.array:
    """x over the root of its mean square along the last axis, without a weight."""
    return mx.fast.rms_norm(x, None, eps)


def one_added(weights: dict[str, mx.array], suffix: str = "norm.weight") -> dict[str, mx.array]:
    """The same tensors, 1 added in float32 to those whose name ends in `suffix`. Lazy."""
    return {name: plus_one(array) if name.endswith(suffix) else array for name, array in weights.items()}


def plus_one(weight: mx.array) -> mx.array:
    return weight.astype(mx.float32) + 1


class HeadLayerNorm(nn.Module):
    """LayerNorm of each head with that head's own weight [heads, D] and no bias; x is [B, heads, L, D]."""

    def __init__(self, heads: int, dims: int, eps: float) -> None:
        super().__init__()
        self.weight = mx.ones((heads, dims))
        self._eps = eps

    def __call__(self, x: mx.array) -> mx.array:
        return mx.fast.layer_norm(x, None, None, self._eps) * self.weight[:, None]
