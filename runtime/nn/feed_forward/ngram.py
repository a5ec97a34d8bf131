"""What a table has for the last few tokens together (`ngram_places`): Qwen4's per-layer embeddings.

Dimensions: B rows, L tokens, N the longest n-gram, H heads; S streams of D numbers side by side.

What the heads find together becomes a value that each stream opens by how well it goes with a key; what a
convolution over tokens that are N apart makes of the open values comes to them.
"""

import math
from typing import ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.protocol import ScanningCache
from runtime.nn.activation import sigmoid, silu
from runtime.nn.feed_forward.ngram_hash import Ngrams
from runtime.nn.linear import embed, linear
from runtime.nn.module import Module
from runtime.nn.residual.stream_mixer import StreamNorm
from runtime.nn.scans.causal_conv import last_inputs
from runtime.step import Step


class NgramEmbedding(Module):
    """What the heads find, side by side."""

    reads_ids: ClassVar[bool] = True
    """Whoever has the layer has to be told them (`runtime.ranks`)."""

    layer_multipliers: mx.array
    ngram_heads_vocab_sizes: mx.array
    ngram_heads_offsets: mx.array

    def __init__(self, shape: Ngrams, size: int) -> None:
        """size: of a row of the table."""
        super().__init__()
        self.ngram_embedding = nn.Embedding(shape.rows, size)
        for name, numbers in shape.constants().items():
            self[name] = mx.array(numbers, mx.int64)
        self._shape = shape

    def __call__(self, step: Step, cache: ScanningCache) -> mx.array:
        """[B, L, H * size]."""
        ids = cache.scan(step, self._followed, step.ids[..., None])
        places, shape = list[mx.array](), self._shape
        mixed = ids[..., :1] * self.layer_multipliers[0]
        for n in range(1, shape.longest):
            mixed = mixed ^ (ids[..., n : n + 1] * self.layer_multipliers[n])
            heads = slice((n - 1) * shape.each, n * shape.each)
            places.append(mixed % self.ngram_heads_vocab_sizes[heads] + self.ngram_heads_offsets[heads])
        return embed(self.ngram_embedding, mx.concatenate(places, axis=-1), step).flatten(-2)

    def _followed(
        self, states: dict[str, mx.array], ids: mx.array, *, counts: mx.array | None
    ) -> tuple[mx.array, dict[str, mx.array]]:
        """ids [B, L, 1] -> int64 [B, L, N]: each with those before it."""
        width, before = ids.shape[1], self._shape.longest - 1
        window = mx.concatenate([states["ids"].astype(mx.int64), ids.astype(mx.int64) + 1], axis=1)
        found = [window[:, before:] - 1]
        ended = mx.zeros(ids.shape, mx.bool_)
        for back in range(1, before + 1):
            one = window[:, before - back : before - back + width] - 1
            ended = ended | (one < 0) | (one == self._shape.end)
            found.append(mx.where(ended, self._shape.end, one))
        kept = last_inputs(window, before, counts).astype(mx.float32)
        return mx.concatenate(found, axis=-1), {"ids": kept}


class DilatedConv(Module):
    """A filter for each of C channels over tokens that are `apart` from each other: weight [C, k, 1]."""

    def __init__(self, channels: int, taps: int, apart: int) -> None:
        super().__init__()
        self.weight = mx.zeros((channels, taps, 1))
        self._apart = apart

    def __call__(
        self, states: dict[str, mx.array], x: mx.array, *, counts: mx.array | None
    ) -> tuple[mx.array, dict[str, mx.array]]:
        """x [B, L, C] -> [B, L, C]."""
        width, before = x.shape[1], states["conv"].shape[1]
        window = mx.concatenate([states["conv"].astype(x.dtype), x], axis=1)
        filters = self.weight[:, :, 0].T.astype(mx.float32)
        out = mx.zeros(x.shape)
        for tap, by in enumerate(filters):
            out = out + window[:, tap * self._apart : tap * self._apart + width] * by
        return out.astype(x.dtype), {"conv": last_inputs(window, before, counts)}


class NgramLayer(Module):
    """What comes to the streams in front of a layer."""

    def __init__(self, shape: Ngrams, size: int, streams: int, hidden: int, taps: int, eps: float) -> None:
        """size: of what the heads find together."""
        super().__init__()
        self.ple_embedding = NgramEmbedding(shape, size // shape.heads)
        self.key_proj = nn.Linear(size, streams * hidden, bias=False)
        self.value_proj = nn.Linear(size, hidden, bias=False)
        self.norm_key = StreamNorm(streams, hidden, eps)
        self.norm_query = StreamNorm(streams, hidden, eps)
        self.norm_conv = StreamNorm(streams, hidden, eps)
        self.conv1d = DilatedConv(streams * hidden, taps, shape.longest)
        self._streams = streams

    def __call__(self, x: mx.array, step: Step, caches: tuple[ScanningCache, ScanningCache]) -> mx.array:
        """[B, L, S D] -> [B, L, S D]. caches: of ids, and of what the convolution has read."""
        found = self.ple_embedding(step, caches[0])
        products = self.norm_key(linear(self.key_proj, found, step)) * self.norm_query(x)
        apart = mx.unflatten(products, -1, (self._streams, -1))
        agrees = apart.sum(axis=-1, keepdims=True) / math.sqrt(apart.shape[-1])
        gate = sigmoid(mx.sqrt(mx.maximum(mx.abs(agrees), 1e-6)) * mx.sign(agrees))
        value = (gate * linear(self.value_proj, found, step)[..., None, :]).flatten(-2)
        return value + silu(caches[1].scan(step, self.conv1d, self.norm_conv(value)))
