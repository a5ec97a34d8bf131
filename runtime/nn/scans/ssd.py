"""Mamba-2's state space: a decaying sum of outer products, the state space dual of masked attention.

Per head, with state S [N, P], step size d > 0, rate a < 0, one token does

    S <- exp(d a) S + B (d x)^T;    y = S^T C

Dimensions: B rows, L tokens, H heads of P channels, G groups (H a multiple of G; heads of a group share B
and C), N states. `ssd` picks a form; every form equals this to rounding. Source: Mamba-2 (arXiv
2405.21060), section 6.
"""

import mlx.core as mx

from runtime.nn.scans.chunks import chunk_of, from_chunks, to_chunks, zero_padding
from runtime.nn.scans.gated_delta import decay_between

CHUNK = 64


def ssd(
    x: mx.array,
    steps: mx.array,
    rates: mx.array,
    inputs: mx.array,
    outputs: mx.array,
    state: mx.array,
    *,
    counts: mx.array | None = None,
) -> tuple[mx.array, mx.array]:
    """x [B, L, H, P], steps d [B, L, H], rates a [H], inputs B and outputs C [B, L, G, N], state float32
    [B, H, N, P].

    Returns y float32 [B, L, H, P] and the state after each row's last real token.
    """
    x, steps, inputs, outputs = (part.astype(mx.float32) for part in (x, steps, inputs, outputs))
    steps = zero_padding(steps, counts)  # a step of size 0 neither decays nor writes
    return faded_sums(x * steps[..., None], steps * rates, inputs, outputs, state)


def faded_sums(
    x: mx.array, decay: mx.array, inputs: mx.array, outputs: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    """The same of x already times its step, and logarithms of decays [B, L, H]."""
    grouped = state.reshape(state.shape[0], inputs.shape[2], -1, *state.shape[2:])
    form = _one_token if x.shape[1] == 1 else _chunked
    y, grouped = form(x, decay, inputs, outputs, grouped)
    return y, grouped.reshape(state.shape)


def _one_token(
    x: mx.array, decay: mx.array, inputs: mx.array, outputs: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    """x already times its step. state [B, G, R, N, P], R heads per group."""
    batch, _, groups, size = inputs.shape
    written = inputs.reshape(batch, groups, 1, size, 1) * x.reshape(*state.shape[:3], 1, state.shape[-1])
    state = state * mx.exp(decay).reshape(*state.shape[:3], 1, 1) + written
    y = outputs.reshape(batch, groups, 1, 1, size) @ state
    return y.reshape(x.shape), state


def _chunked(
    x: mx.array, decay: mx.array, inputs: mx.array, outputs: mx.array, state: mx.array
) -> tuple[mx.array, mx.array]:
    """Inside a chunk a masked product, between chunks the state. Axes: [B, G, R, T, C, ...], T chunks."""
    width, groups = inputs.shape[1], inputs.shape[2]
    chunk = chunk_of(width, CHUNK)

    def cut(part: mx.array) -> mx.array:
        """[B, L, G or H, ...] -> [B, G, 1 or R, T, C, ...]"""
        pieces = to_chunks(part, chunk)
        return pieces.reshape(pieces.shape[0], groups, -1, *pieces.shape[2:])

    v, k, q = cut(x), cut(inputs), cut(outputs)
    total = mx.cumsum(cut(decay), axis=-1)
    inside = ((q @ k.swapaxes(-1, -2)) * decay_between(total)) @ v
    grown = mx.exp(total)[..., None]
    written = k.swapaxes(-1, -2) @ (v * mx.exp(total[..., -1:] - total)[..., None])
    y: list[mx.array] = []
    for t in range(v.shape[3]):
        y.append(q[..., t, :, :] @ state)
        state = state * grown[..., t, -1:, :] + written[..., t, :, :]
    out = inside + mx.stack(y, axis=3) * grown
    flat = out.reshape(out.shape[0], x.shape[2], *out.shape[3:])
    return from_chunks(flat, width), state
