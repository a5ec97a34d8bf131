"""The draft model of Gemma 4: a few of its layers with no keys and values of their own.

It reads the target's memory (the last full and the last sliding layer's), which ends just before the last
token, and stays at that token's position for the whole draft. Its input is the target's scaled embedding of
the last token beside the target's final hidden state; its output, projected back to the target's width, takes
that state's place for the next token. The small ones score only the tokens of a few clusters of the
vocabulary ("ordered embeddings").
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec, Stateless
from runtime.cache.protocol import Caches, by_layout
from runtime.config.decoder import layer_count
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models import gemma4_config
from runtime.models.family import Family
from runtime.models.gemma4 import CHECKPOINT, make_blocks
from runtime.models.gemma4_config import read_tower, unused_projections
from runtime.nn.linear import embed, linear, tied
from runtime.nn.module import Module
from runtime.nn.norm import RMSNorm
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import always


@dataclass(frozen=True, slots=True)
class Clusters:
    """The vocabulary in clusters of equal size."""

    count: int
    searched: int
    """So many of the best clusters have their tokens scored."""


@dataclass(frozen=True, slots=True)
class Config:
    tower: gemma4_config.Config
    """Its layers all read the target's keys and values."""
    backbone_size: int
    """The target's hidden size."""
    clusters: Clusters | None
    """None: all tokens are scored."""

    @property
    def vocab_size(self) -> int:
        return self.tower.vocab_size

    @property
    def hidden_size(self) -> int:
        return self.tower.hidden_size

    @property
    def context_length(self) -> int:
        return self.tower.context_length

    @property
    def slides(self) -> tuple[bool, ...]:
        """For each layer, whether it reads the target's last sliding layer (else its last full one)."""
        return tuple(layer.window is not None for layer in self.tower.layers)


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    count = layer_count(fields)
    for name in ("hidden_size_per_layer_input", "enable_moe_block", "use_double_wide_mlp"):
        if fields.raw.get(name):
            raise UnsupportedModel(
                f"config.json: {name} is {quoted(fields.raw[name])}, and an assistant has none"
            )
    if fields.count("num_kv_shared_layers", count, low=0) not in (0, count):
        raise UnsupportedModel("config.json: num_kv_shared_layers must cover all layers of an assistant")
    donated = {"num_kv_shared_layers": count, "hidden_size_per_layer_input": 0}
    tower = read_tower(Fields({**fields.raw, **donated}))
    return Config(tower, fields.count("backbone_hidden_size", 1536, high=1 << 20), _clusters(fields, tower))


def _clusters(fields: Fields, tower: gemma4_config.Config) -> Clusters | None:
    if not fields.flag("use_ordered_embeddings"):
        return None
    count = fields.count("num_centroids", 2048, high=tower.vocab_size)
    if tower.vocab_size % count:
        raise UnsupportedModel(
            f"config.json: num_centroids is {count}, which does not divide the vocabulary of "
            f"{tower.vocab_size}"
        )
    return Clusters(count, fields.count("centroid_intermediate_top_k", 32, high=count))


def layout(config: Config) -> list[LayerSpec]:
    """No memory of its own."""
    return [Stateless() for _ in config.tower.layers]


class NextRope(Rope):
    """Turns to the position after the step's: the last token has been drawn, and is in no memory yet."""

    ahead = 1


class Trunk(Module):
    def __init__(self, config: gemma4_config.Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = make_blocks(config, NextRope)
        self.norm = RMSNorm(config.hidden_size, eps=config.norm_eps)


class ClusteredHead(Module):
    """Scores the tokens of the clusters whose centroids fit best; all others get minus infinity."""

    def __init__(self, config: Config, clusters: Clusters) -> None:
        super().__init__()
        self.centroids = nn.Linear(config.hidden_size, clusters.count, bias=False)
        self.token_ordering = mx.zeros((config.vocab_size,), mx.int64)
        self._clusters = clusters

    def __call__(self, hidden: mx.array, table: nn.Embedding, step: Step | None) -> mx.array:
        """[B, L, D] -> [B, L, V]; `table` is the tied embedding."""
        clusters = self._clusters
        searched = mx.argpartition(-linear(self.centroids, hidden, step), clusters.searched - 1, axis=-1)
        members = self.token_ordering.reshape(clusters.count, -1)[searched[..., : clusters.searched]]
        tokens = members.flatten(-2, -1).astype(mx.int32)
        scores = ops.table.matmul(embed(table, tokens, step), hidden[..., None]).squeeze(-1)
        nothing = mx.full((*hidden.shape[:-1], self.token_ordering.size), -mx.inf, scores.dtype)
        return mx.put_along_axis(nothing, tokens, scores, axis=-1)


class Assistant(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, backbone = config.hidden_size, config.backbone_size
        self.model = Trunk(config.tower)
        self.pre_projection = nn.Linear(2 * backbone, hidden, bias=False)
        self.post_projection = nn.Linear(hidden, backbone, bias=False)
        if config.clusters is not None:
            self.masked_embedding = ClusteredHead(config, config.clusters)
        self._clustered = config.clusters is not None

    def __call__(self, step: Step, caches: Caches, hidden: mx.array) -> mx.array:
        """The target's embedding and hidden state of the last token, [B, 1, backbone] each -> [B, 1, D].

        step: one token per row, brought as the target's `embed` gives it, at the last index that the caches
        hold (the one before the last token's). caches: for each layer the target's cache that `Config.slides`
        says.
        """
        x = linear(self.pre_projection, mx.concatenate([step.vectors, hidden], axis=-1), step)
        for layer, cache in zip(self.model.layers, by_layout(caches), strict=True):
            x = layer(x, step, cache)
        return self.model.norm(x)

    def logits(self, hidden: mx.array, step: Step | None = None) -> mx.array:
        table = self.model.embed_tokens
        return self.masked_embedding(hidden, table, step) if self._clustered else tied(table, hidden, step)

    def feedback(self, hidden: mx.array, step: Step | None = None) -> mx.array:
        """[B, 1, D] -> [B, 1, backbone]: what stands for the target's hidden state of the drafted token."""
        return linear(self.post_projection, hidden, step)


def build(config: Config) -> Assistant:
    return Assistant(config)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Without the head that repeats the embedding; without keys and values, should a file have them."""
    spare = ("lm_head.", *unused_projections(config.tower.layers))
    return {name: array for name, array in weights.items() if not name.startswith(spare)}


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(CHECKPOINT),
    drafts_as="assistant",
)
