"""The network of a decoder: a trunk makes hidden states of ids, and a head on it makes logits of those."""

from collections.abc import Sequence
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.protocol import Caches, Rotate
from runtime.nn.activation import softcap
from runtime.nn.linear import linear, tied
from runtime.nn.module import Module
from runtime.parts.decoder import DecoderParts
from runtime.step import Step


class Headed(Module):
    """A Network of two parts. What the head gives is multiplied by `scale` and bent by `cap` where these are
    there. Both parts, and what is looked up in the first, stand under the names that files have for them.
    """

    trunk_name: ClassVar[str] = "model"
    """A module that is called as the network is, and makes vectors of ids as the network does (`embed`)."""
    table_name: ClassVar[str] = "embed_tokens"
    """In the trunk: what ids are looked up in."""
    norm_name: ClassVar[str] = "norm"
    """In the trunk: what comes behind its layers."""
    head_name: ClassVar[str] = "lm_head"

    def __init__(
        self, trunk: nn.Module, head: nn.Module | None, *, scale: float = 1.0, cap: float | None = None
    ) -> None:
        """head: None where the trunk's table is the head, too."""
        super().__init__()
        setattr(self, self.trunk_name, trunk)
        if head is not None:
            setattr(self, self.head_name, head)
        self._tied, self._scale, self._cap = head is None, scale, cap

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        return self.trunk(step, caches)

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return self.trunk.embed(ids, step)

    @property
    def trunk(self) -> Any:
        return self[self.trunk_name]

    @property
    def shifts(self) -> Sequence[Rotate | None]:
        """Of no layer: what a fold has read, or positions in embeddings, cannot be taken out again. Families
        whose keys can be moved say how.
        """
        return ()

    @property
    def tied_table(self) -> nn.Module | None:
        """The table that is the head, too."""
        return self.trunk[self.table_name] if self._tied else None

    def decodes(self, *, embed_scale: float | None = None, memories: int = 1) -> DecoderParts:
        """From ids to logits, for families that do nothing else: what `decoder_parts` answers.

        embed_scale: of what the table gives. memories: of each layer.
        """
        trunk = self.trunk
        table = trunk[self.table_name]
        head = table if self._tied else self[self.head_name]
        layers, norm = trunk[trunk.in_turn], trunk[self.norm_name]
        return DecoderParts(table, embed_scale, layers, norm, head, self._scale, self._cap, memories)

    def logits(self, hidden: mx.array, step: Step | None = None) -> mx.array:
        table = self.tied_table
        logits = linear(self[self.head_name], hidden, step) if table is None else tied(table, hidden, step)
        if self._scale != 1:
            logits = logits * self._scale
        return logits if self._cap is None else softcap(logits, self._cap)


def untied_head(config: Any, *, bias: bool = False) -> nn.Linear | None:
    """A head of its own, where this config's is no table of embeddings."""
    return None if config.tied else nn.Linear(config.hidden_size, config.vocab_size, bias=bias)
