"""What adapters add behind products, by the kernels: as a node of its own, or as part of the node that the
product is in.

For float32 rows and pairs of float types behind single matrices. Where one of the adapters has a whole
weight, or rows of a weight, in place of the base's, pairs are a node of their own, and it comes behind them
(`runtime.nn.adapters.rows`). Either way a row's bits are the same, whatever adapters its neighbours have.
"""

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from runtime.cpu.native.module_cache import made_once
from runtime.cpu.native.products import FLOATS, matrix_of
from runtime.step import Adapters

AddPairs = Callable[[Adapters, Any, Any, mx.array, mx.array], mx.array | None]
_STRIP = 32  # outputs that kernels compute together, MK_STRIP


def adding(kernels: Any, otherwise: AddPairs) -> AddPairs:
    """The operation `add_pairs`."""

    def add_pairs(adapters: Adapters, stack: Any, module: Any, x: mx.array, y: mx.array) -> mx.array | None:
        pairs = _pairs_of(kernels, stack, module) if x.dtype == y.dtype == mx.float32 else None
        if pairs is None:
            return otherwise(adapters, stack, module, x, y)
        return kernels.add_pairs(x, y, pairs, members_of(kernels, adapters))

    return add_pairs


def adapted_matrix_of(kernels: Any, module: Any, stacks: Any) -> Any:
    """The kernels' view of a module's weights with what the stacks's adapters add behind it; None where they
    have none. stacks None: of the weights alone.
    """
    matrix = matrix_of(kernels, module)
    if stacks is None or matrix is None:
        return matrix
    stack = stacks.get(module)
    if stack is None:
        return matrix
    pairs = None if stack.replaces else _pairs_of(kernels, stack, module)
    return None if pairs is None else matrix.paired(pairs)


def members_of(kernels: Any, adapters: Adapters | None) -> Any:
    """Which adapters a step's rows have."""
    if adapters is None:
        return None
    found = adapters.made.get("members")
    if found is None:
        found = adapters.made["members"] = kernels.Members(adapters.members)
    return found


def _pairs_of(kernels: Any, stack: Any, module: Any) -> Any:
    """None where kernels cannot add all of it."""
    return made_once(kernels, stack.made, "pairs", (module,), _pairs, kernels, stack, module)


def _pairs(kernels: Any, stack: Any, module: Any) -> Any:
    matrix, bias = matrix_of(kernels, module), module.get("bias")
    brought = [array for array in (stack.down, stack.up, stack.factor, stack.bias) if array is not None]
    if matrix is None or not brought or not all(array.dtype in FLOATS for array in brought):
        return None
    own = None if bias is None or stack.factor is None else bias.astype(mx.float32)
    wide = [None if array is None else array.astype(mx.float32) for array in (stack.factor, stack.bias)]
    up = None if stack.up is None else in_strips(stack.up)
    lying = [None if array is None else mx.contiguous(array) for array in (stack.down, up, *wide, own)]
    mx.eval([array for array in lying if array is not None])
    return kernels.Pairs(matrix.width, matrix.outputs, *lying, list(stack.places))


def in_strips(up: mx.array) -> mx.array:
    """[adapters, rank, outputs] as kernels read it: [adapters, strips, rank, 32], zeros behind the last."""
    adapters, rank, outputs = up.shape
    whole = mx.pad(up, [(0, 0), (0, 0), (0, -outputs % _STRIP)])
    return whole.reshape(adapters, rank, -1, _STRIP).swapaxes(1, 2)
