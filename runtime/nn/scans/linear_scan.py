"""First-order recurrences h_t = a_t h_{t-1} + b_t, elementwise, for all t at once.

Pairs (a, b) compose associatively, so prefixes are joined at distance 1, 2, 4 ...: log2 L passes and no
division, which makes decays near zero safe.
"""

import mlx.core as mx


def linear_scan(decays: mx.array, inputs: mx.array, state: mx.array) -> mx.array:
    """decays a and inputs b [B, L, ...], state h_0 [B, ...] -> h_1 .. h_L [B, L, ...]."""
    width, distance = inputs.shape[1], 1
    inputs = mx.concatenate([inputs[:, :1] + decays[:, :1] * state[:, None], inputs[:, 1:]], axis=1)
    while distance < width:
        joined = inputs[:, distance:] + decays[:, distance:] * inputs[:, :-distance]
        inputs = mx.concatenate([inputs[:, :distance], joined], axis=1)
        if 2 * distance < width:
            longer = decays[:, distance:] * decays[:, :-distance]
            decays = mx.concatenate([decays[:, :distance], longer], axis=1)
        distance *= 2
    return inputs
