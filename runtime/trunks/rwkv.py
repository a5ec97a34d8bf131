"""What generations of RWKV share: no attention; a layer mixes each token with the one before it, folds all
tokens into a state, and has a feed-forward block that mixes alike. It has three memories: the last token
before the fold, the fold's state, and the last token before the feed-forward block.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec, Recurrent, State
from runtime.cache.protocol import Caches, ScanningCache, by_layer
from runtime.cache.snapshot import detached
from runtime.nn.linear import embed
from runtime.nn.module import Module
from runtime.nn.norm import LayerNorm
from runtime.nn.operations import ops
from runtime.step import Step
from runtime.trunks.headed import Headed

Memories = tuple[ScanningCache, ScanningCache, ScanningCache]
"""Of a layer."""


def rwkv_layout(hidden: int, layers: int, fold: Recurrent) -> list[LayerSpec]:
    """fold: what a layer's state is."""
    shift = Recurrent({"shift": State((1, hidden))})
    return [shift, fold, shift] * layers


def one_earlier(
    states: dict[str, mx.array], x: mx.array, *, counts: mx.array | None
) -> tuple[mx.array, dict[str, mx.array]]:
    """x [B, L, D] -> what stood one token earlier, and each row's last real token."""
    whole = mx.concatenate([states["shift"].astype(x.dtype), x], axis=1)
    places = mx.full((x.shape[0], 1, 1), x.shape[1]) if counts is None else counts[:, None, None]
    return whole[:, :-1], {"shift": detached(mx.take_along_axis(whole, places, axis=1))}


class RwkvTrunk(Module):
    in_turn: ClassVar[str] = "layers"

    def __init__(
        self, vocab_size: int, hidden: int, layers: Sequence[Callable[..., mx.array]], norm: LayerNorm
    ) -> None:
        """layers: called as layer(x, step, memories)."""
        super().__init__()
        self.embeddings = nn.Embedding(vocab_size, hidden)
        self.layers = list(layers)
        self.norm = norm

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        step.refuse_positions("no layer of this network goes by positions")
        own: Any = by_layer(caches, 3)
        return self.norm(ops.table.layers(self.layers, step.embedded(self.embed), step, own))

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.embeddings, ids, step)


class RwkvLM(Headed):
    table_name = "embeddings"
