"""Attention over layer memory by MLX's own operations: memory shows keys and values as arrays of their own
and a mask, and they are attended to (`runtime.nn.operations.Remember`, `runtime.nn.operations.Recall`).

Dimensions: B rows, H query heads, G key-value heads, L new tokens, K visible ones, D head size.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import mlx.core as mx

from runtime.cache.protocol import AttentionCache, Mask, View
from runtime.cache.visible import places_seen
from runtime.nn.plain import causal_mask
from runtime.step import Step

if TYPE_CHECKING:
    from runtime.cpu.turn import Rotary
    from runtime.nn.operations import Attend, Bias, Recall, Remember

Rotate = Callable[["Rotary", mx.array, Step], mx.array]


def remembering(rotate: Rotate, attend: "Attend") -> "Remember":
    def remember(
        step: Step,
        cache: AttentionCache,
        queries: mx.array,
        keys: mx.array,
        values: mx.array | None,
        *,
        groups: int,
        size: int,
        scale: float,
        rope: "Rotary | None" = None,
        softcap: float | None = None,
        sinks: mx.array | None = None,
        bias: "Bias | None" = None,
        value_size: int | None = None,
    ) -> mx.array:
        queries, keys = by_heads(queries, size), by_heads(keys, size)
        if rope is not None:
            queries, keys = rotate(rope, queries, step), rotate(rope, keys, step)
        if values is not None:
            values = split_heads(values, groups) if values.ndim == 3 else values
        view = cache.append(step, keys, values)
        if bias is not None:
            added = bias(places_seen(step, cache.lanes(step), view[0].shape[2]))
            view = (*view[:2], biased(view[2], added, queries.dtype, step.width))
        return _over(attend, step, view, queries, scale, softcap, sinks, value_size)

    return remember


def recalling(rotate: Rotate, attend: "Attend") -> "Recall":
    def recall(
        step: Step,
        cache: AttentionCache,
        queries: mx.array,
        *,
        size: int,
        scale: float,
        rope: "Rotary | None" = None,
        softcap: float | None = None,
        sinks: mx.array | None = None,
        value_size: int | None = None,
    ) -> mx.array:
        queries = by_heads(queries, size)
        if rope is not None:
            queries = rotate(rope, queries, step)
        return _over(attend, step, cache.view(step), queries, scale, softcap, sinks, value_size)

    return recall


def _over(
    attend: "Attend",
    step: Step,
    view: View,
    queries: mx.array,
    scale: float,
    softcap: float | None,
    sinks: mx.array | None,
    value_size: int | None,
) -> mx.array:
    """[B, L, H * Dv] of queries [B, H, L, D] over what a layer's memory shows."""
    keys, values, mask = view
    if values is None:
        assert value_size is not None, "values that lie in the keys have a size"
        values = keys[..., :value_size]
    out = attend(step, queries, keys, values, mask, scale=scale, softcap=softcap, sinks=sinks)
    if step.width == 1:
        return out.reshape(len(step.counts), 1, -1)
    return merge_heads(out)


def biased(mask: Mask, bias: mx.array, dtype: mx.Dtype, width: int | None = None) -> mx.array:
    """Mask and bias [B or 1, H, L, K] as one array of what is added to scores. width: L, where the bias has 1
    in its place, as it is the same for all queries.
    """
    if isinstance(mask, str):
        mask = causal_mask(bias.shape[2] if width is None else width, bias.shape[3])
    if mask is None:
        return bias.astype(dtype)
    return mx.where(mask, bias, mx.array(mx.finfo(dtype).min, bias.dtype)).astype(dtype)


def by_heads(x: mx.array, size: int) -> mx.array:
    """[B, L, heads * D] or [B, heads, L, D] -> [B, heads, L, D]."""
    return x if x.ndim == 4 else split_heads(x, x.shape[2] // size)


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
