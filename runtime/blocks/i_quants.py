"""I-quants: eight (or four) numbers at a time come from a table, with signs and a scale of their own.

The tables, 256 to 2048 rows each, are those of ggml, taken from the `gguf` package (both MIT) when one is
needed. Layouts: ggml-common.h and ggml-quants.c.
"""

from functools import cache

import mlx.core as mx

from runtime.blocks.groups import Groups, bits_of, half, nibbles, spread, words

# The 16 values of IQ4, with 128 on top.
_IQ4 = (1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241)
_SHIFTS = (0, 7, 14, 21)


@cache
def _table(name: str) -> mx.array:
    """A grid [rows, 4 or 8] of int16."""
    from gguf import quants

    kind = getattr(quants, name)
    kind.init_grid()
    rows, width = kind.grid_shape
    with mx.stream(mx.cpu):
        found = mx.array(kind.grid.reshape(rows, width).astype("int16"))
        mx.eval(found)
    return found


def _signed(magnitudes: mx.array, negative: mx.array) -> mx.array:
    """Codes around 128. magnitudes: int16; negative: bits of the same number."""
    signs = 1 - 2 * negative.reshape(magnitudes.shape).astype(mx.int16)
    return (magnitudes * signs + 128).astype(mx.uint8)


def _even(seven: mx.array) -> mx.array:
    """Eight signs out of 7 bits: the last one makes the number of negative ones even."""
    folded = seven ^ (seven >> 4)
    folded = folded ^ (folded >> 2)
    parity = (folded ^ (folded >> 1)) & 1
    return bits_of((seven | parity << 7).astype(mx.uint8).reshape(seven.shape[0], -1))


def _pairs(data: mx.array) -> mx.array:
    """Low and high halves of bytes, in turn."""
    return spread(data, (0, 4), 15).reshape(data.shape[0], -1)


def iq4_nl(b: mx.array) -> Groups:
    return Groups(_iq4(nibbles(b[:, 2:], 16)), half(b, 0), 8, 128)


def iq4_xs(b: mx.array) -> Groups:
    high = spread(words(b, 2, 4, mx.uint16), tuple(range(0, 16, 2)), 3).reshape(-1, 8).astype(mx.uint8)
    scales = (_pairs(b[:, 4:8]) | high << 4).astype(mx.float32) - 32
    return Groups(_iq4(nibbles(b[:, 8:], 16)), half(b, 0) * scales, 8, 128)


def _iq4(codes: mx.array) -> mx.array:
    return mx.take(mx.array(_IQ4, dtype=mx.uint8), codes)


def iq2_xxs(b: mx.array) -> Groups:
    pairs = words(b, 2, 66, mx.uint32).reshape(-1, 8, 2)
    signs = _even(spread(pairs[..., 1], _SHIFTS, 127).astype(mx.uint8).reshape(-1, 32))
    rows = mx.contiguous(pairs[..., 0]).view(mx.uint8).reshape(-1, 32)
    scales = half(b, 0) * ((pairs[..., 1] >> 28).astype(mx.float32) + 0.5) * 0.25
    return Groups(_looked_up("IQ2_XXS", rows, signs), scales, 8, 128)


def iq2_xs(b: mx.array) -> Groups:
    packed = words(b, 2, 66, mx.uint16)
    signs = _even((packed >> 9).astype(mx.uint8))
    return Groups(_looked_up("IQ2_XS", packed & 511, signs), _quarters(b, b[:, 66:]), 8, 128)


def iq2_s(b: mx.array) -> Groups:
    high = spread(b[:, 66:74], (0, 2, 4, 6), 3).reshape(b.shape[0], -1).astype(mx.uint16)
    rows = b[:, 2:34].astype(mx.uint16) | high << 8
    return Groups(_looked_up("IQ2_S", rows, bits_of(b[:, 34:66])), _quarters(b, b[:, 74:]), 8, 128)


def _quarters(b: mx.array, small: mx.array) -> mx.array:
    return half(b, 0) * (_pairs(small).astype(mx.float32) + 0.5) * 0.25


def iq3_xxs(b: mx.array) -> Groups:
    packed = words(b, 66, 98, mx.uint32)
    signs = _even(spread(packed, _SHIFTS, 127).astype(mx.uint8).reshape(-1, 32))
    scales = half(b, 0) * ((packed >> 28).astype(mx.float32) + 0.5) * 0.5
    return Groups(_looked_up("IQ3_XXS", b[:, 2:66], signs), scales, 8, 128)


def iq3_s(b: mx.array) -> Groups:
    rows = b[:, 2:66].astype(mx.uint16) | bits_of(b[:, 66:74]).astype(mx.uint16) << 8
    scales = half(b, 0) * (_pairs(b[:, 106:]) * 2 + 1).astype(mx.float32)
    return Groups(_looked_up("IQ3_S", rows, bits_of(b[:, 74:106])), scales, 8, 128)


def _looked_up(table: str, rows: mx.array, negative: mx.array) -> mx.array:
    found = mx.take(_table(table), rows, axis=0).reshape(rows.shape[0], -1)
    return _signed(found, negative)


def iq1_s(b: mx.array) -> Groups:
    """Codes -1, 0, 1, and a shift of an eighth up or down for each 32."""
    packed = words(b, 34, 50, mx.uint16)
    high = spread(packed, (0, 3, 6, 9), 7).reshape(-1, 32)
    rows = b[:, 2:34].astype(mx.uint16) | high << 8
    scales = half(b, 0) * (((packed >> 12) & 7) * 2 + 1).astype(mx.float32)
    shift = mx.where((packed & 0x8000) != 0, -1.125, -0.875)
    codes = (mx.take(_table("IQ1_S"), rows, axis=0) + 1).astype(mx.uint8).reshape(-1, 256)
    return Groups(codes, scales, 2, offsets=scales * shift)


def iq1_m(b: mx.array) -> Groups:
    """As IQ1_S, shifted for each 8; codes count eighths. The scale's 16 bits lie in four words."""
    packed = words(b, 48, 56, mx.uint16)
    nibble = packed >> 12
    whole = nibble[:, 0] | nibble[:, 1] << 4 | nibble[:, 2] << 8 | nibble[:, 3] << 12
    d = whole.astype(mx.uint16).view(mx.float16).astype(mx.float32)[:, None]
    small = spread(packed, (0, 3, 6, 9), 7).reshape(-1, 16)
    high = spread(b[:, 32:48], (0, 4), 15).reshape(-1, 32)
    rows = b[:, :32].astype(mx.uint16) | (high & 7).astype(mx.uint16) << 8
    shift = mx.where((high & 8) != 0, mx.array(-1, dtype=mx.int16), mx.array(1, dtype=mx.int16))
    eighths = mx.take(_table("IQ1_S"), rows, axis=0) * 8 + shift[..., None] + 9
    scales = d * (small * 2 + 1).astype(mx.float32) * 0.125
    return Groups(eighths.astype(mx.uint8).reshape(-1, 256), scales, 5, 9)
