"""BERT, RoBERTa, XLM-RoBERTa, DistilBERT, MPNet, ERNIE, ELECTRA and ALBERT: encoders that look both ways, for
embeddings.

Learned positions, a LayerNorm behind every sublayer, biases everywhere; MPNet adds to all scores what a table
says of the distance, ERNIE to embeddings what one says of the task. ELECTRA's and ALBERT's embeddings may be
narrower than layers; ALBERT runs each layer several times. Every token has the first type, as in a text that
is no pair. Files have the encoder's tensors with or without a prefix, beside heads for other tasks, a pooler
and a buffer of positions that nothing here reads.

Sources: arXiv 1810.04805, 1907.11692, 1910.01108, 2004.09297, 1909.11942; transformers
modeling_{bert,roberta,distilbert,mpnet,ernie,electra,albert}.py.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec, Stateless
from runtime.cache.protocol import Caches
from runtime.models.bert_config import BUCKETS, Config, parse
from runtime.models.family import Family
from runtime.models.registry.names import architecture_name
from runtime.nn.attention.attend import split_heads
from runtime.nn.attention.bidirectional import Between, attend_both_ways
from runtime.nn.feed_forward.mlp import ACTIVATIONS
from runtime.nn.linear import embed, linear
from runtime.nn.module import Module
from runtime.nn.norm import LayerNorm
from runtime.nn.positions.relative_bias import RelativeBias
from runtime.nn.residual.sublayer import projections
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import renamed
from runtime.tensors.quantizing import EIGHT_ELSE, SOURCE, Row
from runtime.trunks.encoder import Encoder


def layout(config: Config) -> list[LayerSpec]:
    return [Stateless() for _ in config.order]


class Embeddings(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        size = config.embedding_size
        self.word_embeddings = nn.Embedding(config.vocab_size, size)
        self.position_embeddings = nn.Embedding(config.places, size)
        if config.types:
            self.token_type_embeddings = nn.Embedding(config.types, size)
        if config.tasks:
            self.task_type_embeddings = nn.Embedding(config.tasks, size)
        self.LayerNorm = LayerNorm(size, eps=config.norm_eps)
        self._constant = [name for name in ("token_type_embeddings", "task_type_embeddings") if name in self]
        self._last, self._padding = config.places - 1, config.padding

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.word_embeddings, ids, step)

    def __call__(self, step: Step) -> mx.array:
        """[B, L, D]"""
        x = step.embedded(self.embed)
        for table in self._constant:
            x = x + embed(self[table], mx.zeros(x.shape[:2], dtype=mx.int32), step)
        # Padding columns count on past a row's tokens, and so past the table where a row is nearly full.
        places = mx.minimum(self._places(step), self._last)
        return self.LayerNorm(x + embed(self.position_embeddings, places, step))

    def _places(self, step: Step) -> mx.array:
        """Rows of the table, [B, L]."""
        if self._padding is None:
            return step.positions
        step.refuse_positions("this network counts them itself, from the row behind that of padding")
        if step.inputs.ids is None:
            return step.indices + self._padding + 1
        counted = (step.ids != self._padding).astype(mx.int32)
        return mx.cumsum(counted, axis=1) * counted + self._padding


class Heads(Module):
    """Queries, keys and values, and what the heads see."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.query, self.key, self.value = (
            nn.Linear(config.hidden_size, config.hidden_size) for _ in range(3)
        )
        self._heads, self._scale = config.heads, (config.hidden_size // config.heads) ** -0.5

    def __call__(self, x: mx.array, step: Step, between: Between | None) -> mx.array:
        parts = projections((self.query, self.key, self.value), x, step)
        queries, keys, values = (split_heads(part, self._heads) for part in parts)
        return attend_both_ways(queries, keys, values, scale=self._scale, between=between, counts=step.counts)


class Closing(Module):
    """norm(to + x W + b)"""

    def __init__(self, inner: int, hidden: int, norm_eps: float) -> None:
        super().__init__()
        self.dense = nn.Linear(inner, hidden)
        self.LayerNorm = LayerNorm(hidden, eps=norm_eps)

    def __call__(self, x: mx.array, to: mx.array, step: Step) -> mx.array:
        return self.LayerNorm(linear(self.dense, x, step) + to)


class Attention(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.self = Heads(config)
        self.output = Closing(config.hidden_size, config.hidden_size, config.norm_eps)

    def __call__(self, x: mx.array, step: Step, between: Between | None) -> mx.array:
        return self.output(self.self(x, step, between), x, step)


class Intermediate(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self._activation = ACTIVATIONS[config.activation]

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        return self._activation(linear(self.dense, x, step))


class Layer(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.intermediate = Intermediate(config)
        self.output = Closing(config.intermediate_size, config.hidden_size, config.norm_eps)

    def __call__(self, x: mx.array, step: Step, between: Between | None) -> mx.array:
        x = self.attention(x, step, between)
        return self.output(self.intermediate(x, step), x, step)


class Biases(nn.Embedding):
    """A number for each distance and head. Attention reads the weight itself, so adapters find no table."""


class Stack(Module):
    relative_attention_bias: Biases

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.layer = [Layer(config) for _ in {*config.order}]
        self._order, self._distances = config.order, None
        if config.buckets:
            self.relative_attention_bias = Biases(config.buckets, config.heads)
            self._distances = RelativeBias(BUCKETS, _FARTHEST, both_ways=True)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        between = self._between()
        for place in self._order:
            x = self.layer[place](x, step, between)
        return x

    def _between(self) -> Between | None:
        distances = self._distances
        if distances is None:
            return None
        table = self.relative_attention_bias.weight
        made: dict[tuple[range, range], mx.array] = {}

        def between(queries: range, keys: range) -> mx.array:
            """All layers add the same."""
            if (queries, keys) not in made:
                asking = mx.arange(queries.start, queries.stop, dtype=mx.int32)[None]
                seen = mx.arange(keys.start, keys.stop, dtype=mx.int32)
                made[queries, keys] = distances.between(table, asking, seen)
            return made[queries, keys]

        return between


class Bert(Encoder):
    shifts: ClassVar[tuple[()]] = ()

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embeddings = Embeddings(config)
        if config.widened:
            self.embeddings_project = nn.Linear(config.embedding_size, config.hidden_size)
        self.encoder = Stack(config)
        self._widened = config.widened

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        x = self.embeddings(step)
        return self.encoder(linear(self.embeddings_project, x, step) if self._widened else x, step)

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return self.embeddings.embed(ids, step)


def build(config: Config) -> Bert:
    return Bert(config)


_FARTHEST = 128  # tokens; all distances beyond it share a bias
_PREFIXES = ("bert.", "roberta.", "distilbert.", "mpnet.", "ernie.", "electra.", "albert.")
# What files of before 2019, DistilBERT's, MPNet's and ALBERT's call these, and their names here; in order.
_RENAMED = (
    (re.compile(r"LayerNorm\.gamma$"), "LayerNorm.weight"),
    (re.compile(r"LayerNorm\.beta$"), "LayerNorm.bias"),
    (re.compile(r"^transformer\.layer\."), "encoder.layer."),
    (re.compile(r"\.attention\.q_lin\."), ".attention.self.query."),
    (re.compile(r"\.attention\.k_lin\."), ".attention.self.key."),
    (re.compile(r"\.attention\.v_lin\."), ".attention.self.value."),
    (re.compile(r"\.attention\.out_lin\."), ".attention.output.dense."),
    (re.compile(r"\.attention\.attn\.q\."), ".attention.self.query."),
    (re.compile(r"\.attention\.attn\.k\."), ".attention.self.key."),
    (re.compile(r"\.attention\.attn\.v\."), ".attention.self.value."),
    (re.compile(r"\.attention\.attn\.o\."), ".attention.output.dense."),
    (re.compile(r"\.attention\.LayerNorm\."), ".attention.output.LayerNorm."),
    (re.compile(r"\.sa_layer_norm\."), ".attention.output.LayerNorm."),
    (re.compile(r"\.ffn\.lin1\."), ".intermediate.dense."),
    (re.compile(r"\.ffn\.lin2\."), ".output.dense."),
    (re.compile(r"\.output_layer_norm\."), ".output.LayerNorm."),
    (re.compile(r"^encoder\.albert_layer_groups\.(\d+)\.albert_layers\.0\."), r"encoder.layer.\1."),
    (re.compile(r"^encoder\.embedding_hidden_mapping_in\."), "embeddings_project."),
    (re.compile(r"\.attention\.(query|key|value)\."), r".attention.self.\1."),
    (re.compile(r"\.attention\.dense\."), ".attention.output.dense."),
    (re.compile(r"\.ffn\."), ".intermediate.dense."),
    (re.compile(r"\.ffn_output\."), ".output.dense."),
    (re.compile(r"\.full_layer_layer_norm\."), ".output.LayerNorm."),
)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return {renamed(name, _PREFIXES, _RENAMED): array for name, array in weights.items()}


_DOWN = re.compile(r"layer\.\d+\.(output\.dense|ffn\.lin2)\.|\.ffn_output\.", re.ASCII)
_READ = (
    *(".self.key.", ".self.value.", ".k_lin.", ".v_lin.", ".attn.k.", ".attn.v."),
    *(".attention.key.", ".attention.value."),
)

_TABLES = (
    "position_embeddings.weight",
    "token_type_embeddings.weight",
    "task_type_embeddings.weight",
    "relative_attention_bias.weight",
)

ROWS: tuple[Row, ...] = (
    Row(lambda t, _: t.ends(*_TABLES), SOURCE, "table of positions or types"),
    Row(
        lambda t, r: r.promotes and (t.has(*_READ) or _DOWN.search(t.name) is not None),
        EIGHT_ELSE,
        "sensitive matrix",
    ),
)


def _variant(raw: Mapping[str, Any]) -> str | None:
    return "jina_bert_v2" if architecture_name(raw).startswith("JinaBert") else None


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    writes=False,
    variant=_variant,
    checkpoint=always(
        Checkpoint(
            rows=ROWS,
            unread=(
                "pooler",
                "cls",
                "lm_head",
                "classifier",
                "vocab_transform",
                "vocab_layer_norm",
                "vocab_projector",
                "position_ids",
                "token_type_ids",
                "discriminator_predictions",
                "generator_predictions",
                "generator_lm_head",
                "predictions",
                "sop_classifier",
            ),
        )
    ),
)
