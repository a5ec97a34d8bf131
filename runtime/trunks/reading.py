"""Decoder layers that read what an encoder made of a prompt. Each has two memories, one behind the other in
the layout: its own, and that of what was read.

B rows, L tokens, D hidden size.
"""

from collections.abc import Sequence
from typing import Protocol

import mlx.core as mx

from runtime.cache.protocol import AttentionCache, Caches, by_layer
from runtime.step import Step


class Reader(Protocol):
    """One such layer."""

    def remember(self, read: mx.array, whole: Step, step: Step, cache: AttentionCache) -> None:
        """What the encoder made of a whole prompt, which begins the rows of this step."""
        ...


class ReadingLayer(Reader, Protocol):
    """One that needs no more than its memories."""

    def __call__(self, x: mx.array, step: Step, own: AttentionCache, read: AttentionCache, /) -> mx.array: ...


def through(layers: Sequence[ReadingLayer], x: mx.array, step: Step, caches: Caches) -> mx.array:
    """x [B, L, D] behind all layers."""
    for layer, (own, read) in zip(layers, by_layer(caches, 2), strict=True):
        x = layer(x, step, own, read)
    return x


def remember(layers: Sequence[Reader], read: mx.array, whole: Step, step: Step, caches: Caches) -> None:
    """What the encoder made of whole prompts, in all layers."""
    for layer, (_, cache) in zip(layers, by_layer(caches, 2), strict=True):
        layer.remember(read, whole, step, cache)
