"""A low-rank pair and a weight as one: the definition of what both compute.

Whoever fuses an adapter into a checkpoint writes `fused`; what is computed at run time
(`runtime.nn.adapters.adapter`) is held against it.

    LoRA   y = W x + s·B A x                               (arXiv 2106.09685)
    DoRA   y = g ∘ (W x + s·B A x),  g = m / ‖W + s·B A‖   (arXiv 2402.09353)

Several on one module add what each changes about W x: LoRA's sum and, for DoRA, what PEFT computes. An
adapter at scale c adds c times what it adds at scale 1, so at 0 it adds nothing.
"""

from typing import Any

import mlx.core as mx

from runtime.nn.adapters.low_rank import LowRank
from runtime.nn.operations.plain import unpacked
from runtime.nn.weights.act_order import as_inputs_come


def product(pair: LowRank, *, table: bool) -> mx.array:
    """s·B A as a weight lies, float32: [..., out, in], of a table [V, D]."""
    wide = (pair.down.astype(mx.float32) @ pair.up.astype(mx.float32)) * pair.scale
    return wide if table else wide.swapaxes(-1, -2)


def gain(pair: LowRank, weight: mx.array, *, table: bool = False) -> mx.array:
    """DoRA's g, float32 [..., out]. weight: the base's floats, as they lie."""
    assert pair.magnitude is not None
    norm = pair.norms
    if norm is None:
        whole = weight.astype(mx.float32) + product(pair, table=table)
        norm = mx.linalg.norm(whole, axis=0 if table else -1)
    # A row of zeros has no direction: nothing can be made of it, whatever its magnitude.
    return mx.where(norm > 0, pair.magnitude.astype(mx.float32) / mx.where(norm > 0, norm, 1), 1)


def fused(weight: mx.array, pair: LowRank, *, scale: float = 1.0, table: bool = False) -> mx.array:
    """The weight, float32, that computes what base and pair do together, but for `pair.bias`.

    weight: the base's floats, [..., out, in] or a table [V, D]. scale: the adapter's own, c.
    """
    base, more = weight.astype(mx.float32), product(pair, table=table)
    if pair.magnitude is None:
        return base + more * scale
    factor = gain(pair, weight, table=table)
    factor = factor if table else factor[..., None]
    return base + ((base + more) * factor - base) * scale


def floats(module: Any) -> mx.array:
    """The weight that a module computes with, packed or not, as float32."""
    return as_inputs_come(module, unpacked(module, mx.float32).astype(mx.float32))
