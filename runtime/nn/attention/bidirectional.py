"""Attention of an encoder: every token of a text sees all others, those behind it too.

Nothing is remembered, so there is no cache; what a layer computes of the whole text is at hand. Scores are
the only thing that grows with the square of the text's length, so queries are answered in blocks of at most
SCORES scores at a time, one block after the other, and of many texts only some at a time.

Texts of unlike lengths lie side by side, padded to the longest. What a token of one of them is given does not
depend on the others: padding behind it weighs exactly nothing, blocks are those of one text, and where keys
are left out, that is by whole blocks of KEYS, as kernels sum.

Dimensions: B rows, H query heads, G key-value heads, T tokens, D head size.
"""

from collections.abc import Callable, Sequence

import mlx.core as mx

from runtime.nn.attention.attend import attention, merge_heads
from runtime.step import Inputs, Step

SCORES = 1 << 24
"""Scores that are held at once; 64 MiB in float32."""

KEYS = 64
"""Keys whose weighted values are summed together; a multiple of the kernels' block."""

LEAST_BLOCK = 128
"""Queries that are answered together although a window lets each see few keys."""

Between = Callable[[range, range], mx.array]
"""between(queries, keys): what is added to the scores of these positions, [1, H, len(queries), len(keys)]."""


def whole_texts(inputs: Inputs, step: Step) -> Step:
    """Texts [B, T] of one length that the rows of `step` read whole: a step for what goes by their tokens."""
    assert inputs.shape is not None
    rows, length = inputs.shape
    return Step((0,) * rows, (length,) * rows, step.first, inputs=inputs, adapters=step.adapters)


def attend_both_ways(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    *,
    scale: float,
    softcap: float | None = None,
    window: int | None = None,
    ahead: int | None = None,
    between: Between | None = None,
    counts: Sequence[int] | None = None,
) -> mx.array:
    """Queries [B, H, T, D] over keys and values [B, G, T, D]; returns [B, T, H * D].

    window: only keys at most so many positions away are seen, on either side; ahead: how many of those behind
    a token, where that is another number. counts: how many tokens each row has, where they are padded to T;
    what is behind them is seen by nobody, and sees itself.
    """
    batch, heads, length, _ = queries.shape
    own = None if counts is None or min(counts) == length else mx.array(list(counts), dtype=mx.int32)
    sides = None if window is None else (window, window if ahead is None else ahead)
    texts, rows = _block(heads, length, sides)

    def part(some: slice, asking: range) -> mx.array:
        seen = _seen_by(asking, length, sides)
        answer = attention(
            queries[some, :, asking.start : asking.stop],
            keys[some, :, seen.start : seen.stop],
            values[some, :, seen.start : seen.stop],
            _mask(asking, seen, sides, between, queries.dtype, None if own is None else own[some]),
            scale=scale,
            softcap=softcap,
        )
        if rows < length or texts < batch:
            mx.eval(answer)  # or all blocks' scores would wait to be computed together
        return answer

    askings = [range(start, min(start + rows, length)) for start in range(0, length, rows)]
    somes = [slice(first, first + texts) for first in range(0, batch, texts)]
    return merge_heads(_joined([_joined([part(some, asking) for asking in askings], 2) for some in somes], 0))


def _joined(parts: Sequence[mx.array], axis: int) -> mx.array:
    return parts[0] if len(parts) == 1 else mx.concatenate(list(parts), axis=axis)


Sides = tuple[int, int]
"""How many keys are seen before a token, and behind it."""


def _block(heads: int, length: int, sides: Sides | None) -> tuple[int, int]:
    """How many texts, and how many queries of each, are answered together: about SCORES scores."""
    most = length if sides is None else min(length, max(*sides, LEAST_BLOCK))
    reach = length if sides is None else min(length, sum(sides) + most)
    rows = max(min(SCORES // (heads * reach), most), 1)
    return max(SCORES // (heads * reach * rows), 1), rows


def _seen_by(asking: range, length: int, sides: Sides | None) -> range:
    """The keys that any of these queries sees."""
    if sides is None:
        return range(length)
    first = max(asking.start - sides[0], 0)
    return range(first - first % KEYS, min(asking.stop + sides[1], length))


def _mask(
    asking: range,
    seen: range,
    sides: Sides | None,
    between: Between | None,
    dtype: mx.Dtype,
    own: mx.array | None,
) -> mx.array | None:
    keys = mx.arange(seen.start, seen.stop)
    real = None if own is None else (keys[None] < own[:, None])[:, None, None]
    if between is not None:
        assert sides is None
        bias = between(asking, seen).astype(dtype)
        return bias if real is None else mx.where(real, bias, -mx.inf)
    if sides is None:
        return real
    back, ahead = sides
    if asking.stop - 1 - seen.start <= back and seen.stop - 1 - asking.start <= ahead:
        return real
    later = keys[None] - mx.arange(asking.start, asking.stop)[:, None]
    near = ((later >= -back) & (later <= ahead))[None, None]
    # A query behind its text's end would see nothing, and what it then is would reach others as 0 times NaN.
    return near if real is None else (near & real) | (later == 0)[None, None]
