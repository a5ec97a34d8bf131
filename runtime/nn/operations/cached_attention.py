"""Attention over layer memory by MLX's own operations: memory shows keys and values as arrays of their own
and a mask, and they are attended to (`signatures.Remember`, `signatures.Recall`).

Dimensions: B rows, H query heads, G key-value heads, L new tokens, K visible ones, D head size.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import mlx.core as mx

from runtime.cache.finite_values import finite_values_of, latents_with_finite_values
from runtime.cache.protocol import AttentionCache, View
from runtime.cache.visibility import places_seen
from runtime.cpu.query_parts import after, in_parts, of_tokens
from runtime.nn.operations.plain import causal_mask
from runtime.parts.attention import Bias, Scoring
from runtime.step import Step

if TYPE_CHECKING:
    from runtime.nn.operations.signatures import Attend, Recall, Remember
    from runtime.parts.rotary import Rotary

Rotate = Callable[["Rotary", mx.array, Step], mx.array]


def remembering(rotate: Rotate, attend: "Attend") -> "Remember":
    def remember(
        step: Step,
        cache: AttentionCache,
        queries: mx.array,
        keys: mx.array,
        values: mx.array | None,
        by: Scoring,
    ) -> mx.array:
        queries, keys = by_heads(queries, by.size), by_heads(keys, by.size)
        if by.rope is not None:
            queries, keys = rotate(by.rope, queries, step), rotate(by.rope, keys, step)
        if values is not None:
            values = split_heads(values, keys.shape[1]) if values.ndim == 3 else values
        elif by.value_size is not None:
            keys = latents_with_finite_values(keys, by.value_size)
        view = cache.append(step, keys, values)
        if by.bias is None:
            return _over(attend, step, view, queries, by)
        return _biased(attend, step, cache, view, queries, by, by.bias)

    return remember


def recalling(rotate: Rotate, attend: "Attend") -> "Recall":
    def recall(
        step: Step,
        cache: AttentionCache,
        queries: mx.array,
        by: Scoring,
    ) -> mx.array:
        queries = by_heads(queries, by.size)
        if by.rope is not None:
            queries = rotate(by.rope, queries, step)
        return _over(attend, step, cache.view(step), queries, by)

    return recall


def _biased(
    attend: "Attend",
    step: Step,
    cache: AttentionCache,
    view: View,
    queries: mx.array,
    by: Scoring,
    bias: Bias,
) -> mx.array:
    """As `_over`, with a bias of scores, which is never held for all of a step's tokens."""
    keys, values, mask = view
    if isinstance(mask, str):
        mask = causal_mask(step.width, keys.shape[2])

    def both(places: mx.array, asking: range) -> mx.array:
        own = mask
        if mask is not None and len(asking) < step.width:
            own = after(of_tokens(mask, asking), places)
        return biased(own, bias(places, asking), queries.dtype)

    def answer(asking: range, added: mx.array) -> mx.array:
        return _over(attend, step, (keys, values, added), of_tokens(queries, asking), by)

    places = places_seen(step, cache.lanes(step), keys.shape[2])
    return in_parts(answer, both, places, step.width)


def _over(attend: "Attend", step: Step, view: View, queries: mx.array, by: Scoring) -> mx.array:
    """[B, L, H * Dv] of queries [B, H, L, D] over what a layer's memory shows."""
    keys, values, mask = view
    if values is None:
        assert by.value_size is not None, "values that lie in the keys have a size"
        values = finite_values_of(keys, by.value_size)
    out = attend(step, queries, keys, values, mask, scale=by.scale, softcap=by.softcap, sinks=by.sinks)
    if queries.shape[2] == 1:
        return out.reshape(len(step.counts), 1, -1)
    return merge_heads(out)


def biased(mask: mx.array | None, bias: mx.array, dtype: mx.Dtype) -> mx.array:
    """Mask and bias [B or 1, H, L or 1, K] as one array of what is added to scores."""
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
