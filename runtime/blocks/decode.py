"""Rows of blocks -> numbers, or MLX's packed form of the same numbers. Lazy; nothing is computed here.

Which types MLX can hold exactly, and with what scales, stands in `forms`: a group of 32, 64 or 128 with one
scale and one offset says the same as the block. Six types have a scale for every 16 numbers, which MLX's
affine form does not have; those are numbers, or the nearest 8 bits, once they are loaded.
"""

from collections.abc import Callable
from typing import NamedTuple

import mlx.core as mx

from runtime.blocks import i_quants, k_quants, legacy
from runtime.blocks.bits import low_bits
from runtime.blocks.groups import Groups
from runtime.blocks.types import BLOCK_TYPES, BlockType

_READERS: dict[str, Callable[[mx.array], Groups]] = {
    name: getattr(room, name)
    for room, names in (
        (legacy, "q4_0 q4_1 q5_0 q5_1 q8_0 q1_0 q2_0 tq1_0 tq2_0 mxfp4 nvfp4"),
        (k_quants, "q2_k q3_k q4_k q5_k q6_k"),
        (i_quants, "iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s iq4_nl iq4_xs"),
    )
    for name in names.split()
}


class Packed(NamedTuple):
    """A matrix in MLX's affine form."""

    codes: mx.array
    """uint32 [rows, words]."""
    scales: mx.array
    """[rows, groups]."""
    biases: mx.array
    """As scales."""


def decoded(rows: mx.array, kind: BlockType) -> mx.array:
    """The numbers that rows of blocks stand for, float32 [..., width]: bit for bit what ggml computes.

    rows: uint8 [..., bytes of a row].
    """
    *leading, row_bytes = rows.shape
    width = row_bytes // kind.nbytes * kind.weights
    return _groups(rows, kind).numbers().reshape(*leading, width)


def packed(rows: mx.array, kind: BlockType, scales: mx.Dtype = mx.float32) -> Packed:
    """The same in MLX's affine form, for types whose groups it has. rows: uint8 [..., bytes of a row].

    Exact with float32 scales; with float16 ones for the types whose own scales are so (`forms`).
    """
    *leading, row_bytes = rows.shape
    groups = _groups(rows, kind)
    count = row_bytes // kind.nbytes * groups.scales.shape[1]
    codes = bit_stream(groups.codes, groups.bits).reshape(*leading, -1)
    shape = (*leading, count)
    return Packed(
        codes.view(mx.uint32),
        groups.scales.astype(scales).reshape(shape),
        groups.biases().astype(scales).reshape(shape),
    )


def _groups(rows: mx.array, kind: BlockType) -> Groups:
    return _READERS[kind.name](rows.reshape(-1, kind.nbytes))


def bit_stream(codes: mx.array, bits: int) -> mx.array:
    """Codes of `bits` bits one after the other, lowest first, as bytes [..., items · bits / 8].

    Eight at a time: neighbours are moved together in words of 16, 32 and 64 bits.
    """
    if bits == 8:
        return codes
    eights = codes.reshape(-1, 8).view(mx.uint64)
    for width in (8, 16, 32):
        used = bits * width // 8
        low = low_bits(used, 2 * width)
        eights = (eights & _word(low)) | ((eights >> (width - used)) & _word(low << used))
    return eights.view(mx.uint8)[:, :bits].reshape(*codes.shape[:-1], -1)


def _word(value: int) -> mx.array:
    return mx.array(value, dtype=mx.uint64)


def packed_type(name: str) -> BlockType | None:
    """The packed type of that name."""
    return BLOCK_TYPES[name] if name in _READERS else None
