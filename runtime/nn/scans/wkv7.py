"""RWKV-7's fold: a decay for every key channel, and a key of its own for what is removed.

Per head, with state S [Dk, Dv], log decay g < 0, key k, value v, removal key r of length one, and rate a of
learning in each channel, one token does

    S <- diag(exp(g)) S - (a r) (r^T S) + k v^T;    y = S^T q

As `runtime.nn.scans.channel_delta`, whose two removal keys are one and whose key is that one, too. Whoever
promises the same bits for any cut folds token by token; else chunks are solved as there. Source: RWKV-7
(arXiv 2503.14456), section 4.

B rows, L tokens, H heads.
"""

import mlx.core as mx

from runtime.nn.scans.channel_delta import decayed_products
from runtime.nn.scans.chunks import chunk_of, from_chunks, to_chunks, zero_padding
from runtime.nn.scans.gated_delta import carry, unit_lower_inverse

CHUNK = 32


def wkv7(
    queries: mx.array,
    decay: mx.array,
    keys: mx.array,
    values: mx.array,
    removed: mx.array,
    rates: mx.array,
    state: mx.array,
    *,
    counts: mx.array | None = None,
    one_by_one: bool = False,
) -> tuple[mx.array, mx.array]:
    """All but values [B, L, H, Dk], values [B, L, H, Dv], state float32 [B, H, Dk, Dv].

    Returns outputs float32 [B, L, H, Dv] and the state after each row's last real token.
    """
    queries, decay, keys, values, removed, rates = (
        part.astype(mx.float32) for part in (queries, decay, keys, values, removed, rates)
    )
    decay, keys, learnt = (zero_padding(part, counts) for part in (decay, keys, rates * removed))
    form = plain_wkv7 if one_by_one or keys.shape[1] == 1 else _chunked
    return form(queries, decay, keys, values, removed, learnt, state)


def plain_wkv7(
    queries: mx.array,
    decay: mx.array,
    keys: mx.array,
    values: mx.array,
    removed: mx.array,
    learnt: mx.array,
    state: mx.array,
) -> tuple[mx.array, mx.array]:
    """The definition, token by token. learnt: a r."""
    outputs: list[mx.array] = []
    grown = mx.exp(decay)[..., None]
    for i in range(keys.shape[1]):
        held = removed[:, i, :, None, :] @ state
        state = grown[:, i] * state - learnt[:, i, :, :, None] * held
        state = state + keys[:, i, :, :, None] * values[:, i, :, None, :]
        outputs.append((queries[:, i, :, None, :] @ state).squeeze(-2))
    return mx.stack(outputs, axis=1), state


def _chunked(
    queries: mx.array,
    decay: mx.array,
    keys: mx.array,
    values: mx.array,
    removed: mx.array,
    learnt: mx.array,
    state: mx.array,
) -> tuple[mx.array, mx.array]:
    """Axes: [B, H, N, C, D], N chunks of C tokens. What the state holds of a removal key, h = r^T S, is asked
    of it before it has faded; to ask the faded one, r grows by what fades. Then h and v are what a chunk's
    tokens write, by two keys.
    """
    width = keys.shape[1]
    chunk = chunk_of(width, CHUNK)
    parts = (queries, decay, keys, values, removed * mx.exp(-decay), learnt)
    q, g, k, v, r, b = (to_chunks(part, chunk) for part in parts)
    total = mx.cumsum(g, axis=-2)
    grown = mx.exp(total)
    both = decayed_products(mx.stack([r, r, q, q]), mx.stack([b, k, b, k]), total)
    own, told = mx.tril(both[0], -1), mx.tril(both[1], -1)
    solved = unit_lower_inverse(own) @ mx.concatenate([told @ v, r * grown], axis=-1)
    holds, asks = solved[..., : v.shape[-1]], solved[..., v.shape[-1] :]
    writes = mx.concatenate([-holds, v], axis=-2)
    reads = mx.concatenate([asks, mx.zeros_like(asks)], axis=-2)
    left = mx.concatenate([b, k], axis=-2) * mx.exp(total[..., -1:, :] - mx.concatenate([total] * 2, axis=-2))
    within = mx.concatenate([both[2], both[3]], axis=-1)
    outputs, state = carry(writes, reads, within, q * grown, left, grown[..., -1:, :], state)
    return from_chunks(outputs, width), state
