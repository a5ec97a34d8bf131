"""Linear layers by the kernels: products of float32 rows with matrices of any format, read where they lie.

A matrix, its arrays with what their shapes say, is checked once and kept beside the module; a weight that is
replaced is noticed.
"""

from collections.abc import Callable
from typing import Any

import mlx.core as mx

Linear = Callable[[Any, mx.array], mx.array]

MODES = ("affine", "mxfp4", "mxfp8", "nvfp4")
FLOATS = (mx.float32, mx.bfloat16, mx.float16)
_KEPT = "_matrix"


def linear(kernels: Any, otherwise: Linear) -> Linear:
    product = kernels.product

    def linear(module: Any, x: mx.array) -> mx.array:
        matrix = matrix_of(kernels, module) if x.dtype == mx.float32 else None
        return otherwise(module, x) if matrix is None else product(x, matrix)

    return linear


def matrix_of(kernels: Any, module: Any) -> Any:
    """The kernels' view of a module's weights; None where they have no product for them."""
    kept = vars(module).get(_KEPT)
    weight, scales, bias = module["weight"], module.get("scales"), module.get("bias")
    if kept is not None and kept[0] is weight and kept[1] is scales and kept[2] is bias:
        return kept[3]
    matrix = _floats(kernels, weight, bias) if scales is None else _packed(kernels, module, bias)
    vars(module)[_KEPT] = (weight, scales, bias, matrix)
    return matrix


def _packed(kernels: Any, module: Any, bias: mx.array | None) -> Any:
    if module.mode not in MODES:
        return None
    codes, scales, biases = module["weight"], module["scales"], module.get("biases")
    return kernels.Matrix(codes, scales, biases, bias, module.group_size, module.bits, module.mode)


def _floats(kernels: Any, weight: mx.array, bias: mx.array | None) -> Any:
    return kernels.Matrix(weight, None, None, bias) if weight.dtype in FLOATS else None
