"""K-quants: 256 numbers share one or two 16-bit scales, and every 16 or 32 have a small one of 4 to 8 bits.

Layouts: ggml-common.h and ggml-quants.c of ggml (MIT).
"""

import mlx.core as mx

from runtime.blocks.groups import Groups, half, nibbles, spread, words


def _two_bits(data: mx.array) -> mx.array:
    """2-bit codes: of every 32 bytes the lowest pairs of bits, then the next."""
    parts = data.reshape(data.shape[0], -1, 1, 32)
    # Made here: a lazy array of the thread that imports this cannot be computed in another one.
    planes = mx.array([0, 2, 4, 6], dtype=mx.uint8)[:, None]
    return ((parts >> planes) & 3).reshape(data.shape[0], -1)


def q2_k(b: mx.array) -> Groups:
    small = b[:, :16]
    scales = half(b, 80) * (small & 15).astype(mx.float32)
    lows = half(b, 82) * (small >> 4).astype(mx.float32)
    return Groups(_two_bits(b[:, 16:80]), scales, 2, offsets=-lows)


def q3_k(b: mx.array) -> Groups:
    high = ((b[:, None, :32] >> mx.arange(8, dtype=mx.uint8)[:, None]) & 1).reshape(b.shape[0], -1)
    low = mx.swapaxes(spread(b[:, 96:104], (0, 4), 15), 1, 2).reshape(-1, 16)
    top = mx.swapaxes(spread(b[:, 104:108], (0, 2, 4, 6), 3), 1, 2).reshape(-1, 16)
    scales = half(b, 108) * ((low | top << 4).astype(mx.float32) - 32)
    return Groups(_two_bits(b[:, 32:96]) | high << 2, scales, 3, 4)


def _six_bits(packed: mx.array) -> tuple[mx.array, mx.array]:
    """Eight scales and eight minima of 6 bits out of 12 bytes, as floats."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = mx.concatenate([first & 63, (third & 15) | ((first >> 2) & 48)], axis=1)
    lows = mx.concatenate([second & 63, (third >> 4) | ((second >> 2) & 48)], axis=1)
    return scales.astype(mx.float32), lows.astype(mx.float32)


def q4_k(b: mx.array) -> Groups:
    scales, lows = _six_bits(b[:, 4:16])
    return Groups(nibbles(b[:, 16:], 32), half(b, 0) * scales, 4, offsets=-(half(b, 2) * lows))


def q5_k(b: mx.array) -> Groups:
    scales, lows = _six_bits(b[:, 4:16])
    high = ((b[:, None, 16:48] >> mx.arange(8, dtype=mx.uint8)[:, None]) & 1).reshape(b.shape[0], -1)
    codes = nibbles(b[:, 48:], 32) | high << 4
    return Groups(codes, half(b, 0) * scales, 5, offsets=-(half(b, 2) * lows))


def q6_k(b: mx.array) -> Groups:
    codes = nibbles(b[:, :128], 64) | _two_bits(b[:, 128:192]) << 4
    return Groups(codes, half(b, 208) * words(b, 192, 208, mx.int8).astype(mx.float32), 6, 32)
