"""What a format does to a matrix: the error that its codes leave, weighted by what each weight's costs."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from runtime.quality.fisher import Moments
from runtime.quant import Format

FLOATS = {"bf16": mx.bfloat16, "f16": mx.float16, "f32": mx.float32}

_MOST_ROWS = 2048
"""Of a matrix, spread evenly: the mean error of so many tells that of all to a percent."""


def packed(weight: mx.array, how: Format) -> tuple[mx.array, ...]:
    """Codes, scales and (affine) biases of a matrix [..., out, in], as `create` writes them."""
    assert how.mode is not None
    return tuple(mx.quantize(weight, group_size=how.group_size, bits=how.bits, mode=how.mode))


def rounded(weight: mx.array, how: Format) -> mx.array:
    """The numbers that are left of a matrix, float32."""
    if how.mode is None:
        return weight.astype(FLOATS[how.name]).astype(mx.float32)
    codes, scales, *biases = packed(weight, how)
    bias = biases[0].astype(mx.float32) if biases else None
    scales = scales.astype(mx.float32) if biases else scales
    return mx.dequantize(
        codes, scales, bias, group_size=how.group_size, bits=how.bits, mode=how.mode, dtype=mx.float32
    )


def costs(
    weight: mx.array, moments: Sequence[Moments], formats: Sequence[Format], stored: mx.Dtype
) -> list[float]:
    """Nats per token that each format of a matrix [..., out, in] costs. stored: the floats that the package
    would have, and so its scales.
    """
    flat = weight.reshape(-1, weight.shape[-2], weight.shape[-1]) if weight.ndim > 2 else weight[None]
    step = -(-flat.shape[0] * flat.shape[1] // _MOST_ROWS)
    step = min(step, flat.shape[1])
    sample = flat[:, ::step].astype(stored)
    found: list[float] = []
    for how in formats:
        error = (rounded(sample, how) - sample.astype(mx.float32)).square()
        found.append(sum(_cost(error, one, step) for one in moments))
    return found


def _cost(error: mx.array, use: Moments, step: int) -> float:
    by_row = (error * mx.array(use.columns)).sum(axis=-1).mean(axis=0)
    rows = mx.array(use.rows)
    kept = rows[::step]
    scale = rows.sum() / mx.maximum(kept.sum(), 1e-30)
    return float(np.array(0.5 * use.share * scale * (by_row * kept).sum()))
