"""RWKV-6's fold, and RWKV-5's, whose decays are the same for all tokens: a decay for every key channel, and
what a token is given counts by a weight of its own.

Per head, with state S [Dk, Dv], log decay g < 0, key k, value v, query r and first weight u, one token does

    y = S^T r + (r . (u k)) v;    S <- diag(exp(g)) S + k v^T

Whoever promises the same bits for any cut folds token by token; else chunks are solved as in
`runtime.nn.scans.channel_delta`. A token does not see the state that it makes, so chunks ask with the queries
of the token behind. Source: RWKV-5 and 6 (arXiv 2404.05892), section 4.

B rows, L tokens, H heads.
"""

import mlx.core as mx

from runtime.nn.scans.channel_delta import decayed_products
from runtime.nn.scans.chunks import chunk_of, from_chunks, to_chunks, zero_padding
from runtime.nn.scans.gated_delta import carry

CHUNK = 16
LEAST = -30.0
"""A logarithm below which nothing is left to floats: sums of what lies far below would hide what is above."""


def wkv6(
    queries: mx.array,
    decay: mx.array,
    keys: mx.array,
    values: mx.array,
    first: mx.array,
    state: mx.array,
    *,
    counts: mx.array | None = None,
    one_by_one: bool = False,
) -> tuple[mx.array, mx.array]:
    """Queries, decays and keys [B, L, H, Dk], values [B, L, H, Dv], first [H, Dk], state float32 [B, H, Dk,
    Dv]. Returns outputs float32 [B, L, H, Dv] and the state after each row's last real token.
    """
    queries, decay, keys, values, first = (
        part.astype(mx.float32) for part in (queries, decay, keys, values, first)
    )
    own = (queries * first * keys).sum(axis=-1, keepdims=True) * values
    decay, keys = zero_padding(decay, counts), zero_padding(keys, counts)
    form = plain_wkv6 if one_by_one or keys.shape[1] == 1 else _chunked
    seen, state = form(queries, decay, keys, values, state)
    return seen + own, state


def plain_wkv6(
    queries: mx.array, decay: mx.array, keys: mx.array, values: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    """The definition, token by token, but for what a token says of itself."""
    outputs: list[mx.array] = []
    grown = mx.exp(decay)[..., None]
    for i in range(keys.shape[1]):
        outputs.append((queries[:, i, :, None, :] @ state).squeeze(-2))
        state = grown[:, i] * state + keys[:, i, :, :, None] * values[:, i, :, None, :]
    return mx.stack(outputs, axis=1), state


def _chunked(
    queries: mx.array, decay: mx.array, keys: mx.array, values: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    """Axes: [B, H, N, C, D], N chunks of C tokens."""
    width = keys.shape[1]
    chunk = chunk_of(width, CHUNK)
    decay = mx.maximum(decay, LEAST)
    q, g, k, v = (to_chunks(part, chunk) for part in (queries, decay, keys, values))
    total = mx.cumsum(g, axis=-2)
    before = _later(total)
    within = _later(decayed_products(mx.concatenate([q[..., 1:, :], q[..., :1, :]], axis=-2), k, total))
    left = k * mx.exp(total[..., -1:, :] - total)
    kept = mx.exp(total[..., -1:, :])
    outputs, state = carry(v, mx.zeros_like(k), within, q * mx.exp(before), left, kept, state)
    return from_chunks(outputs, width), state


def _later(rows: mx.array) -> mx.array:
    """[..., C, D] -> each row one place later, zeros in the first."""
    return mx.concatenate([mx.zeros_like(rows[..., :1, :]), rows[..., :-1, :]], axis=-2)
