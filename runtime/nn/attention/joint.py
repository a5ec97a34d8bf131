"""Attention over two memories at once: a layer's own tokens, and what an encoder left (T5Gemma 2).

Both are under one softmax, so that they are laid side by side: what was read first, then the layer's own in
the order of their positions, each from a whole block of KEYS on, as kernels sum. So a row's numbers do not
depend on how long others' prompts are, nor on how its tokens were cut into steps.

Dimensions: B rows, H query heads, G key-value heads, L new tokens, K visible keys, D head size.
"""

import mlx.core as mx

from runtime.cache.protocol import AttentionCache, Mask
from runtime.cache.visibility import places_seen
from runtime.nn.attention.attend import attention, merge_heads
from runtime.nn.attention.bidirectional import KEYS
from runtime.nn.operations.plain import causal_mask
from runtime.step import Step

Shown = tuple[mx.array, mx.array, mx.array]
"""keys [B, G, K, D], values [B, G, K, D], and who sees them, bool [B or 1, 1, L or 1, K]."""


def attend_jointly(
    step: Step,
    own: AttentionCache,
    read: AttentionCache,
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    *,
    scale: float,
) -> mx.array:
    """Write keys and values [B, G, L, D] to `own`, then attend with queries [B, H, L, D] over all that is
    visible of it and over all of `read`. They have their positions. Returns [B, L, H * D].
    """
    near = own.append(step, keys, values)
    both = _padded(_shown(step, *read.view(step))), _by_blocks(step, own, _shown(step, *near))
    dtype, width = both[1][0].dtype, step.width
    rows = len(step.counts)
    masks = [mx.broadcast_to(mask, (rows, 1, width, mask.shape[3])) for _, _, mask in both]
    out = attention(
        queries,
        mx.concatenate([keys.astype(dtype) for keys, _, _ in both], axis=2),
        mx.concatenate([values.astype(dtype) for _, values, _ in both], axis=2),
        mx.concatenate(masks, axis=3),
        scale=scale,
    )
    return out.reshape(rows, 1, -1) if width == 1 else merge_heads(out)


def _shown(step: Step, keys: mx.array, values: mx.array | None, mask: Mask) -> Shown:
    assert values is not None
    if mask is None:
        return keys, values, mx.ones((1, 1, 1, keys.shape[2]), dtype=mx.bool_)
    seen = causal_mask(step.width, keys.shape[2])[None, None] if isinstance(mask, str) else mask
    return keys, values, seen


def _padded(shown: Shown) -> Shown:
    """With keys that nobody sees, up to the end of a block."""
    keys, values, mask = shown
    spare = (0, -keys.shape[2] % KEYS)
    along = [(0, 0), (0, 0), spare, (0, 0)]
    return mx.pad(keys, along), mx.pad(values, along), mx.pad(mask, [(0, 0), (0, 0), (0, 0), spare])


def _by_blocks(step: Step, cache: AttentionCache, shown: Shown) -> Shown:
    """In the order of positions, from the beginning of the block on that the first one is in."""
    keys, values, mask = shown
    lanes, seen = cache.lanes(step), keys.shape[2]
    if lanes is None or lanes.kept.reach.window is None:
        return shown  # from position 0 on, one after the other
    key = "by blocks", lanes.kept.reach, tuple(lanes.bases), bool(lanes.beside), seen
    order, there = step.memo(key, lambda: _ordered(places_seen(step, lanes, seen)))
    slots = order[:, None, None]
    masked = mx.take_along_axis(*_alike(mask, slots), axis=3) & there[:, None, None]
    wanted = order[:, None, :, None]
    return mx.take_along_axis(keys, wanted, axis=2), mx.take_along_axis(values, wanted, axis=2), masked


def _ordered(places: mx.array) -> tuple[mx.array, mx.array]:
    """Of positions int32 [B or 1, K] in slots: the slots in their order [B or 1, K + KEYS - 1], and where
    there is one.
    """
    seen = places.shape[1]
    at = mx.arange(seen + KEYS - 1) - places.min(axis=1, keepdims=True) % KEYS
    there = (at >= 0) & (at < seen)
    return mx.take_along_axis(mx.argsort(places, axis=1), mx.clip(at, 0, seen - 1), axis=1), there


def _alike(mask: mx.array, slots: mx.array) -> tuple[mx.array, mx.array]:
    """Mask [B or 1, 1, L or 1, K] and slots [B or 1, 1, 1, n], of as many rows and queries."""
    rows, width = max(mask.shape[0], slots.shape[0]), mask.shape[2]
    return (
        mx.broadcast_to(mask, (rows, 1, width, mask.shape[3])),
        mx.broadcast_to(slots, (rows, 1, width, slots.shape[3])),
    )
