"""Types whose blocks have one scale, or a small float for each group: Q4_0 to Q8_0, one and two bits,
ternary, 4-bit floats.

Layouts: ggml-common.h and ggml-quants.c of ggml (MIT).
"""

import mlx.core as mx

from runtime.blocks.groups import Groups, bits_of, half, nibbles, spread, words


def q4_0(b: mx.array) -> Groups:
    return Groups(nibbles(b[:, 2:], 16), half(b, 0), 4, 8)


def q4_1(b: mx.array) -> Groups:
    return Groups(nibbles(b[:, 4:], 16), half(b, 0), 4, offsets=half(b, 2))


def q5_0(b: mx.array) -> Groups:
    return Groups(nibbles(b[:, 6:], 16) | bits_of(b[:, 2:6]) << 4, half(b, 0), 5, 16)


def q5_1(b: mx.array) -> Groups:
    return Groups(nibbles(b[:, 8:], 16) | bits_of(b[:, 4:8]) << 4, half(b, 0), 5, offsets=half(b, 2))


def q8_0(b: mx.array) -> Groups:
    """Signed bytes; turning the highest bit over adds 128."""
    return Groups(b[:, 2:] ^ 128, half(b, 0), 8, 128)


def q1_0(b: mx.array) -> Groups:
    """A bit says +d or -d."""
    d = half(b, 0)
    return Groups(bits_of(b[:, 2:]), d * 2, 1, offsets=-d)


def q2_0(b: mx.array) -> Groups:
    return Groups(spread(b[:, 2:], (0, 2, 4, 6), 3).reshape(b.shape[0], -1), half(b, 0), 2, 1)


def tq1_0(b: mx.array) -> Groups:
    """Five ternary digits in a byte, as a fraction of 256: each is the carry of a multiplication by three."""

    def digits(data: mx.array, count: int) -> mx.array:
        powers = mx.array([3**place for place in range(count)], dtype=mx.uint8)
        turned = (data[:, None, :] * powers[:, None]).astype(mx.uint16)  # modulo 256 first, as in ggml
        return ((turned * 3) >> 8).astype(mx.uint8).reshape(data.shape[0], -1)

    codes = mx.concatenate([digits(b[:, :32], 5), digits(b[:, 32:48], 5), digits(b[:, 48:52], 4)], axis=1)
    return Groups(codes, mx.repeat(half(b, 52), 2, axis=1), 2, 1)


def tq2_0(b: mx.array) -> Groups:
    parts = b[:, :64].reshape(-1, 2, 1, 32)
    shifts = mx.array([0, 2, 4, 6], dtype=mx.uint8)[:, None]
    codes = ((parts >> shifts) & 3).reshape(-1, 256)
    return Groups(codes, mx.repeat(half(b, 64), 2, axis=1), 2, 1)


# 4-bit floats (E2M1), doubled, and 16 on top so that codes are natural numbers.
_E2M1 = (16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4)


def mxfp4(b: mx.array) -> Groups:
    """The scale is half a power of two: its exponent is the byte less 128."""
    exponent = words(b, 0, 1, mx.uint8).astype(mx.uint32)
    small = mx.array(0x00200000, dtype=mx.uint32) << mx.minimum(exponent, 1)
    bits = mx.where(exponent < 2, small, (mx.maximum(exponent, 1) - 1) << 23)
    return Groups(_float4(nibbles(b[:, 1:], 16)), bits.view(mx.float32), 5, 16)


def nvfp4(b: mx.array) -> Groups:
    """Sixteen numbers have an unsigned 8-bit float (E4M3) as scale. Its highest bit counts for nothing, and
    0x7F is 0.
    """
    raw = b[:, :4]
    exponent, fraction = ((raw >> 3) & 15).astype(mx.int32), (raw & 7).astype(mx.float32)
    normal = ((exponent + 119) << 23).view(mx.float32) * (fraction / 8 + 1)  # 2 ** (exponent - 8)
    scales = mx.where(exponent == 0, fraction * 2**-10, normal)
    scales = mx.where(raw == 0x7F, mx.array(0, dtype=mx.float32), scales)
    return Groups(_float4(nibbles(b[:, 4:], 8)), scales, 5, 16)


def _float4(codes: mx.array) -> mx.array:
    return mx.take(mx.array(_E2M1, dtype=mx.uint8), codes)
