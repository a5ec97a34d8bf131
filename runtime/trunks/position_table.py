"""Decoders whose positions are a table of vectors, which are added to the embeddings, as GPT-2's are."""

from collections.abc import Sequence

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.protocol import Rotate
from runtime.config.decoder import DecoderConfig
from runtime.nn.layer import Layer
from runtime.nn.linear import embed
from runtime.nn.norm import Normalize
from runtime.step import Step
from runtime.trunks.decoder import CausalLM, Trunk
from runtime.trunks.headed import Headed


class PositionTableTrunk(Trunk):
    """before: rows of the table before that of the first position."""

    def __init__(
        self, config: DecoderConfig, layers: Sequence[Layer], norm: Normalize, *, before: int = 0
    ) -> None:
        super().__init__(config, layers, norm, None)
        self.embed_positions = nn.Embedding(before + config.context_length, config.hidden_size)
        self._before, self._last, self._turned = before, before + config.context_length - 1, True

    def entering(self, step: Step) -> mx.array:
        # Padding columns count on past a row's tokens, and so past the table where a row is nearly full.
        places = mx.minimum(step.positions + self._before, self._last)
        return step.embedded(self.embed) + embed(self.embed_positions, places, step)


class PositionTableLM(CausalLM):
    """head: None where the embedding is the head, too."""

    def __init__(self, trunk: Trunk, head: nn.Module | None) -> None:
        Headed.__init__(self, trunk, head)

    @property
    def shifts(self) -> list[Rotate | None]:
        return []  # positions are in what keys were made of
