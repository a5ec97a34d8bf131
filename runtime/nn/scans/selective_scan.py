"""Mamba's state space: every channel has N states, each decaying at its own rate.

Per channel, with state h [N], step size d > 0 and rates a [N] < 0, one token does

    h <- exp(d a) h + d x B;    y = h . C

Dimensions: B rows, L tokens, C channels, N states. Long steps go chunk by chunk, because the states of
all tokens at once would take L x C x N numbers. Source: Mamba (arXiv 2312.00752), section 3.
"""

import mlx.core as mx

from runtime.nn.scans.chunks import zero_padding
from runtime.nn.scans.linear_scan import linear_scan

CHUNK = 64


def selective_scan(
    x: mx.array,
    steps: mx.array,
    rates: mx.array,
    inputs: mx.array,
    outputs: mx.array,
    state: mx.array,
    *,
    counts: mx.array | None = None,
) -> tuple[mx.array, mx.array]:
    """x and steps d [B, L, C], rates a [N, C], inputs B and outputs C [B, L, N], state float32 [B, N, C].

    Returns y float32 [B, L, C] and the state after each row's last real token.
    """
    x, steps, inputs, outputs = (part.astype(mx.float32) for part in (x, steps, inputs, outputs))
    steps = zero_padding(steps, counts)  # a step of size 0 neither decays nor writes
    y: list[mx.array] = []
    for start in range(0, x.shape[1], CHUNK):
        now = slice(start, start + CHUNK)
        decays = mx.exp(steps[:, now, None, :] * rates)
        written = inputs[:, now, :, None] * (steps[:, now] * x[:, now])[:, :, None, :]
        states = linear_scan(decays, written, state)
        y.append((outputs[:, now, None, :] @ states).squeeze(-2))
        state = states[:, -1]
    return y[0] if len(y) == 1 else mx.concatenate(y, axis=1), state
