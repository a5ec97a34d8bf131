"""The gated delta rule with a decay of its own for every key channel (Kimi delta attention).

As `runtime.nn.scans.gated_delta`, but g is a vector: S <- diag(exp(g)) S. Inside a chunk token i sees token j
through sum_d q_id k_jd exp(G_id - G_jd), where G sums g from the chunk's start; the two exponentials
apart would overflow. So the chunk is halved again and again: between two halves both are taken relative
to the middle, where neither exceeds one. Source: Kimi Linear (arXiv 2510.26692).
"""

import mlx.core as mx

from runtime.nn.scans.chunks import chunk_of, from_chunks, to_chunks, zero_padding
from runtime.nn.scans.gated_delta import CHUNK, carry, unit_lower_inverse


def channel_delta(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    decay: mx.array,
    strength: mx.array,
    state: mx.array,
    *,
    counts: mx.array | None = None,
) -> tuple[mx.array, mx.array]:
    """queries, keys and log decay [B, L, H, Dk], values [B, L, H, Dv], strength [B, L, H], state float32
    [B, H, Dk, Dv].

    Returns outputs float32 [B, L, H, Dv] and the state after each row's last real token. Queries come
    scaled, keys normalised.
    """
    queries, keys, values, strength = (x.astype(mx.float32) for x in (queries, keys, values, strength))
    decay, strength = zero_padding(decay.astype(mx.float32), counts), zero_padding(strength, counts)
    form = _one_token if keys.shape[1] == 1 else _chunked
    return form(queries, keys, values, decay, strength, state)


def _one_token(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    decay: mx.array,
    strength: mx.array,
    state: mx.array,
) -> tuple[mx.array, mx.array]:
    key = keys[:, 0, :, None, :]
    state = state * mx.exp(decay[:, 0])[..., None]
    written = (values[:, 0, :, None, :] - key @ state) * strength[:, 0, :, None, None]
    state = state + key.swapaxes(-1, -2) * written
    return (queries[:, 0, :, None, :] @ state).squeeze(-2)[:, None], state


def _chunked(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    decay: mx.array,
    strength: mx.array,
    state: mx.array,
) -> tuple[mx.array, mx.array]:
    """Axes: [B, H, N, C, D], N chunks of C tokens."""
    width = keys.shape[1]
    chunk = chunk_of(width, CHUNK)
    q, k, v, total = (to_chunks(x, chunk) for x in (queries, keys, values, decay))
    b = to_chunks(strength, chunk)[..., None]
    total = mx.cumsum(total, axis=-2)
    grown = mx.exp(total)
    both = decayed_products(mx.stack([k * b, q]), k, total)
    system, within = mx.tril(both[0], -1), both[1]
    solved = unit_lower_inverse(system) @ mx.concatenate([v * b, k * b * grown], axis=-1)
    writes, reads = solved[..., : v.shape[-1]], solved[..., v.shape[-1] :]
    left = k * mx.exp(total[..., -1:, :] - total)
    outputs, state = carry(writes, reads, within, q * grown, left, grown[..., -1:, :], state)
    return from_chunks(outputs, width), state


def decayed_products(rows: mx.array, columns: mx.array, total: mx.array) -> mx.array:
    """sum_d rows_id columns_jd exp(total_id - total_jd) for j <= i, else 0.

    rows [..., C, D], columns and total [C, D] at the end too, C a power of two, total falling along C ->
    [..., C, C].
    """
    size = rows.shape[-2]
    products = (rows * columns).sum(axis=-1)[..., None, None]
    block = 1
    while block < size:
        before, after = _halves(columns, block)[0], _halves(rows, block)[1]
        early, late = _halves(total, block)
        middle = early[..., -1:, :]
        corner = (after * mx.exp(late - middle)) @ (before * mx.exp(middle - early)).swapaxes(-1, -2)
        upper, lower = products[..., 0::2, :, :], products[..., 1::2, :, :]
        top = mx.concatenate([upper, mx.zeros_like(upper)], axis=-1)
        products = mx.concatenate([top, mx.concatenate([corner, lower], axis=-1)], axis=-2)
        block *= 2
    return products[..., 0, :, :]


def _halves(x: mx.array, block: int) -> tuple[mx.array, mx.array]:
    """[..., C, D] -> the first and the second half of each run of 2 * block rows, [..., C / (2 * block),
    block, D].
    """
    pairs = x.reshape(*x.shape[:-2], -1, 2, block, x.shape[-1])
    return pairs[..., 0, :, :], pairs[..., 1, :, :]
