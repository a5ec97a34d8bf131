"""Packed matrices in MLX's layout: codes of a few bits, and scales for groups of them."""

import mlx.core as mx

from runtime.records import dataclass

_MICROSCALED = {(4, 32): "mxfp4", (8, 32): "mxfp8", (4, 16): "nvfp4"}  # by bits and group size
MODES = ("affine", *_MICROSCALED.values(), "gguf")
"""MLX's quantization modes, and the one in which GGUF's blocks stay."""


@dataclass(frozen=True, slots=True)
class Packing:
    """How one quantized module is stored."""

    bits: int
    """Per code."""
    group_size: int
    """Elements of a row that share a scale."""
    mode: str
    """MLX's quantization mode."""


def stored_packing(width: int, weight: mx.array, scales: mx.array, biases: mx.array | None) -> Packing | None:
    """How a matrix of `width` columns is packed, told by its tensors' shapes; None: no way that MLX has.

    The shapes say it all, and names in config.json's `quantization` block may be those of a wrapper.
    """
    if not weight.shape or not scales.shape or not scales.shape[-1]:
        return None
    if width % scales.shape[-1] or weight.shape[-1] * 32 % width:
        return None
    bits, group = weight.shape[-1] * 32 // width, width // scales.shape[-1]
    if biases is not None:
        good = bits in (1, 2, 3, 4, 5, 6, 8) and group in (32, 64, 128) and scales.dtype != mx.uint8
        return Packing(bits, group, "affine") if good else None
    mode = _MICROSCALED.get((bits, group)) if scales.dtype == mx.uint8 else None
    return Packing(bits, group, mode) if mode else None


def unpacked(
    codes: mx.array,
    scales: mx.array,
    biases: mx.array | None,
    packing: Packing,
    dtype: mx.Dtype | None,
    order: mx.array | None = None,
) -> mx.array:
    """The matrix that packed tensors stand for, in `dtype` (None: that of affine scales). order: that in
    which its columns are packed (`runtime.nn.weights.act_order`); they come out in that of its inputs.

    Affine: code * scale + bias is computed in the type of the scales, so they are widened first. What
    microscaled codes stand for needs no such care: at most 6 significant bits (a 2-bit code times a 4-bit
    scale in nvfp4; a power of two elsewhere) fit any float.
    """
    if dtype is not None and biases is not None:
        scales, biases = scales.astype(dtype), biases.astype(dtype)
    bits, group, mode = packing.bits, packing.group_size, packing.mode
    found = mx.dequantize(codes, scales, biases, group_size=group, bits=bits, mode=mode, dtype=dtype)
    return found if order is None else as_they_come(found, order)


def as_they_come(numbers: mx.array, order: mx.array) -> mx.array:
    """[..., out, in] whose columns lie in an order [..., in], with columns where their inputs are."""
    back = mx.argsort(order, axis=-1)[..., None, :]
    return mx.take_along_axis(numbers, mx.broadcast_to(back, numbers.shape), axis=-1)
