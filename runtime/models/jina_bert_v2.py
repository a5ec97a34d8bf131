"""Jina's embeddings v2: BERT with gated feed-forward blocks, whose scores fall with the distance (ALiBi) in
place of positions.

Two classes write such files. That of jina-bert-v2-qk-post-norm (v2-base-code) norms queries and keys over all
heads, has one more norm behind attention, to which what enters the layer is added once more, and has a gate's
rows behind those of what it gates. A config tells them apart by the name of its class in `auto_map` alone.

Sources: huggingface/text-embeddings-inference jina.rs, jina_code.rs; read beside llama.cpp's bert.cpp.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec, Stateless
from runtime.cache.protocol import Caches
from runtime.config.decoder import layer_count
from runtime.config.fields import Fields
from runtime.models.bert import Closing
from runtime.models.family import Family
from runtime.nn.activation import gated
from runtime.nn.attention.attend import split_heads
from runtime.nn.attention.bidirectional import Between, attend_both_ways
from runtime.nn.feed_forward.mlp import ACTIVATIONS
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import LayerNorm
from runtime.nn.positions.alibi import slopes
from runtime.nn.residual.sublayer import projections
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.quantizing import EIGHT_ELSE, SOURCE, Row
from runtime.trunks.encoder import Encoder, TypedEmbeddings


@dataclass(frozen=True, slots=True)
class Config:
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    norm_eps: float
    types: int
    """Rows of the table of token types, of which the first is every token's."""
    context_length: int
    """Tokens."""
    normed: bool
    """Is it the class that norms queries and keys?"""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    for name in ("is_decoder", "add_cross_attention"):
        if fields.flag(name):
            fields.refuse(name, "false: of this family encoders are computed, which look both ways")
    fields.choice("position_embedding_type", ("alibi",), "absolute")
    fields.choice("feed_forward_type", ("geglu",), "original")
    fields.choice("hidden_act", ("gelu",), "gelu")
    hidden = fields.count("hidden_size", 768, high=1 << 20)
    heads = fields.count("num_attention_heads", 12, high=4096)
    if hidden % heads:
        fields.refuse("hidden_size", f"a multiple of num_attention_heads, {heads}")
    return Config(
        vocab_size=fields.count("vocab_size", 30522, high=1 << 24),
        hidden_size=hidden,
        intermediate_size=fields.count("intermediate_size", 3072, high=1 << 22),
        layers=layer_count(fields, 12),
        heads=heads,
        norm_eps=fields.number("layer_norm_eps", 1e-12, low=1e-30),
        types=fields.count("type_vocab_size", 2, high=1 << 16),
        context_length=fields.count("max_position_embeddings", 512),
        normed=_is_normed(fields),
    )


NORMED, PLAIN = "jina-bert-v2-qk-post-norm", "jina-bert-implementation"


def _is_normed(fields: Fields) -> bool:
    mapped = fields.raw.get("auto_map")
    told = str(mapped.get("AutoModel", "")) if isinstance(mapped, Mapping) else ""
    said = f"{told} {fields.raw.get('_name_or_path', '')}"
    if (NORMED in said) == (PLAIN in said):
        fields.refuse("auto_map", f"AutoModel of {PLAIN} or of {NORMED}, which are computed otherwise")
    return NORMED in said


def layout(config: Config) -> list[LayerSpec]:
    return [Stateless() for _ in range(config.layers)]


def _norm(config: Config) -> LayerNorm:
    return LayerNorm(config.hidden_size, eps=config.norm_eps)


class Heads(Module):
    """Queries, keys and values, and what the heads see."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))
        if config.normed:
            self.layer_norm_q, self.layer_norm_k = _norm(config), _norm(config)
        self._normed, self._heads = config.normed, config.heads
        self._scale = (hidden // config.heads) ** -0.5

    def __call__(self, x: mx.array, step: Step, between: Between) -> mx.array:
        queries, keys, values = projections((self.query, self.key, self.value), x, step)
        if self._normed:
            queries, keys = self.layer_norm_q(queries), self.layer_norm_k(keys)
        queries, keys, values = (split_heads(part, self._heads) for part in (queries, keys, values))
        return attend_both_ways(queries, keys, values, scale=self._scale, between=between, counts=step.counts)


class Attention(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.self = Heads(config)
        self.output = Closing(config.hidden_size, config.hidden_size, config.norm_eps)

    def __call__(self, x: mx.array, step: Step, between: Between) -> mx.array:
        return self.output(self.self(x, step, between), x, step)


class FeedForward(Module):
    """One matrix for a gate and what it gates. Its norm is the plain class's."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gated_layers = nn.Linear(hidden, 2 * inner, bias=False)
        self.wo = nn.Linear(inner, hidden)
        self.layernorm = _norm(config)
        self._gate_behind, self._activation = config.normed, ACTIVATIONS["gelu"]

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        gate, up = mx.split(linear(self.gated_layers, x, step), 2, axis=-1)
        if self._gate_behind:
            gate, up = up, gate
        return self.layernorm(linear(self.wo, gated(self._activation, gate, up), step) + x)


class Layer(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention, self.mlp = Attention(config), FeedForward(config)
        if config.normed:
            self.layer_norm_1 = _norm(config)
        self._normed = config.normed

    def __call__(self, x: mx.array, step: Step, between: Between) -> mx.array:
        seen = self.attention(x, step, between)
        return self.mlp(self.layer_norm_1(seen + x) if self._normed else seen, step)


class Stack(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.layer = [Layer(config) for _ in range(config.layers)]


class JinaBert(Encoder):
    shifts: ClassVar[tuple[()]] = ()

    def __init__(self, config: Config) -> None:
        super().__init__()
        sizes = config.vocab_size, config.types, config.hidden_size
        self.embeddings, self.encoder = TypedEmbeddings(*sizes, config.norm_eps), Stack(config)
        self._slopes = mx.array(slopes(config.heads))[:, None, None]

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        step.refuse_positions("no layer of this network goes by positions")
        x = self.embeddings(step.embedded(self.embed), step)
        for layer in self.encoder.layer:
            x = layer(x, step, self._between)
        return x

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return self.embeddings.embed(ids, step)

    def _between(self, queries: range, keys: range) -> mx.array:
        asking = mx.arange(queries.start, queries.stop, dtype=mx.int32)[:, None]
        apart = mx.abs(asking - mx.arange(keys.start, keys.stop, dtype=mx.int32))
        return (apart.astype(mx.float32) * -self._slopes)[None]


_NAMES = (
    (".mlp.up_gated_layer.", ".mlp.gated_layers."),
    (".mlp.down_layer.", ".mlp.wo."),
    (".layer_norm_2.", ".mlp.layernorm."),
)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    found: dict[str, mx.array] = {}
    for name, array in weights.items():
        name = name.removeprefix("bert.")
        for theirs, ours in _NAMES:
            name = name.replace(theirs, ours)
        found[name] = array
    return found


_READ = (".self.key.", ".self.value.", ".mlp.wo.", ".mlp.down_layer.")
_ROWS = (
    Row(lambda t, _: t.ends("token_type_embeddings.weight"), SOURCE, "table of types"),
    Row(lambda t, r: r.promotes and t.has(*_READ), EIGHT_ELSE, "sensitive matrix"),
)
_UNREAD = ("pooler", "cls", "lm_head", "classifier", "position_ids")

FAMILY = Family(
    parse=parse,
    layout=layout,
    build=JinaBert,
    adapt=adapt,
    writes=False,
    checkpoint=always(Checkpoint(rows=_ROWS, unread=_UNREAD)),
)
