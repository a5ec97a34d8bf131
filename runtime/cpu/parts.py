"""Attention whose scores have a bias, for so many of a step's queries at a time.

A bias is as large as the scores are, of which nobody else holds all: 4 GB for 64 heads, 512 tokens and 32,000
before them. No query's numbers change, since each has its own.

Dimensions: B rows, H query heads, L tokens of a step, n of them, K keys, D numbers of whatever.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import mlx.core as mx

if TYPE_CHECKING:
    from runtime.nn.operations import Bias

HELD = 1 << 24
"""Numbers of a bias that are made at once; 64 MiB in float32."""


def in_parts(
    answer: Callable[[range, mx.array], mx.array], bias: "Bias", places: mx.array, width: int
) -> mx.array:
    """What answer(n queries, their bias) gives, [B, n, D], of all L = width of them, part after part."""
    whole = bias(places, range(width))
    if whole.shape[2] == 1 or whole.size <= HELD:
        return answer(range(width), whole)
    at_once = max(1, HELD // (whole.size // width))
    parts: list[mx.array] = []
    for start in range(0, width, at_once):
        asking = range(start, min(start + at_once, width))
        parts.append(answer(asking, bias(places, asking)))
        # Or the biases of all parts would be computed first.
        places = mx.depends([places], parts[-1:])[0]
    return mx.concatenate(parts, axis=1)


def of_tokens(x: mx.array, asking: range) -> mx.array:
    """[..., L or 1, D] -> [..., n or 1, D]"""
    return x if x.shape[-2] in (1, len(asking)) else x[..., asking.start : asking.stop, :]
