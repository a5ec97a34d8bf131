"""What encoders for embeddings have in common: hidden states are all they give."""

import mlx.core as mx

from runtime.errors import NotSupported
from runtime.nn.module import Module
from runtime.step import Step


class Encoder(Module):
    """A Network without a next token. It reads texts whole: every step begins at 0 and brings all of them."""

    def logits(self, hidden: mx.array, step: Step | None = None) -> mx.array:
        raise NotSupported("this network makes embeddings: there is no token that follows")
