"""Several residual streams in the place of one: what a sublayer reads is a mixture of them, and each gets a
share of its answer (hyper-connections). How much of each, all streams of a token say together.

Dimensions: B rows, L tokens, S streams, D hidden size; streams lie side by side, [B, L, S * D]. Scores and
sums are float32. Sources: transformers modeling_hy_v4.py, modeling_deepseek_v4.py; arXiv 2409.19606 and
2512.24880.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import mlx.core as mx

from runtime.nn.activation import sigmoid
from runtime.nn.layer import FeedForward
from runtime.nn.module import Module
from runtime.nn.norm import Norm
from runtime.nn.operations import ops
from runtime.records import dataclass
from runtime.step import Step

Memory = TypeVar("Memory")
"""What an attention remembers by."""


@dataclass(frozen=True, slots=True)
class Streams:
    count: int
    """S."""
    size: int
    """D."""
    eps: float
    """Added to what is read of each stream."""
    norm_eps: float
    """Of the norm before scores are made."""


class HyperConnection(Module):
    """Around one sublayer; scores: how many of each stream there are."""

    def __init__(self, streams: Streams, scores: int, scales: int) -> None:
        super().__init__()
        self.fn = mx.zeros((scores * streams.count, streams.count * streams.size))
        self.base = mx.zeros((scores * streams.count,))
        self.scale = mx.zeros((scales,))
        self._streams = streams

    def open(self, streams: mx.array) -> tuple[mx.array, Any]:
        """What the sublayer reads, [B, L, D], and what `close` wants beside its answer."""
        raise NotImplementedError

    def close(self, streams: mx.array, answer: mx.array, by: Any) -> mx.array:
        """The streams behind the sublayer."""
        raise NotImplementedError

    def _scores(self, streams: mx.array) -> tuple[mx.array, ...]:
        """A part for each scale: of what is read, [B, L, S], of what is added, [B, L, S], and of more."""
        count = self._streams.count
        cuts = [part * count for part in range(1, self.scale.size)]
        parts = mx.split(_products(streams, self.fn, self._streams.norm_eps), cuts, axis=-1)
        bases, scales = mx.split(self.base.astype(mx.float32), cuts), self.scale.astype(mx.float32)
        return tuple(part * scales[i] + bases[i] for i, part in enumerate(parts))

    def _read(self, streams: mx.array, scores: mx.array) -> mx.array:
        return _joined(streams, sigmoid(scores) + self._streams.eps)


class AddingConnection(HyperConnection):
    """Each stream goes on as it is, with its share of the answer (Hunyuan V4). magnitude: shares are at most
    about this.
    """

    def __init__(self, streams: Streams, magnitude: float) -> None:
        super().__init__(streams, 2, 2)
        self._magnitude = magnitude

    def open(self, streams: mx.array) -> tuple[mx.array, mx.array]:
        read, added = self._scores(streams)
        return self._read(streams, read), self._magnitude * sigmoid(added) + self._streams.eps

    def close(self, streams: mx.array, answer: mx.array, by: mx.array) -> mx.array:
        return _added(_by_stream(streams, self._streams.count), answer, by, streams.dtype)


class MixingConnection(HyperConnection):
    """Streams are mixed, too, by a matrix whose rows and columns are brought to sums of one in turn
    (DeepSeek V4, GLM-5.3). rounds: of bringing columns, and before all but the first rows, to that.
    """

    def __init__(self, streams: Streams, rounds: int) -> None:
        super().__init__(streams, 2 + streams.count, 3)
        self._rounds = rounds

    def open(self, streams: mx.array) -> tuple[mx.array, tuple[mx.array, mx.array]]:
        count, eps = self._streams.count, self._streams.eps
        read, added, mixed = self._scores(streams)
        mixed = ops.table.softmax(mx.unflatten(mixed, -1, (count, count))) + eps
        return self._read(streams, read), (2 * sigmoid(added), balanced(mixed, self._rounds, eps))

    def close(self, streams: mx.array, answer: mx.array, by: tuple[mx.array, mx.array]) -> mx.array:
        shares, mixing = by
        # Stream k is the sum over j of mixing[j, k] times stream j.
        mixed = (mixing[..., None] * _by_stream(streams, self._streams.count)[..., :, None, :]).sum(axis=-3)
        return _added(mixed, answer, shares, streams.dtype)


class HyperBlock(Module, Generic[Memory]):
    """Streams -> streams, around an attention and a feed-forward part, each behind a norm. connection: makes
    what is around one of them.
    """

    def __init__(
        self,
        attention: Callable[[mx.array, Step, Memory], mx.array],
        mlp: FeedForward,
        norm: Norm,
        connection: Callable[[], HyperConnection],
    ) -> None:
        super().__init__()
        self.self_attn, self.mlp = attention, mlp
        self.input_layernorm, self.post_attention_layernorm = norm(), norm()
        self.attn_hc, self.ffn_hc = connection(), connection()

    def __call__(self, streams: mx.array, step: Step, cache: Memory) -> mx.array:
        x, by = self.attn_hc.open(streams)
        streams = self.attn_hc.close(streams, self.self_attn(self.input_layernorm(x), step, cache), by)
        x, by = self.ffn_hc.open(streams)
        return self.ffn_hc.close(streams, self.mlp(self.post_attention_layernorm(x), step), by)


class HyperHead(Module):
    """What the streams are together in the end, [B, L, S * D] -> [B, L, D]."""

    def __init__(self, streams: Streams) -> None:
        super().__init__()
        self.hc_fn = mx.zeros((streams.count, streams.count * streams.size))
        self.hc_base = mx.zeros((streams.count,))
        self.hc_scale = mx.zeros((1,))
        self._streams = streams

    def __call__(self, streams: mx.array) -> mx.array:
        made = _products(streams, self.hc_fn, self._streams.norm_eps)
        scores = made * self.hc_scale.astype(mx.float32) + self.hc_base.astype(mx.float32)
        return _joined(streams, sigmoid(scores) + self._streams.eps)


WIDE: tuple[str, ...] = ("_hc.fn", "_hc.base", "_hc.scale", ".hc_fn", ".hc_base", ".hc_scale")
"""How names of parameters end that stay as wide as they are stored."""


def balanced(mixing: mx.array, rounds: int, eps: float) -> mx.array:
    """[..., S, S] with columns of sum one, and rows nearly so (Sinkhorn)."""
    mixing = mixing / (mixing.sum(axis=-2, keepdims=True) + eps)
    for _ in range(rounds - 1):
        mixing = mixing / (mixing.sum(axis=-1, keepdims=True) + eps)
        mixing = mixing / (mixing.sum(axis=-2, keepdims=True) + eps)
    return mixing


def _products(streams: mx.array, by: mx.array, eps: float) -> mx.array:
    normed = ops.table.rms(streams.astype(mx.float32), eps)
    return ops.table.matmul(normed, by.astype(mx.float32), transposed=True)


def _by_stream(streams: mx.array, count: int) -> mx.array:
    """[B, L, S, D]"""
    return mx.unflatten(streams, -1, (count, -1)).astype(mx.float32)


def _joined(streams: mx.array, shares: mx.array) -> mx.array:
    """[B, L, D]"""
    return (shares[..., None] * _by_stream(streams, shares.shape[-1])).sum(axis=-2).astype(streams.dtype)


def _added(apart: mx.array, answer: mx.array, shares: mx.array, dtype: mx.Dtype) -> mx.array:
    """[B, L, S * D]"""
    return (shares[..., None] * answer[..., None, :].astype(mx.float32) + apart).flatten(-2).astype(dtype)
