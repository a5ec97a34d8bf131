"""RWKV-4's sums: of a channel's values, by weights exp(key) that fall by a factor with every token.

What a token is given has its own value by a weight of its own besides, exp(first + key). Sums are kept over
the largest weight in them, whose logarithm stands beside: nothing overflows, however large keys are.

B rows, L tokens, C channels. Source: arXiv 2305.13048; transformers modeling_rwkv.py.
"""

import mlx.core as mx

State = tuple[mx.array, mx.array, mx.array]
"""float32 [B, C] each: the logarithm that sums are over, the sum of values, and of weights. A sum of weights
of 0 is that of no tokens.
"""
_NONE = -1e38


def wkv4(
    decay: mx.array,
    first: mx.array,
    keys: mx.array,
    values: mx.array,
    state: State,
    *,
    counts: mx.array | None,
    one_by_one: bool,
) -> tuple[mx.array, State]:
    """decay float32 [C], below 0: a logarithm; first [C]; keys and values [B, L, C] -> float32 [B, L, C], and
    the state after each row's last real token. one_by_one: bits do not depend on how a text is cut.
    """
    keys, values = keys.astype(mx.float32), values.astype(mx.float32)
    top, total, weight = state
    before = mx.where(weight == 0, _NONE, top), total, weight
    after = (_step_by_step if one_by_one else _joined)(decay, keys, values, before)
    earlier = tuple(
        mx.concatenate([old[:, None], new[:, :-1]], axis=1) for old, new in zip(before, after, strict=True)
    )
    _, summed, weights = _sum(earlier, (keys + first, values, mx.ones_like(keys)))
    return summed / weights, _last(state, after, counts)


def _sum(one: tuple[mx.array, ...], other: tuple[mx.array, ...]) -> State:
    top = mx.maximum(one[0], other[0])
    share, rest = mx.exp(one[0] - top), mx.exp(other[0] - top)
    return top, share * one[1] + rest * other[1], share * one[2] + rest * other[2]


def _step_by_step(decay: mx.array, keys: mx.array, values: mx.array, state: State) -> State:
    found: list[State] = []
    for place in range(keys.shape[1]):
        key = keys[:, place]
        state = _sum((state[0] + decay, *state[1:]), (key, values[:, place], mx.ones_like(key)))
        found.append(state)
    tops, totals, weights = (mx.stack([one[part] for one in found], axis=1) for part in range(3))
    return tops, totals, weights


def _joined(decay: mx.array, keys: mx.array, values: mx.array, state: State) -> State:
    """Sums of 1, 2, 4 ... tokens, each of two of half as many; the state enters those from the first on."""
    sums: State = keys, values, mx.ones_like(keys)
    distance, width = 1, keys.shape[1]
    while distance < width:
        earlier = tuple(part[:, :-distance] for part in sums)
        later = tuple(part[:, distance:] for part in sums)
        joined = _sum((earlier[0] + distance * decay, *earlier[1:]), later)
        tops, totals, weights = (
            mx.concatenate([part[:, :distance], new], axis=1) for part, new in zip(sums, joined, strict=True)
        )
        sums, distance = (tops, totals, weights), 2 * distance
    ages = mx.arange(1, width + 1, dtype=mx.float32)[:, None] * decay
    return _sum((state[0][:, None] + ages, state[1][:, None], state[2][:, None]), sums)


def _last(state: State, after: State, counts: mx.array | None) -> State:
    if counts is None:
        tops, totals, weights = (part[:, -1] for part in after)
        return tops, totals, weights
    places = counts[:, None, None]
    tops, totals, weights = (
        mx.take_along_axis(mx.concatenate([old[:, None], new], axis=1), places, axis=1)[:, 0]
        for old, new in zip(state, after, strict=True)
    )
    return tops, totals, weights
