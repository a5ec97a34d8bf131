"""Linear layers and norms for a processor, where every node of a graph takes time (3 to 8 us).

MLX makes four nodes of a linear layer and eleven of an RMS norm, views and broadcasts included. What is the
same for every token (the transposed view, constants of the right rank) is made once and kept beside the
module, with the weights that it was made of: a weight that is replaced is noticed.
"""

from typing import Any

import mlx.core as mx
import mlx.nn as nn

_KEPT = "_kept"


def linear(module: Any, x: mx.array) -> mx.array:
    """x Wᵀ + b. One row [1, L, D] has nothing to flatten, and Wᵀ is seen as [1, D, E] once and for all."""
    shape = x.shape
    if "scales" in module:
        return nn.QuantizedLinear.__call__(module, x)
    if len(shape) != 3 or shape[0] != 1:
        return nn.Linear.__call__(module, x)
    weight, bias, kept = module["weight"], module.get("bias"), vars(module).get(_KEPT)
    if kept is None or kept[0] is not weight or kept[1] is not bias:
        kept = _keep(module, weight, bias, weight.T[None], None if bias is None else bias[None, None])
    return x @ kept[2] if bias is None else mx.addmm(kept[3], x, kept[2])


def rms_norm(module: Any, x: mx.array) -> mx.array:
    """x / √(Σx² / D + eps) · w for float32, all constants of x's own rank."""
    weight, kept = module["weight"], vars(module).get(_KEPT)
    if x.dtype != mx.float32 or x.ndim < 3 or weight.dtype != mx.float32:
        return mx.fast.rms_norm(x, weight, module.eps).astype(x.dtype)
    if kept is None or kept[0] is not weight or kept[1] != module.eps:
        part, eps = mx.full((1, 1, 1), 1 / weight.size), mx.full((1, 1, 1), module.eps)
        kept = _keep(module, weight, module.eps, part, eps, weight[None, None])
    mean = x.square().sum(-1, keepdims=True) * kept[2]
    return x * mx.rsqrt(mean + kept[3]) * kept[4]


def _keep(module: Any, *kept: Any) -> tuple[Any, ...]:
    """The first two say what the others were made of."""
    mx.eval(*(part for part in kept[2:] if part is not None))
    vars(module)[_KEPT] = kept
    return kept
