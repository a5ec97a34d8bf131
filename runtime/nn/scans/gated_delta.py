"""The gated delta rule: a fast-weight memory that forgets by a gate and corrects what a key already
stands for.

Per head, with state S [Dk, Dv], log decay g <= 0 and write strength b in [0, 2], one token does

    S <- exp(g) S;    r = b (v - S^T k);    S <- S + k r^T;    y = S^T q

Dimensions: B rows, L tokens, K key heads, H value heads (H a multiple of K; value head h reads key head h
// (H/K)), Dk, Dv head sizes. `gated_delta` picks a form; every form equals this to rounding. The chunked form
solves each chunk's triangular system at once (the UT transform) and carries the state from chunk to chunk.
Sources: gated delta networks (arXiv 2412.06464); parallel delta rule (2406.06484).
"""

import mlx.core as mx

from runtime.nn.scans.chunks import chunk_of, from_chunks, to_chunks, zero_padding

CHUNK = 64


def gated_delta(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    decay: mx.array,
    strength: mx.array,
    state: mx.array,
    *,
    counts: mx.array | None = None,
) -> tuple[mx.array, mx.array]:
    """queries, keys [B, L, K, Dk], values [B, L, H, Dv], log decay and strength [B, L, H], state float32
    [B, H, Dk, Dv].

    Returns outputs float32 [B, L, H, Dv] and the state after each row's last real token. Queries come
    scaled, keys normalised.
    """
    groups = keys.shape[2]
    queries, keys, values, strength = (x.astype(mx.float32) for x in (queries, keys, values, strength))
    decay, strength = zero_padding(decay.astype(mx.float32), counts), zero_padding(strength, counts)
    grouped = state.reshape(state.shape[0], groups, -1, *state.shape[2:])
    form = _one_token if keys.shape[1] == 1 else _chunked
    outputs, grouped = form(queries, keys, values, decay, strength, grouped)
    return outputs, grouped.reshape(state.shape)


def _one_token(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    decay: mx.array,
    strength: mx.array,
    state: mx.array,
) -> tuple[mx.array, mx.array]:
    """state [B, K, R, Dk, Dv], R value heads per key head."""
    batch, _, groups, size = keys.shape
    shared = (batch, groups, 1, 1, size)
    per_head = (*state.shape[:3], 1, 1)
    key = keys.reshape(shared)
    state = state * mx.exp(decay).reshape(per_head)
    value = values.reshape(*state.shape[:3], 1, state.shape[-1])
    wrong = (value - key @ state) * strength.reshape(per_head)
    state = state + key.swapaxes(-1, -2) * wrong
    return (queries.reshape(shared) @ state).reshape(values.shape), state


def _chunked(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    decay: mx.array,
    strength: mx.array,
    state: mx.array,
) -> tuple[mx.array, mx.array]:
    """All chunks' triangular systems in one go, then one pass over the chunks. Axes: [B, K, R, N, C, D],
    N chunks of C tokens.
    """
    width, groups = keys.shape[1], keys.shape[2]
    chunk = chunk_of(width, CHUNK)

    def cut(x: mx.array) -> mx.array:
        """[B, L, K or H, ...] -> [B, K, 1 or R, N, C, ...]"""
        pieces = to_chunks(x, chunk)
        return pieces.reshape(pieces.shape[0], groups, -1, *pieces.shape[2:])

    q, k, v, b = cut(queries), cut(keys), cut(values), cut(strength)[..., None]
    total = mx.cumsum(cut(decay), axis=-1)
    between = decay_between(total)
    grown = mx.exp(total)[..., None]
    # Row i of (I + A) r = b v - b e^G k S asks what token i has to write, given its chunk's earlier tokens.
    system = mx.tril((k @ k.swapaxes(-1, -2)) * between * b, -1)
    solved = unit_lower_inverse(system) @ mx.concatenate([v * b, k * (b * grown)], axis=-1)
    writes, reads = solved[..., : v.shape[-1]], solved[..., v.shape[-1] :]
    within = (q @ k.swapaxes(-1, -2)) * between
    reads = mx.broadcast_to(reads, (*grown.shape[:-1], k.shape[-1]))
    left = k * mx.exp(total[..., -1:] - total)[..., None]
    stacked, state = carry(writes, reads, within, q * grown, left, grown[..., -1:, :], state)
    flat = stacked.reshape(stacked.shape[0], values.shape[2], *stacked.shape[3:])
    return from_chunks(flat, width), state


def carry(
    writes: mx.array,
    reads: mx.array,
    within: mx.array,
    asked: mx.array,
    left: mx.array,
    kept: mx.array,
    state: mx.array,
) -> tuple[mx.array, mx.array]:
    """The state from chunk to chunk: [..., N, C, Dv] outputs and the last state [..., Dk, Dv].

    writes [..., N, C, Dv] less reads [..., N, C, Dk] of the state is what a chunk's tokens write; they
    ask the state by `asked` and each other by `within` [..., N, C, C]; `left` of a key and `kept` of the
    state [..., N, 1, Dk or 1] reach the chunk's end.
    """
    chunk = writes.shape[-2]
    questions = mx.concatenate([reads, asked], axis=-2)
    outputs: list[mx.array] = []
    for n in range(writes.shape[-3]):
        told = questions[..., n, :, :] @ state
        written = writes[..., n, :, :] - told[..., :chunk, :]
        outputs.append(told[..., chunk:, :] + within[..., n, :, :] @ written)
        fresh = left[..., n, :, :].swapaxes(-1, -2) @ written
        state = state * kept[..., n, :, :].swapaxes(-1, -2) + fresh
    return mx.stack(outputs, axis=-3), state


def decay_between(total: mx.array) -> mx.array:
    """exp(total_i - total_j) for j <= i, else 0. total [..., C]: log decay summed from the chunk's start."""
    size = total.shape[-1]
    gap = total[..., :, None] - total[..., None, :]
    causal = mx.tri(size, dtype=mx.bool_) if size > 1 else mx.ones((1, 1), mx.bool_)
    return mx.exp(mx.where(causal, gap, -mx.inf))


def unit_lower_inverse(strict: mx.array) -> mx.array:
    """(I + A)^-1 for strictly lower triangular A [..., C, C], C a power of two.

    Joins the inverses of diagonal blocks of size 1, 2, 4 ...: as stable as substitution (a power series
    is not: repeated tokens make powers of A grow like binomials), and only matrix products.
    """
    size = strict.shape[-1]
    lead = strict.shape[:-2]
    inverse = mx.ones((*lead, size, 1, 1), strict.dtype)
    block = 1
    while block < size:
        pairs = size // (2 * block)
        tiles = strict.reshape(*lead, pairs, 2 * block, pairs, 2 * block)
        diagonal = mx.moveaxis(mx.diagonal(tiles, 0, -4, -2), -1, -3)
        coupling = diagonal[..., block:, :block]
        upper, lower = inverse[..., 0::2, :, :], inverse[..., 1::2, :, :]
        corner = -(lower @ coupling @ upper)
        top = mx.concatenate([upper, mx.zeros_like(upper)], axis=-1)
        inverse = mx.concatenate([top, mx.concatenate([corner, lower], axis=-1)], axis=-2)
        block *= 2
    return inverse[..., 0, :, :]
