"""Sublayers by the kernels, each in one node: norm, products, gate, closing product, what it is added to.

For float32 activations, matrices that `products` has a kernel for and norms with float32 weights. What a norm
holds is checked once and kept beside the module; a weight that is replaced is noticed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from runtime.cpu.composed import Composed, by_name
from runtime.cpu.native.activations import KINDS
from runtime.cpu.native.products import matrix_of

_KEPT = "_norm"


def table(kernels: Any, column: Any) -> dict[str, Callable[..., Any]]:
    """column: what the parts of a sublayer are computed by where there is no kernel for the whole."""
    parts = Composed(by_name(column, {"relu": lambda x: mx.maximum(x, 0)}))
    return {
        "projections": _projections(kernels, parts.projections),
        "closing": _closing(kernels, parts.closing),
        "feed_forward": _feed_forward(kernels, parts.feed_forward),
    }


def norm_of(kernels: Any, module: Any) -> Any:
    """The kernels' view of a norm; None where its weights are no float32."""
    kept = vars(module).get(_KEPT)
    weight, bias = module.get("weight"), module.get("bias")
    if kept is not None and kept[0] is weight and kept[1] is bias and kept[2] == module.eps:
        return kept[3]
    fits = all(part is None or part.dtype == mx.float32 for part in (weight, bias))
    norm = kernels.Norm(module.centred, weight, bias, module.eps) if fits else None
    vars(module)[_KEPT] = (weight, bias, module.eps, norm)
    return norm


def _projections(kernels: Any, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    node = kernels.projections

    def projections(modules: Sequence[Any], x: mx.array) -> Sequence[mx.array]:
        matrices = [matrix_of(kernels, module) for module in modules] if x.dtype == mx.float32 else [None]
        return otherwise(modules, x) if None in matrices else node(x, None, matrices)

    return projections


def _closing(kernels: Any, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    node = kernels.closing

    def closing(module: Any, x: mx.array, to: mx.array, after: Any) -> mx.array:
        if x.dtype == to.dtype == mx.float32:
            matrix = matrix_of(kernels, module)
            behind = None if after is None else norm_of(kernels, after)
            if matrix is not None and (after is None or behind is not None):
                return node(x, matrix, behind, to)
        return otherwise(module, x, to, after)

    return closing


def _feed_forward(kernels: Any, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    node = kernels.feed_forward

    def feed_forward(
        x: mx.array, norm: Any, opening: Sequence[Any], halves: bool, activation: str, down: Any, after: Any
    ) -> mx.array:
        if x.dtype == mx.float32:
            matrices = [matrix_of(kernels, module) for module in (*opening, down)]
            norms = [None if module is None else norm_of(kernels, module) for module in (norm, after)]
            missing = (norm is not None and norms[0] is None) or (after is not None and norms[1] is None)
            if None not in matrices and not missing:
                return node(x, norms[0], matrices[:-1], halves, KINDS[activation], matrices[-1], norms[1])
        return otherwise(x, norm, opening, halves, activation, down, after)

    return feed_forward
