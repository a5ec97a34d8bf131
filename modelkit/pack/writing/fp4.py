"""MXFP4 and NVFP4 by lookup: the same bytes as `mlx.core.quantize`, several times sooner.

MLX's CPU backend compares every weight with all sixteen values of the format, in many times the memory. With
16-bit weights there are only 65,536 quotients to compare, so that is done once, by the same operations;
likewise the scale of every possible largest weight of a group. The tables come from MLX itself, so they
follow its version.
"""

from functools import cache

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from runtime.quant import Format

_INFINITY = {mx.float16: 0x7C00, mx.bfloat16: 0x7F80}
_SMALLEST = {mx.float16: 0, mx.bfloat16: 0x0400}  # below 2**-119 an exponent byte would wrap


def quantize_fp4(values: mx.array, target: Format) -> tuple[mx.array, mx.array] | None:
    """`mx.quantize` of [rows, width] for mxfp4 and nvfp4, or None where tables cannot answer.

    That is for float32, and for rows with infinities, NaN or numbers next to zero.
    """
    if values.dtype not in _INFINITY:
        return None
    rows = values.shape[0]
    groups = values.reshape(-1, target.group_size)
    largest = _bits(mx.max(mx.abs(groups), axis=-1))
    unusual = (largest >= _INFINITY[values.dtype]) | ((largest < _SMALLEST[values.dtype]) & (largest > 0))
    if unusual.any():
        return None
    scale_of, divisor_of, code_of = _tables(target, values.dtype)
    scales = scale_of[largest]
    divisors = mx.array(divisor_of[scales]).view(values.dtype)
    codes = code_of[_bits(groups / divisors[:, None])].reshape(-1)
    pairs = codes.view(np.uint16)  # the first of two in the low byte, as it must be in the low half
    packed = (pairs | pairs >> 4).astype(np.uint8)
    return mx.array(packed.view(np.uint32).reshape(rows, -1)), mx.array(scales.reshape(rows, -1))


@cache
def _tables(
    target: Format, dtype: mx.Dtype
) -> tuple[NDArray[np.uint8], NDArray[np.uint16], NDArray[np.uint8]]:
    """Scale by the bits of a group's largest magnitude, divisor by scale, code by the bits of a quotient."""
    mode = target.mode or ""
    magnitudes = mx.array(np.arange(1 << 15, dtype=np.uint16)).view(dtype)[:, None]
    groups = mx.pad(magnitudes, [(0, 0), (0, target.group_size - 1)])
    scales = np.array(
        mx.quantize(groups, group_size=target.group_size, bits=target.bits, mode=mode)[1]
    ).reshape(-1)
    every = mx.arange(256, dtype=mx.uint8)
    powers = mx.power(mx.array(2, dtype), every.astype(mx.int32) - 127)
    divisors = _bits(powers if mode == "mxfp4" else mx.from_fp8(every, dtype))
    values = _format_values(target, dtype)
    quotients = mx.array(np.arange(1 << 16, dtype=np.uint16)).view(dtype)
    codes = mx.argmin(mx.abs(quotients[:, None] - values), axis=-1).astype(mx.uint8)
    return scales, divisors, np.array(codes)


def _format_values(target: Format, dtype: mx.Dtype) -> mx.array:
    """The sixteen values that a 4-bit code stands for, by code."""
    words = mx.array(np.array([[0x76543210, 0xFEDCBA98] * 2], np.uint32))
    one = 127 if target.mode == "mxfp4" else 0x38  # 1.0 as E8M0, as E4M3
    ones = mx.full((1, 32 // target.group_size), one, mx.uint8)
    mode = target.mode or ""
    found = mx.dequantize(words, ones, group_size=target.group_size, bits=target.bits, mode=mode, dtype=dtype)
    return found.reshape(-1)[:16]


def _bits(array: mx.array) -> NDArray[np.uint16]:
    return np.array(array.view(mx.uint16))
