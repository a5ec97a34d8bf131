"""A decoder whose head has rows for the first ids alone. Those behind them, of images and sound, are read and
never drawn.
"""

from collections.abc import Sequence

import mlx.core as mx
import mlx.nn as nn

from runtime.config.decoder import DecoderConfig
from runtime.nn.layer import Layer
from runtime.step import Step
from runtime.trunks.decoder import CausalLM, rms_norms

NEVER = -65504.0
"""A logit of probability 0 that all types of floats have. The difference of two infinities is not a
number."""


class Pruned(CausalLM):
    """drawn: how many ids have a row in the head, which is not the embedding."""

    def __init__(self, config: DecoderConfig, layers: Sequence[Layer], drawn: int) -> None:
        super().__init__(config, layers, rms_norms(config)())
        self.lm_head = nn.Linear(config.hidden_size, drawn, bias=False)
        self._absent = config.vocab_size - drawn

    def logits(self, hidden: mx.array, step: Step | None = None) -> mx.array:
        known = super().logits(hidden, step)
        absent = mx.full((*known.shape[:-1], self._absent), NEVER, known.dtype)
        return mx.concatenate([known, absent], axis=-1)
