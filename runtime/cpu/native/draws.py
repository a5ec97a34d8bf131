"""Tokens by the kernels: from logits, filters and noise to a token in one node.

Nothing is sorted but the best k, and noise is made for the few ids that may win with it (src/draw.c).
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import mlx.core as mx

from runtime.cpu.stated import Draws

MOST_TOP_K = 1024  # as in src/draw.h


def draw(kernels: Any) -> Callable[..., mx.array | None]:
    """As `runtime.nn.ops.Operations` has it."""
    node = kernels.draw

    @lru_cache(maxsize=64)
    def wanted(by: Draws) -> Any:
        least = [math.log(share) if share else -math.inf for share in by.min_p]
        return kernels.Draws(by.seeds, by.temperatures, by.top_k, by.top_p, least)

    def draw(logits: mx.array, by: Draws, positions: Sequence[int]) -> mx.array | None:
        if logits.dtype != mx.float32 or by.top_k > MOST_TOP_K:
            return None
        return node(logits, wanted(by), positions)

    return draw
