"""Embeddings that feed every layer (Gemma 3n and 4): a second table gives each token a small vector per
layer.

Dimensions: B rows, L tokens, D hidden size, N layers, P per-layer size.
"""

from typing import ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.nn.linear import embed, linear
from runtime.nn.module import Module
from runtime.nn.norm import RMSNorm
from runtime.step import Step


class PerLayerTrunk(Module):
    """A trunk with the second table. Names are the checkpoints'; `layer_inputs` is what layers are given."""

    in_turn: ClassVar[str] = "layers"

    def __init__(self, hidden: int, layers: int, size: int, vocab: int, eps: float) -> None:
        super().__init__()
        self._per_layer = (layers, size, vocab)
        if size:
            self.embed_tokens_per_layer = nn.Embedding(vocab, layers * size)
            self.per_layer_model_projection = nn.Linear(hidden, layers * size, bias=False)
            self.per_layer_projection_norm = RMSNorm(size, eps=eps)

    @property
    def for_layers(self) -> tuple[str, ...]:
        """The modules that `layer_inputs` needs."""
        own = "embed_tokens_per_layer", "per_layer_model_projection", "per_layer_projection_norm"
        return ("embed_tokens", *own) if self._per_layer[1] else ()

    def layer_inputs(self, step: Step, embedded: mx.array) -> mx.array | None:
        """[B, L, N, P] from the step's ids and their scaled embeddings [B, L, D]; None without a table."""
        layers, size, vocab = self._per_layer
        if not size:
            return None
        known = mx.where(step.ids < vocab, step.ids, 0)
        own = embed(self.embed_tokens_per_layer, known, step) * size**0.5
        seen = linear(self.per_layer_model_projection, embedded, step) * embedded.shape[-1] ** -0.5
        shape = (*known.shape, layers, size)
        return (self.per_layer_projection_norm(seen.reshape(shape)) + own.reshape(shape)) * 2**-0.5
