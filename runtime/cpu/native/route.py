"""Routing by the kernels: from scores to experts and their weights in one node."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx

GATES = {"softmax": 0, "best": 1, "sigmoid": 2}
"""In the order of `enum mk_gates` (src/route.h)."""

Choice = tuple[mx.array, mx.array]


def route(kernels: Any) -> Callable[..., Choice | None]:
    """As `runtime.nn.ops.Operations` has it."""
    node = kernels.route

    def route(
        gates: str,
        scores: mx.array,
        k: int,
        *,
        correction: mx.array | None = None,
        groups: int = 1,
        top_groups: int = 1,
        normalize: bool = False,
        scale: float = 1.0,
    ) -> Choice | None:
        if scores.dtype != mx.float32 or (correction is not None and correction.dtype != mx.float32):
            return None
        return node(GATES[gates], scores, k, correction, groups, top_groups, normalize, scale)

    return route
