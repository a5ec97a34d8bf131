"""What encoders for embeddings have in common: hidden states are all they give."""

import mlx.core as mx
import mlx.nn as nn

from runtime.errors import NotSupported
from runtime.nn.linear import embed
from runtime.nn.module import Module
from runtime.nn.norm import LayerNorm
from runtime.step import Step


class Encoder(Module):
    """A Network without a next token. It reads texts whole: every step begins at 0 and brings all of them."""

    def logits(self, hidden: mx.array, step: Step | None = None) -> mx.array:
        raise NotSupported("this network makes embeddings: there is no token that follows")


class TypedEmbeddings(Module):
    """BERT's embeddings without a table of positions: norm(word + type), every token being of type 0.

    types: how many rows the second table has; 0: there is none. eps: added to the norm's variance.
    """

    def __init__(self, vocab_size: int, types: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab_size, hidden)
        if types:
            self.token_type_embeddings = nn.Embedding(types, hidden)
        self.LayerNorm = LayerNorm(hidden, eps=eps)
        self._typed = types > 0

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.word_embeddings, ids, step)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        """x: embeddings of words, [B, L, D]."""
        if self._typed:
            x = x + embed(self.token_type_embeddings, mx.zeros(x.shape[:2], dtype=mx.int32), step)
        return self.LayerNorm(x)
