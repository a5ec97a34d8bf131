"""Residual streams that are mixed anew around every sublayer: manifold-constrained hyper-connections.

Dimensions: B rows, L tokens, S streams, D hidden size. Streams lie side by side, [B, L, S * D]. All of them
together say what a sublayer reads, how much of its answer comes to each stream and how streams are mixed;
rows and columns of the mixing are brought to sums of one in turn (Sinkhorn). Sums are float32. Source:
transformers modeling_deepseek_v4.py; arXiv 2409.19606 and 2512.24880.
"""

import mlx.core as mx

from runtime.nn import ops
from runtime.nn.activation import sigmoid
from runtime.nn.module import Module
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class HyperShape:
    hidden: int
    streams: int
    rounds: int
    """Of bringing columns, and before all but the first rows, to sums of one."""
    least: float
    """Added to shares and sums."""
    norm_eps: float


class HyperConnection(Module):
    """What is done to streams [B, L, S * D] around a sublayer."""

    def __init__(self, shape: HyperShape) -> None:
        super().__init__()
        outputs = (2 + shape.streams) * shape.streams
        self.fn = mx.zeros((outputs, shape.streams * shape.hidden))
        self.base = mx.zeros((outputs,))
        self.scale = mx.zeros((3,))
        self._shape = shape

    def open(self, streams: mx.array) -> tuple[mx.array, tuple[mx.array, mx.array]]:
        """What the sublayer reads, [B, L, D], and what `close` wants beside its answer."""
        count, least = self._shape.streams, self._shape.least
        made = _scores(streams, self.fn, self._shape.norm_eps)
        parts = mx.split(made, [count, 2 * count], axis=-1)
        bases = mx.split(self.base.astype(mx.float32), [count, 2 * count])
        scales = self.scale.astype(mx.float32)
        read, given, mixed = (part * scales[i] + bases[i] for i, part in enumerate(parts))
        mixed = ops.table.softmax(mx.unflatten(mixed, -1, (count, count))) + least
        mixing = balanced(mixed, self._shape.rounds, least)
        return _joined(streams, sigmoid(read) + least), (2 * sigmoid(given), mixing)

    def close(self, streams: mx.array, answer: mx.array, by: tuple[mx.array, mx.array]) -> mx.array:
        given, mixing = by
        apart = mx.unflatten(streams, -1, (self._shape.streams, -1)).astype(mx.float32)
        # Stream k is the sum over j of mixing[j, k] times stream j.
        mixed = (mixing[..., None] * apart[..., :, None, :]).sum(axis=-3)
        out = given[..., None] * answer[..., None, :].astype(mx.float32) + mixed
        return out.flatten(-2).astype(streams.dtype)


class HyperHead(Module):
    """Streams [B, L, S * D] -> [B, L, D], behind the last layer."""

    def __init__(self, shape: HyperShape) -> None:
        super().__init__()
        self.hc_fn = mx.zeros((shape.streams, shape.streams * shape.hidden))
        self.hc_base = mx.zeros((shape.streams,))
        self.hc_scale = mx.zeros((1,))
        self._shape = shape

    def __call__(self, streams: mx.array) -> mx.array:
        made = _scores(streams, self.hc_fn, self._shape.norm_eps)
        shares = made * self.hc_scale.astype(mx.float32) + self.hc_base.astype(mx.float32)
        return _joined(streams, sigmoid(shares) + self._shape.least)


WIDE: tuple[str, ...] = ("_hc.fn", "_hc.base", "_hc.scale", ".hc_fn", ".hc_base", ".hc_scale")
"""How names of parameters end that stay as wide as they are stored."""


def balanced(mixing: mx.array, rounds: int, least: float) -> mx.array:
    """[..., S, S] with columns of sum one, and rows nearly so."""
    mixing = mixing / (mixing.sum(axis=-2, keepdims=True) + least)
    for _ in range(rounds - 1):
        mixing = mixing / (mixing.sum(axis=-1, keepdims=True) + least)
        mixing = mixing / (mixing.sum(axis=-2, keepdims=True) + least)
    return mixing


def _scores(streams: mx.array, by: mx.array, eps: float) -> mx.array:
    normed = ops.table.rms(streams.astype(mx.float32), eps)
    return ops.table.matmul(normed, by.astype(mx.float32), transposed=True)


def _joined(streams: mx.array, shares: mx.array) -> mx.array:
    apart = mx.unflatten(streams, -1, (shares.shape[-1], -1)).astype(mx.float32)
    return (shares[..., None] * apart).sum(axis=-2).astype(streams.dtype)
