"""Positions as waves of many lengths (arXiv 1706.03762): sines of all of them, then cosines."""

import math

import mlx.core as mx


def sinusoids(rows: mx.array, half: int, spread: int) -> mx.array:
    """float32 [..., 2 * half] for positions [...]. The n-th of `half` waves is 10,000 ** (n / spread) times
    as long as the first.
    """
    step = -math.log(10000.0) / spread
    angles = rows[..., None] * mx.array([math.exp(step * place) for place in range(half)])
    return mx.concatenate([mx.sin(angles), mx.cos(angles)], axis=-1)
