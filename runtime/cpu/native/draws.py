"""Tokens by the kernels: from logits, filters and noise to a token in one node.

Nothing is sorted but the best k, and noise is made for the few ids that may win with it (src/draw.c).
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import mlx.core as mx

from runtime.parts.draws import DrawParams, LogitBiases

MOST_TOP_K = 1024  # as in src/draw.h
LEAST_MASS = 2.0**-64  # float32 has no number for every mass above 0; of this one the likeliest alone is left


def draw(kernels: Any) -> Callable[..., mx.array | None]:
    """As `runtime.nn.operations.signatures.Operations` has it."""
    node = kernels.draw

    def draw(logits: mx.array, by: DrawParams, positions: Sequence[int]) -> mx.array | None:
        wanted = draws_of(kernels, by) if logits.dtype == mx.float32 else None
        return None if wanted is None else node(logits, wanted, positions)

    return draw


@lru_cache(maxsize=64)
def draws_of(kernels: Any, by: DrawParams) -> Any:
    """The kernels' view of what rows want; None where they cannot draw so."""
    if max(by.top_k, default=0) > MOST_TOP_K:
        return None
    least = [math.log(share) if share else -math.inf for share in by.min_p]
    top, typical = ([max(mass, LEAST_MASS) for mass in masses] for masses in (by.top_p, by.typical_p))
    return kernels.Draws(by.seeds, by.temperatures, by.top_k, top, least, typical)


@lru_cache(maxsize=8)
def biases_of(kernels: Any, by: LogitBiases) -> Any:
    """The kernels' view of what is added to logits. Few are kept, since each is of other rows than the one
    before, and a vocabulary may have tens of thousands of ids that are no token's.
    """
    return kernels.Biases(by.ids, by.values)
