"""Residual streams of which a layer reads a mixture, and to each of which its answer comes with a weight of
its own (Qwen4's hyper-connections).

B rows, L tokens; S streams of D numbers lie side by side, [B, L, S D].
"""

import mlx.core as mx
import mlx.nn as nn

from runtime.nn.activation import sigmoid, silu
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.operations import ops
from runtime.step import Step


class StreamNorm(Module):
    """Each stream over the root of its mean square, times its part of the weight [S D]."""

    def __init__(self, streams: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.weight = mx.ones((streams * hidden,))
        self._streams, self._eps = streams, eps

    def __call__(self, x: mx.array) -> mx.array:
        apart = mx.unflatten(x.astype(mx.float32), -1, (self._streams, -1))
        return (ops.table.rms(apart, self._eps).flatten(-2) * self.weight).astype(x.dtype)


class StreamMixer(Module):
    """What is read of the streams: the mean of the normed ones, each number under a gate of low rank."""

    def __init__(self, streams: int, hidden: int, rank: int, eps: float) -> None:
        super().__init__()
        self.hc_norm = StreamNorm(streams, hidden, eps)
        self.input_mix_weight_down = nn.Linear(streams * hidden, rank, bias=False)
        self.input_mix_weight_up = nn.Linear(rank, streams * hidden, bias=False)
        self._streams = streams

    def __call__(self, streams: mx.array, step: Step) -> mx.array:
        """[B, L, S D] -> [B, L, D]."""
        return self.mixed(self.hc_norm(streams), step)

    def mixed(self, normed: mx.array, step: Step) -> mx.array:
        low = silu(linear(self.input_mix_weight_down, normed, step) / self._streams)
        gate = sigmoid(linear(self.input_mix_weight_up, low, step))
        return mx.unflatten(gate * normed, -1, (self._streams, -1)).mean(axis=-2)


class LowRankConnection(StreamMixer):
    """And what each stream gets of the answer."""

    def __init__(self, streams: int, hidden: int, rank: int, eps: float) -> None:
        super().__init__(streams, hidden, rank, eps)
        self.block_inject_weight = nn.Linear(streams * hidden, streams, bias=False)

    def open(self, streams: mx.array, step: Step) -> tuple[mx.array, mx.array]:
        """What is read, [B, L, D], and the streams' shares of the answer, [B, L, S]."""
        normed = self.hc_norm(streams)
        shares = 2 * sigmoid(linear(self.block_inject_weight, normed, step) / self._streams)
        return self.mixed(normed, step), shares


def joined(streams: mx.array, answer: mx.array, shares: mx.array) -> mx.array:
    """streams [B, L, S D], and to each its share of the answer [B, L, D]."""
    return streams + (shares[..., None] * answer[..., None, :]).flatten(-2)
