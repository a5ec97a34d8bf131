"""What has a number for each pair of a query and a key, for so many of a step's queries at a time.

A bias of scores is as large as they are, of which nobody else holds all: 4 GB for 64 heads, 512 tokens and
32,000 before them. No query's numbers change, since each has its own.

MLX computes what it can as early as it can. What is not to be held together has to wait (`after`).

Dimensions: B rows, H query heads, L tokens of a step, n of them, K keys, D numbers of whatever.
"""

from collections.abc import Callable

import mlx.core as mx

from runtime.parts.attention import Bias

HELD = 1 << 21
"""Scores, or numbers of their bias, that are made at once; 8 MiB in float32, which stay in a cache."""


def in_parts(
    answer: Callable[[range, mx.array], mx.array],
    bias: Bias,
    places: mx.array,
    width: int,
    held: int | None = None,
) -> mx.array:
    """What answer(n queries, their bias) gives, [..., n, D], of all L = width of them, part after part. For a
    bias may stand any array [B or 1, H, n or 1, K], and for places what it is made of. held: None: HELD.
    """
    held = held or HELD
    whole = bias(places, range(width))
    if whole.shape[2] == 1 or whole.size <= held:
        return answer(range(width), whole)
    at_once = max(1, held // (whole.size // width))
    parts: list[mx.array] = []
    for start in range(0, width, at_once):
        asking = range(start, min(start + at_once, width))
        parts.append(answer(asking, bias(places, asking)))
        places = after(places, parts[-1])
    return mx.concatenate(parts, axis=-2)


def after(x: mx.array, first: mx.array) -> mx.array:
    """x, for what is not to be computed before `first` is."""
    return mx.depends([x], [first])[0]


def of_tokens(x: mx.array, asking: range) -> mx.array:
    """[..., L or 1, D] -> [..., n or 1, D]"""
    return x if x.shape[-2] in (1, len(asking)) else x[..., asking.start : asking.stop, :]
