"""Streams around sublayers, against the formulas spelled out."""

import mlx.core as mx
import numpy as np

from runtime.nn.residual.hyper_connections import AddingConnection, HyperHead, Streams, balanced

STREAMS = Streams(count=3, size=8, eps=1e-3, norm_eps=1e-4)


def test_a_sublayer_reads_a_mixture_and_each_stream_gets_a_share() -> None:
    mx.random.seed(3)
    made, x, answer = (
        AddingConnection(STREAMS, 1.5),
        mx.random.normal((2, 5, 24)),
        mx.random.normal((2, 5, 8)),
    )
    made.fn, made.base, made.scale = mx.random.normal((6, 24)), mx.random.normal((6,)), mx.array([0.5, 2.0])
    read, shares = made.open(x)
    flat, apart = np.array(x), np.array(x).reshape(2, 5, 3, 8)
    mixes = flat @ np.array(made.fn).T / np.sqrt((flat**2).mean(-1, keepdims=True) + 1e-4)
    gates = 1 / (1 + np.exp(-(mixes * np.repeat([0.5, 2.0], 3) + np.array(made.base))))
    assert np.allclose(read, ((gates[..., :3, None] + 1e-3) * apart).sum(2), atol=1e-5)
    wanted = apart + (1.5 * gates[..., 3:, None] + 1e-3) * np.array(answer)[..., None, :]
    assert np.allclose(made.close(x, answer, shares), wanted.reshape(2, 5, 24), atol=1e-5)


def test_the_head_mixes_the_streams() -> None:
    made = HyperHead(STREAMS)
    x = mx.random.normal((1, 2, 24))
    wanted = np.array(x).reshape(1, 2, 3, 8).sum(2) * (0.5 + 1e-3)
    assert np.allclose(made(x), wanted, atol=1e-5), "without a matrix each gate is a half"


def test_mixing_has_sums_of_one() -> None:
    made = balanced(mx.exp(mx.random.normal((4, 3, 3))), 30, 0.0)
    assert np.allclose(np.array(made).sum(-1), 1, atol=1e-5)
    assert np.allclose(np.array(made).sum(-2), 1, atol=1e-5)
