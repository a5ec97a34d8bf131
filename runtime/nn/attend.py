"""Attention over a layer's memory: the only place that knows masks.

Dimensions: B rows, H query heads, G key-value heads (H a multiple of G), L new tokens, K visible keys, D head
size. The cache decides what is visible (`cache.append` returns keys, values and a mask); this room decides
which kernel computes it. Every path here equals `plain_attention` to rounding.
"""

from typing import TYPE_CHECKING, Literal

import mlx.core as mx

from runtime.cpu.folded import folded_attention, folds
from runtime.device import on_processor
from runtime.step import Step

if TYPE_CHECKING:
    from runtime.cache.protocol import AttentionCache

Mask = Literal["causal"] | mx.array | None


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
) -> mx.array:
    """Write keys and values [B, G, L, D] to memory, then attend with queries [B, H, L, D] over all that is
    visible.

    softcap: scores become cap * tanh(score / cap) before masking (Gemma 2).
    sinks: one extra logit per query head [H] that takes probability and gives nothing (GPT-OSS).
    Returns [B, L, H * Dv], ready for the output projection.
    """
    seen_keys, seen_values, mask = cache.append(step, keys, values)
    assert seen_values is not None
    lean = step.memo("folded", lambda: on_processor() and queries.dtype == mx.float32)
    if lean and sinks is None and folds(queries, seen_keys):
        out = folded_attention(step, queries, seen_keys, seen_values, mask, scale=scale, softcap=softcap)
    else:
        out = attention(queries, seen_keys, seen_values, mask, scale=scale, softcap=softcap, sinks=sinks)
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
    """softmax(queries · keysᵀ · scale + mask) · values, [B, H, L, Dv]."""
    if softcap is not None:
        return plain_attention(queries, keys, values, mask, scale=scale, softcap=softcap, sinks=sinks)
    return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask, sinks=sinks)


def plain_attention(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    mask: Mask,
    *,
    scale: float,
    softcap: float | None = None,
    sinks: mx.array | None = None,
) -> mx.array:
    """The definition, step by step, with the softmax in float32."""
    batch, heads, width, _ = queries.shape
    groups, seen = keys.shape[1], keys.shape[2]
    grouped = queries.reshape(batch, groups, heads // groups, width, -1)
    scores = (grouped * scale) @ keys[:, :, None].swapaxes(-1, -2)
    if softcap is not None:
        scores = mx.tanh(scores / softcap) * softcap
    visible = causal_mask(width, seen) if isinstance(mask, str) else mask
    if visible is not None:
        visible = visible[:, :, None] if visible.ndim == 4 else visible
        low = mx.array(-float("inf"), scores.dtype)
        scores = mx.where(visible, scores, low) if visible.dtype == mx.bool_ else scores + visible
    weights = _softmax(scores, sinks, groups)
    return (weights @ values[:, :, None]).reshape(batch, heads, width, -1)


def causal_mask(width: int, seen: int) -> mx.array:
    """bool [width, seen]: the last query is aligned with the last key."""
    return mx.arange(seen)[None, :] <= (mx.arange(width) + seen - width)[:, None]


def _softmax(scores: mx.array, sinks: mx.array | None, groups: int) -> mx.array:
    if sinks is None:
        return mx.softmax(scores, axis=-1, precise=True)
    extra = mx.broadcast_to(sinks.reshape(1, groups, -1, 1, 1), (*scores.shape[:-1], 1)).astype(scores.dtype)
    return mx.softmax(mx.concatenate([scores, extra], axis=-1), axis=-1, precise=True)[..., :-1]


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
