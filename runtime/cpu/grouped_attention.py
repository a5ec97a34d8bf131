"""Attention for a processor: the query heads that share keys go into one product, and queries in blocks.

MLX's fused attention is, on a processor, a product per query head with the whole of the keys, masked ones
too, and a mask that every layer makes anew. Here keys that a block of queries cannot see are left out, masks
are made once per step, and views are few. For float32; equal to the definition to rounding.

A block has `query_parts.HELD` scores at most, where one query has no more, and waits for the answer of the
block before it: MLX would make the scores of all of them first.

Dimensions: B rows, H query heads, G key-value heads, L new tokens, K visible keys, D head size.
"""

from collections.abc import Callable, Iterator

import mlx.core as mx

from runtime.cache.protocol import Mask
from runtime.cpu import query_parts
from runtime.cpu.activation import softmax
from runtime.cpu.query_parts import after, of_tokens
from runtime.step import Step

BLOCK = 128
"""Queries that are answered together. The more blocks, the more keys are left out of some."""
SMALL_PRODUCT = 1 << 18
"""Multiplications up to which OpenBLAS keeps a product in one thread. One token's longer ones are left to
vector products, which do not wait for other threads."""
UNSEEN = -1e30


def attending(otherwise: Callable[..., mx.array]) -> Callable[..., mx.array]:
    """Attention (`runtime.nn.operations.signatures.Attend`): folded where that is the faster way, else
    `otherwise`.
    """

    def attend(
        step: Step | None,
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        mask: Mask,
        *,
        scale: float,
        softcap: float | None = None,
        sinks: mx.array | None = None,
    ) -> mx.array:
        if step is not None and sinks is None and queries.dtype == mx.float32 and folds(queries, keys):
            return folded_attention(step, queries, keys, values, mask, scale=scale, softcap=softcap)
        answers: list[mx.array] = []
        for asking, sees in _blocks(queries, keys, mask):
            asked = of_tokens(_after(answers, queries), asking)
            seen = keys[:, :, :sees], values[:, :, :sees], _cut(mask, asking)
            answers.append(otherwise(step, asked, *seen, scale=scale, softcap=softcap, sinks=sinks))
        return _joined(answers)

    return attend


def folds(queries: mx.array, keys: mx.array) -> bool:
    """Is this the faster way for queries [B, H, L, D] and keys [B, G, K, D]?"""
    _, heads, width, size = queries.shape
    _, groups, seen, _ = keys.shape
    return width > 1 or heads // groups * seen * size <= SMALL_PRODUCT


def folded_attention(
    step: Step,
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    mask: Mask,
    *,
    scale: float,
    softcap: float | None = None,
) -> mx.array:
    """As `runtime.nn.operations.plain.attend`, for a mask of this step. Returns [B, H, L, Dv]; of one token
    the same numbers as [B, G, H / G, Dv].
    """
    batch, heads, width, _ = queries.shape
    seen = keys.shape[2]
    queries = queries * (scale if softcap is None else scale / softcap)
    hiding = _hiding(step, mask, width, seen)
    if width == 1:
        return _block(queries, keys, values, hiding, softcap)
    answers: list[mx.array] = []
    for asking, sees in _blocks(queries, keys, mask):
        some = None if hiding is None else of_tokens(hiding, asking)[..., :sees]
        asked = of_tokens(_after(answers, queries), asking)
        part = _block(asked, keys[:, :, :sees], values[:, :, :sees], some, softcap)
        answers.append(part.reshape(batch, heads, len(asking), -1))
    return _joined(answers)


def _blocks(queries: mx.array, keys: mx.array, mask: Mask) -> Iterator[tuple[range, int]]:
    """Which queries are answered together, and how many keys they see."""
    batch, heads, width, _ = queries.shape
    seen = keys.shape[2]
    at_once = min(BLOCK, max(query_parts.HELD // max(batch * heads * seen, 1), 1))
    for start in range(0, width, at_once):
        stop = min(start + at_once, width)
        # Behind a causal mask nobody in this block sees the tokens that follow it.
        yield range(start, stop), seen - width + stop if isinstance(mask, str) else seen


def _after(answers: list[mx.array], x: mx.array) -> mx.array:
    return after(x, answers[-1]) if answers else x


def _cut(mask: Mask, asking: range) -> Mask:
    return mask if mask is None or isinstance(mask, str) else of_tokens(mask, asking)


def _joined(answers: list[mx.array]) -> mx.array:
    return answers[0] if len(answers) == 1 else mx.concatenate(answers, axis=2)


def _block(
    queries: mx.array, keys: mx.array, values: mx.array, hiding: mx.array | None, softcap: float | None
) -> mx.array:
    """[B, G, H / G · L, Dv] of scaled queries. hiding: as of `_hiding`."""
    batch, heads, width, size = queries.shape
    _, groups, seen, _ = keys.shape
    scores = queries.reshape(batch, groups, -1, size) @ keys.swapaxes(-1, -2)
    if softcap is not None:
        scores = mx.tanh(scores) * softcap
    if hiding is not None and width > 1:
        scores = scores.reshape(batch, heads, width, seen)
    elif hiding is not None and hiding.shape[1] > 1:
        hiding = hiding.reshape(hiding.shape[0], groups, -1, seen)
    weights = softmax(scores if hiding is None else _hidden(scores, hiding))
    return weights.reshape(batch, groups, -1, seen) @ values


def _hidden(scores: mx.array, by: mx.array) -> mx.array:
    """Chosen, and not added to: the key of a token whose numbers are none makes NaN of its score."""
    if by.dtype == mx.bool_:
        return mx.where(by, scores, UNSEEN)
    return mx.where(by > UNSEEN, scores + by, UNSEEN)


def _hiding(step: Step, mask: Mask, width: int, seen: int) -> mx.array | None:
    """Who is seen, [B or 1, H or 1, L, K], or what is added to scores. Causal masks are made once per
    step.
    """
    if mask is None:
        return None
    if isinstance(mask, str):
        return step.memo(("causal", width, seen), lambda: _causal(width, seen))
    return mx.broadcast_to(mask, (*mask.shape[:2], width, seen))


def _causal(width: int, seen: int) -> mx.array:
    return (mx.arange(seen) <= (mx.arange(width) + seen - width)[:, None])[None, None]
