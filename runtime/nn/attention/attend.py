"""Attention over a layer's memory, as networks call it.

Dimensions: B rows, H query heads, G key-value heads (H a multiple of G), L new tokens, K visible keys, D head
size, Dv that of values. The cache knows what is visible, the table of operations computes: by views of memory
and masks (`runtime.nn.operations.cached_attention`), or by kernels that read memory where it lies
(`runtime.cpu.native.attend`).

Queries, keys and values come by heads [B, heads, L, D], or as products leave them, [B, L, heads * D].
"""

import mlx.core as mx

from runtime.cache.protocol import AttentionCache, Mask
from runtime.nn.operations import ops
from runtime.nn.operations.cached_attention import biased, merge_heads, split_heads
from runtime.nn.positions.rope import Rope
from runtime.parts.attention import Bias, Scoring
from runtime.step import Step

__all__ = ["Bias", "attend", "attend_over", "attention", "biased", "merge_heads", "split_heads"]


def attend(
    step: Step,
    cache: AttentionCache,
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    *,
    scale: float,
    rope: Rope | None = None,
    softcap: float | None = None,
    sinks: mx.array | None = None,
    bias: Bias | None = None,
    size: int | None = None,
) -> mx.array:
    """Write keys and values of G heads to memory, then attend with queries of H heads over all that is
    visible.

    rope: turns queries and keys first; None: they come turned, or have no positions.
    softcap: scores become cap * tanh(score / cap) before masking (Gemma 2).
    sinks: one extra logit per query head [H] that takes probability and gives nothing (GPT-OSS).
    bias: of positions (T5), or of how far tokens are apart as well (Inkling).
    size: D, where keys do not come by heads.
    Returns [B, L, H * Dv], ready for the output projection.
    """
    by = Scoring(keys.shape[3] if size is None else size, scale, rope, softcap, sinks, bias)
    return ops.table.remember(step, cache, queries, keys, values, by)


def attend_over(
    step: Step,
    cache: AttentionCache,
    queries: mx.array,
    *,
    scale: float,
    rope: Rope | None = None,
    softcap: float | None = None,
) -> mx.array:
    """Attend with queries [B, H, L, D] over what is in memory already: that of another layer, of a target, or
    what an encoder left. Returns [B, L, H * Dv].
    """
    return ops.table.recall(step, cache, queries, Scoring(queries.shape[3], scale, rope, softcap))


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
