"""Routing by the kernels: from scores to experts and their weights in one node."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from runtime.parts.feed_forward import Routing

GATES = {"softmax": 0, "best": 1, "sigmoid": 2, "late": 3, "near": 4}
"""In the order of `enum mk_gates` (src/route.h)."""

Choice = tuple[mx.array, mx.array]


def route(kernels: Any) -> Callable[..., Choice | None]:
    """As `runtime.nn.operations.signatures.Operations` has it."""
    node = kernels.route

    def route(by: Routing, scores: mx.array) -> Choice | None:
        if by.gates not in GATES or scores.dtype != mx.float32:
            return None
        return node(routing_of(kernels, by), scores)

    return route


def routing_of(kernels: Any, by: Routing) -> Any:
    return kernels.Routing(GATES[by.gates], *by[1:])
