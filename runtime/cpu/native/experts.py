"""Experts by the kernels: each row by its own expert's matrix, brought into the order of experts in C.

A row's answer has the bits that a linear layer with its expert's matrix gives it, whatever rows are beside
it. Numbers of no expert get the nearest one.
"""

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from runtime.cpu.native.products import FLOATS, matrix_of

Gather = Callable[[Any, mx.array, mx.array, bool], mx.array]


def table(kernels: Any, otherwise: Any) -> dict[str, Any]:
    """gather, ask and matmul, as `runtime.nn.ops.Operations` has them."""
    return {
        "gather": _gather(kernels, otherwise.gather),
        "ask": ask,
        "matmul": _matmul(kernels, otherwise.matmul),
    }


def _gather(kernels: Any, otherwise: Gather) -> Gather:
    node = kernels.gather

    def gather(module: Any, x: mx.array, chosen: mx.array, ordered: bool) -> mx.array:
        stack = matrix_of(kernels, module) if x.dtype == mx.float32 else None
        return otherwise(module, x, chosen, ordered) if stack is None else node(x, chosen, stack)

    return gather


def _matmul(kernels: Any, otherwise: Callable[..., mx.array]) -> Callable[..., mx.array]:
    node = kernels.matmul

    def matmul(x: mx.array, w: mx.array, transposed: bool = False) -> mx.array:
        fits = x.dtype == mx.float32 and w.dtype in FLOATS and w.size > 0
        return node(x, w, transposed) if fits else otherwise(x, w, transposed)

    return matmul


def ask(x: mx.array, chosen: mx.array, answer: Callable[..., mx.array], experts: int | None) -> mx.array:
    """In the order of tokens: the node of `gather` reads each expert's weights once."""
    return answer(x[..., None, None, :], chosen, False).squeeze(-2)
