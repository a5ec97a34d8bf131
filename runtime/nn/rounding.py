"""Inputs of 8 bits (BitNet b1.58): what a matrix reads, rounded by the largest of each token."""

import mlx.core as mx

from runtime.nn.norm import RMSNorm

_LEAST = 1e-5
"""What the largest is taken for at least."""


def rounded(x: mx.array, largest: mx.array | None = None) -> mx.array:
    """Rows [..., K] of K numbers to whole multiples, -128 to 127, of a 127th of each row's largest. largest:
    that, float32 [..., 1], where x is a part of a row.
    """
    wide = x.astype(mx.float32)
    if largest is None:
        largest = mx.max(mx.abs(wide), axis=-1, keepdims=True)
    scale = 127 / mx.maximum(largest, _LEAST)
    return (mx.clip(mx.round(wide * scale), -128, 127) / scale).astype(x.dtype)


class RoundingNorm(RMSNorm):
    """In front of a matrix. rounds: what it gives is rounded then."""

    def __init__(self, dims: int, eps: float, *, rounds: bool) -> None:
        super().__init__(dims, eps)
        self.rounds = rounds

    def __call__(self, x: mx.array) -> mx.array:
        return rounded(super().__call__(x)) if self.rounds else super().__call__(x)
