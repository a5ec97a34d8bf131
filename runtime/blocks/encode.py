"""MLX's packed matrices as GGUF blocks of the same numbers.

A group of MLX's has one scale and one offset; a block of 32 has them, too, so a group becomes one block or
several with the same scale. Where no name says otherwise nothing is rounded: whoever calls has made sure that
the scales are 16-bit floats (`fits_half`), and which of the forms below the offsets allow.

Arrays are numpy's. R rows, K numbers of a row, G groups of a row.
Source: the block structures of ggml (MIT), ggml-common.h.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[Any]
"""uint8."""
Floats: TypeAlias = NDArray[Any]
"""float32."""

_BLOCK = 32


def codes_of(words: NDArray[np.uint32], bits: int) -> Bytes:
    """uint32 [R, words], one stream of codes per row, lowest bits first -> uint8 [R, K]."""
    data = np.ascontiguousarray(words).view(np.uint8)
    if bits == 8:
        return data
    if bits == 4:
        return np.stack((data & 15, data >> 4), axis=-1).reshape(len(data), -1)
    stream = np.unpackbits(data, axis=-1, bitorder="little").reshape(len(data), -1, bits)
    return np.packbits(stream, axis=-1, bitorder="little")[..., 0]


def fits_half(values: Floats) -> bool:
    """Are these 32-bit floats all finite 16-bit floats?"""
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    return bool(np.isfinite(half).all() and (half.astype(np.float32) == values).all())


def dequantized(codes: Bytes, scales: Floats, biases: Floats) -> Floats:
    """codes [R, K], scales and biases [R, G] -> [R, K], as MLX computes it in float32."""
    grouped = codes.reshape(*scales.shape, -1).astype(np.float32)
    return (grouped * scales[..., None] + biases[..., None]).reshape(codes.shape)


def with_offsets(codes: Bytes, scales: Floats, biases: Floats, *, five: bool) -> Bytes:
    """Q4_1, or Q5_1 where the codes have five bits: [R, bytes of a row]."""
    parts = _low_and_fifth(codes, five=five)
    return _joined([*(_halves(each, parts[0].shape[1]) for each in (scales, biases)), *parts])


def around_zero(codes: Bytes, scales: Floats, *, five: bool) -> Bytes:
    """Q4_0, or Q5_0: the code in the middle, 8 or 16, stands for 0."""
    parts = _low_and_fifth(codes, five=five)
    return _joined([_halves(scales, parts[0].shape[1]), *parts])


def four_bits(words: NDArray[Any], scales: Floats, biases: Floats | None) -> Bytes:
    """`with_offsets`, or without them `around_zero`, of 4-bit codes as MLX packs them, uint32 [R, words].
    Four times as fast as by way of single codes.
    """
    low = _nibbles_of_words(words)
    heads = [scales] if biases is None else [scales, biases]
    return _joined([*(_halves(each, low.shape[1]) for each in heads), low])


def bytes_around_zero(codes: Bytes, scales: Floats) -> Bytes:
    """Q8_0: the code 128 stands for 0."""
    data = (codes ^ 128).reshape(len(codes), -1, _BLOCK)
    return _joined([_halves(scales, data.shape[1]), data])


def two_bits_around_one(codes: Bytes, scales: Floats) -> Bytes:
    """Q2_0, blocks of 64: the code 1 stands for 0."""
    fours = codes.reshape(len(codes), -1, 16, 4)
    data = fours[..., 0] | fours[..., 1] << 2 | fours[..., 2] << 4 | fours[..., 3] << 6
    return _joined([_halves(scales, data.shape[1]), data])


def signs(codes: Bytes, scales: Floats) -> Bytes:
    """Q1_0, blocks of 128: a bit says + or -; `scales` are the distance of the two."""
    data = np.packbits(codes.reshape(len(codes), -1, 128), axis=-1, bitorder="little")
    return _joined([_halves(scales / 2, data.shape[1]), data])


def mxfp4(words: NDArray[Any], exponents: Bytes) -> Bytes:
    """words of 4-bit floats, uint32 [R, words]; exponents [R, K / 32]."""
    return _joined([exponents[..., None], _nibbles_of_words(words)])


def nvfp4(codes: Bytes, scales: Bytes) -> Bytes:
    """codes of 4-bit floats [R, K], scales as unsigned 8-bit floats [R, K / 16]; blocks of 64."""
    packed = _nibbles(codes, 16).reshape(len(codes), -1, 32)
    return _joined([scales.reshape(len(codes), -1, 4), packed])


def nearest_bytes(values: Floats) -> Bytes:
    """Q8_0 of any numbers [R, K]: each block's largest becomes 127. The others are rounded."""
    blocks = values.reshape(len(values), -1, _BLOCK)
    scales = (np.abs(blocks).max(axis=-1) / 127).astype(np.float16)
    steps = scales.astype(np.float32)[..., None]
    codes = np.divide(blocks, steps, out=np.zeros_like(blocks), where=steps > 0)
    data = np.clip(np.rint(codes), -127, 127).astype(np.int8).view(np.uint8)
    return _joined([scales[..., None].view(np.uint8), data])


def bfloat16(values: Floats) -> Bytes:
    """The nearest bfloat16 of numbers that are not NaN, ties to even: [R, 2 K]."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return rounded.astype(np.uint16).view(np.uint8)


def _halves(values: Floats, blocks: int) -> Bytes:
    """16-bit floats [R, G], one for each block: uint8 [R, blocks, 2]."""
    half = np.repeat(values.astype(np.float16), blocks // values.shape[1], axis=1)
    return half[..., None].view(np.uint8)


def _low_and_fifth(codes: Bytes, *, five: bool) -> list[Bytes]:
    low = _nibbles(codes & 15, _BLOCK)
    if not five:
        return [low]
    fifth = np.packbits((codes >> 4).reshape(len(codes), -1, _BLOCK), axis=-1, bitorder="little")
    return [fifth, low]


def _nibbles_of_words(words: NDArray[Any]) -> Bytes:
    """`_nibbles` of blocks of 32 codes: [R, blocks, 16]. Eight bytes at a time."""
    eights = np.ascontiguousarray(words).view(np.uint64).reshape(len(words), -1, 2)
    first, second = np.ascontiguousarray(eights[..., 0]), np.ascontiguousarray(eights[..., 1])
    low, four = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(4)
    even = (first & low) | (second & low) << four
    odd = (first >> four & low) | (second & ~low)
    bytes_ = np.stack((even.view(np.uint8), odd.view(np.uint8)), axis=-1)
    return bytes_.reshape(len(words), -1, 16)


def _nibbles(codes: Bytes, block: int) -> Bytes:
    """Of every `block` codes the first half in the low bits, the second in the high: [R, blocks, bytes]."""
    pairs = codes.reshape(len(codes), -1, 2, block // 2)
    return pairs[..., 0, :] | pairs[..., 1, :] << 4


def _joined(parts: list[Bytes]) -> Bytes:
    """[R, blocks, bytes] each -> [R, bytes of a row]."""
    # Two bytes at a time where the parts allow it: six times faster.
    even = all(part.shape[-1] % 2 == 0 for part in parts)
    words = [np.ascontiguousarray(part).view(np.uint16) for part in parts] if even else parts
    data = np.concatenate(words, axis=-1)
    return data.reshape(len(data), -1).view(np.uint8)
