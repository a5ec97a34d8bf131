"""Experts by the kernels: each row by its own expert's matrix, brought into the order of experts in C.

A row's answer has the bits that a linear layer with its expert's matrix gives it, whatever rows are beside
it. Numbers of no expert get the nearest one.
"""

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from runtime.cpu.composed import RELU, Composed, by_name
from runtime.cpu.native.activations import KINDS
from runtime.cpu.native.module_cache import made_once
from runtime.cpu.native.products import FLOATS, matrix_of
from runtime.parts.feed_forward import ExpertParts

MOST_ASKED = 64  # answers that are summed up in one chain

Gather = Callable[[Any, mx.array, mx.array, bool], mx.array]


def table(kernels: Any, otherwise: Any) -> dict[str, Any]:
    """gather, ask, matmul and experts, as `runtime.nn.operations.signatures.Operations` has them."""
    return {
        "gather": _gather(kernels, otherwise.gather),
        "ask": ask,
        "matmul": _matmul(kernels, otherwise.matmul),
        "experts": _experts(kernels, Composed(by_name(otherwise, RELU)).experts),
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


def _experts(kernels: Any, otherwise: Callable[..., mx.array]) -> Callable[..., mx.array]:
    """A block of experts in one node."""

    def experts(
        by: ExpertParts, x: mx.array, chosen: mx.array, weights: mx.array, together: int | None
    ) -> mx.array:
        key = f"_experts {by.activation} {by.clip}"
        block = made_once(kernels, vars(by.down), key, by, make, by)
        if block is None or x.dtype != mx.float32 or chosen.shape[-1] > MOST_ASKED:
            return otherwise(by, x, chosen, weights, together)
        return block(x, chosen, weights.astype(mx.float32))

    def make(by: ExpertParts) -> Any:
        found = block_of(kernels, by)
        return None if found is None else kernels.ExpertBlock(*found)

    return experts


def block_of(kernels: Any, by: ExpertParts) -> tuple[Any, ...] | None:
    """What kernels take for a block of experts; None where they have no view of it."""
    *opening, down = [matrix_of(kernels, module) for module in (*by.opening, by.down)]
    limit, slope = by.clip or (0.0, 0.0)
    if None in opening or down is None or (by.clip is not None and limit <= 0):
        return None
    return opening, KINDS[by.activation], limit, slope, down


def ask(x: mx.array, chosen: mx.array, answer: Callable[..., mx.array], experts: int | None) -> mx.array:
    """In the order of tokens: the node of `gather` reads each expert's weights once."""
    return answer(x[..., None, None, :], chosen, False).squeeze(-2)
