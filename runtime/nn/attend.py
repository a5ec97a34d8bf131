"""Attention over a layer's memory: the only place that knows masks.

Dimensions: B rows, H query heads, G key-value heads (H a multiple of G), L new tokens, K visible keys, D head
size. The cache decides what is visible (`cache.append` returns keys, values and a mask), the table of
operations what computes it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import mlx.core as mx

from runtime.cache.protocol import Mask
from runtime.nn import ops
from runtime.nn.plain import causal_mask
from runtime.step import Step

if TYPE_CHECKING:
    from runtime.cache.protocol import AttentionCache, View

Bias = Callable[[int], mx.array]
"""Bias(K): what is added to scores before they are masked, [B or 1, H, L, K], keys in order of position."""


def attend(
    step: Step,
    cache: "AttentionCache",
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    *,
    scale: float,
    softcap: float | None = None,
    sinks: mx.array | None = None,
    bias: Bias | None = None,
) -> mx.array:
    """Write keys and values [B, G, L, D] to memory, then attend with queries [B, H, L, D] over all that is
    visible.

    softcap: scores become cap * tanh(score / cap) before masking (Gemma 2).
    sinks: one extra logit per query head [H] that takes probability and gives nothing (GPT-OSS).
    bias: of positions, for layers that see the whole past (T5).
    Returns [B, L, H * Dv], ready for the output projection.
    """
    view = cache.append(step, keys, values)
    if bias is not None:
        view = (*view[:2], biased(view[2], bias(view[0].shape[2]), queries.dtype))
    return attend_over(step, view, queries, scale=scale, softcap=softcap, sinks=sinks)


def attend_over(
    step: Step,
    view: "View",
    queries: mx.array,
    *,
    scale: float,
    softcap: float | None = None,
    sinks: mx.array | None = None,
) -> mx.array:
    """Attend with queries [B, H, L, D] over what a layer's memory shows. Returns [B, L, H * Dv]."""
    seen_keys, seen_values, mask = view
    assert seen_values is not None
    attend = ops.table.attend
    out = attend(step, queries, seen_keys, seen_values, mask, scale=scale, softcap=softcap, sinks=sinks)
    if step.width == 1:
        return out.reshape(len(step.counts), 1, -1)
    return merge_heads(out)


def attention(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    mask: Mask,
    *,
    scale: float,
    softcap: float | None = None,
    sinks: mx.array | None = None,
) -> mx.array:
    """softmax(queries · keysᵀ · scale + mask) · values, [B, H, L, Dv], for a mask of any origin."""
    return ops.table.attend(None, queries, keys, values, mask, scale=scale, softcap=softcap, sinks=sinks)


def biased(mask: Mask, bias: mx.array, dtype: mx.Dtype) -> mx.array:
    """Mask and bias [B or 1, H, L, K] as one array of what is added to scores."""
    if isinstance(mask, str):
        mask = causal_mask(*bias.shape[-2:])
    if mask is None:
        return bias.astype(dtype)
    return mx.where(mask, bias, mx.array(mx.finfo(dtype).min, bias.dtype)).astype(dtype)


def split_heads(flat: mx.array, heads: int) -> mx.array:
    """[B, L, heads * D] -> [B, heads, L, D]."""
    batch, width, _ = flat.shape
    if width == 1:
        return flat.reshape(batch, heads, 1, -1)
    return flat.reshape(batch, width, heads, -1).swapaxes(1, 2)


def merge_heads(heads: mx.array) -> mx.array:
    """[B, H, L, D] -> [B, L, H * D]."""
    batch, _, width, _ = heads.shape
    return heads.swapaxes(1, 2).reshape(batch, width, -1)
