"""Padding in ragged steps, for layers that fold over tokens: what a padded token brings must change
nothing.
"""

import mlx.core as mx


def zero_padding(x: mx.array, counts: mx.array | None) -> mx.array:
    """x [B, L, ...] with zeros where a row's token is padding. counts: real tokens per row, None when all
    are.
    """
    if counts is None:
        return x
    real = mx.arange(x.shape[1]) < counts[:, None]
    return mx.where(real.reshape(*real.shape, *(1 for _ in x.shape[2:])), x, mx.array(0, x.dtype))


def to_chunks(x: mx.array, chunk: int) -> mx.array:
    """[B, L, H, ...] -> [B, H, N, chunk, ...], padded with zeros to N whole chunks."""
    batch, width = x.shape[:2]
    spare = -width % chunk
    if spare:
        x = mx.pad(x, [(0, 0), (0, spare), *((0, 0) for _ in x.shape[2:])])
    x = x.reshape(batch, -1, chunk, *x.shape[2:])
    return mx.moveaxis(x, 3, 1)


def from_chunks(x: mx.array, width: int) -> mx.array:
    """[B, H, N, chunk, D] -> [B, width, H, D], the padding cut off."""
    batch, heads, _, _, size = x.shape
    return x.reshape(batch, heads, -1, size)[:, :, :width].swapaxes(1, 2)


def chunk_of(width: int, largest: int) -> int:
    """The chunk for a step: `largest`, or the power of two that holds a shorter step."""
    return min(largest, 1 << (width - 1).bit_length())
