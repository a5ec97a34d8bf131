"""Linear layers by the kernels: products of float32 rows with matrices of any format, read where they lie.

A matrix, its arrays with what their shapes say, is checked once and kept beside the module (`watched`).
"""

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from runtime.cpu.native.module_cache import made_once

Linear = Callable[[Any, mx.array], mx.array]

MODES = ("affine", "mxfp4", "mxfp8", "nvfp4")
FLOATS = (mx.float32, mx.bfloat16, mx.float16)
BLOCKS = ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs", "iq4_nl")
"""GGUF's types whose blocks are multiplied as they lie."""
_KEPT = "_matrix"


def linear(kernels: Any, otherwise: Linear) -> Linear:
    product = kernels.product

    def linear(module: Any, x: mx.array) -> mx.array:
        matrix = matrix_of(kernels, module) if x.dtype == mx.float32 else None
        return otherwise(module, x) if matrix is None else product(x, matrix)

    return linear


def matrix_of(kernels: Any, module: Any) -> Any:
    """The kernels' view of a module's weights; None where they have no product for them."""
    return made_once(kernels, vars(module), _KEPT, (module,), _matrix, kernels, module)


def _matrix(kernels: Any, module: Any) -> Any:
    weight, bias, blocks = module["weight"], module.get("bias"), vars(module).get("blocks")
    if blocks is not None:
        return kernels.Matrix(weight, None, None, bias, mode=blocks.name) if blocks.name in BLOCKS else None
    return _packed(kernels, module, bias) if "scales" in module else _floats(kernels, weight, bias)


def _packed(kernels: Any, module: Any, bias: mx.array | None) -> Any:
    if module.mode not in MODES:
        return None
    codes, scales, biases = module["weight"], module["scales"], module.get("biases")
    return kernels.Matrix(codes, scales, biases, bias, module.group_size, module.bits, module.mode)


def _floats(kernels: Any, weight: mx.array, bias: mx.array | None) -> Any:
    return kernels.Matrix(weight, None, None, bias) if weight.dtype in FLOATS else None
