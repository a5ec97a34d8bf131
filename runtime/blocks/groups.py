"""What all block types have in common: codes, and for every group of them a scale and an offset.

A number is `scale * (code - zero)` where codes lie around a zero, else `scale * code + offset`. Scales, zeros
and products are exact in float32, so both give the very numbers that ggml computes in float32: at most the
last step rounds, and it is the same one.

Readers take blocks uint8 [N, bytes of a block] and give N blocks' groups. All of it is lazy MLX.
"""

import mlx.core as mx

from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Groups:
    """N blocks of one type."""

    codes: mx.array
    """uint8 [N, weights of a block]."""
    scales: mx.array
    """float32 [N, groups of a block]."""
    bits: int
    """That the codes need."""
    zero: int = 0
    """The code that stands for 0; not used where there are offsets."""
    offsets: mx.array | None = None
    """float32 [N, groups]; None: codes lie around `zero`."""

    def numbers(self) -> mx.array:
        """float32 [N, weights of a block]."""
        codes = self.codes.reshape(*self.scales.shape, -1)
        if self.offsets is None:
            zero = mx.array(self.zero, dtype=mx.float32)
            found = self.scales[..., None] * (codes.astype(mx.float32) - zero)
        else:
            found = self.scales[..., None] * codes.astype(mx.float32) + self.offsets[..., None]
        return found.reshape(self.codes.shape)

    def biases(self) -> mx.array:
        """What is added to scale * code: float32 [N, groups]."""
        return self.scales * mx.array(-self.zero, dtype=mx.float32) if self.offsets is None else self.offsets


def half(blocks: mx.array, at: int) -> mx.array:
    """The float16 at byte `at` of each block, as float32 [N, 1]."""
    return mx.contiguous(blocks[:, at : at + 2]).view(mx.float16).astype(mx.float32)


def words(blocks: mx.array, start: int, stop: int, kind: mx.Dtype) -> mx.array:
    """Bytes start .. stop of each block as little-endian integers."""
    return mx.contiguous(blocks[:, start:stop]).view(kind)


def nibbles(data: mx.array, width: int) -> mx.array:
    """4-bit codes [N, 2 · bytes]: of every `width` bytes the low halves, then the high ones."""
    parts = data.reshape(data.shape[0], -1, 1, width)
    return mx.concatenate([parts & 15, parts >> 4], axis=2).reshape(data.shape[0], -1)


def spread(data: mx.array, shifts: tuple[int, ...], mask: int) -> mx.array:
    """Each of the last axis's items shifted right by each of `shifts`, masked: [..., items, shifts]."""
    return (data[..., None] >> mx.array(shifts, dtype=data.dtype)) & mask


def bits_of(data: mx.array) -> mx.array:
    """Single bits of bytes, lowest first: [N, 8 · bytes]."""
    return spread(data, tuple(range(8)), 1).reshape(data.shape[0], -1)
