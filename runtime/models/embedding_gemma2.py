"""EmbeddingGemma 2 (its text tower): Gemma 4's layers, looking both ways, for embeddings.

Scores are not scaled, since queries, keys and values are normed. Full layers have their own head size and
number of key heads; the others see `sliding_window` tokens to either side, itself not counted. What every
layer is fed besides is made of the embeddings alone, without a second table. What leaves the last norm is
projected to the size of the vectors.

Source: transformers modeling_embedding_gemma2.py.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec, Stateless
from runtime.cache.protocol import Caches
from runtime.config.decoder import key_heads, layer_count, read_shape, rope_of_kind
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.models.gemma4_config import layer_kinds, listed_heads
from runtime.nn.activation import gated
from runtime.nn.attention.attend import split_heads
from runtime.nn.attention.bidirectional import attend_both_ways
from runtime.nn.feed_forward.mlp import ACTIVATIONS, GatedMLP
from runtime.nn.linear import embed, linear
from runtime.nn.module import Module
from runtime.nn.norm import PlainRMS, RMSNorm
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import text_tower
from runtime.tensors.towers import USUAL
from runtime.trunks.encoder import Encoder

_ROPES: dict[str, dict[str, Any]] = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "default", "rope_theta": 1e6},
}


@dataclass(frozen=True, slots=True)
class Layer:
    """What one layer has of its own."""

    window: int | None
    """Tokens that are seen to either side; None: all."""
    rope: RopeSpec
    head_dim: int
    """Elements of a query, key or value, per head."""
    kv_heads: int
    """Of keys and values."""


@dataclass(frozen=True, slots=True)
class Config:
    vocab_size: int
    hidden_size: int
    """Of what it gives, the vectors."""
    width: int
    """Of what passes the layers."""
    intermediate_size: int
    heads: int
    """Of queries."""
    norm_eps: float
    """Added to the mean square in each norm."""
    activation: str
    """A name of ACTIVATIONS."""
    context_length: int
    """Tokens."""
    bias: bool
    """Of the attention's projections."""
    per_layer_size: int
    """Elements of what each layer is fed besides."""
    layers: tuple[Layer, ...]


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("embedding_gemma2", "embedding_gemma2_text"))
    shape = read_shape(
        fields,
        activation_field="hidden_activation",
        activation="gelu_pytorch_tanh",
        vocab_size=262144,
        hidden_size=512,
        intermediate_size=2048,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=256,
        max_position_embeddings=262144,
    )
    same = ("vocab_size", "intermediate_size", "heads", "norm_eps", "activation", "context_length")
    return Config(
        **{name: shape[name] for name in same},
        hidden_size=fields.count("embedding_dim", 768, high=1 << 20),
        width=shape["hidden_size"],
        bias=fields.flag("attention_bias"),
        per_layer_size=fields.count("hidden_size_per_layer_input", 512, high=1 << 16),
        layers=_layers(fields, shape),
    )


def _layers(fields: Fields, shape: dict[str, Any]) -> tuple[Layer, ...]:
    every = fields.count("sliding_window_pattern", 6)
    kinds = layer_kinds(fields, layer_count(fields, 24), every=every)
    window = fields.count("sliding_window", 512)
    sizes = [_heads(fields, shape, i, kind) for i, kind in enumerate(kinds)]
    length = shape["context_length"]
    return tuple(
        Layer(
            window=window if kind == "sliding_attention" else None,
            rope=rope_of_kind(fields, kind, _ROPES, head_dim=head_dim, max_positions=length),
            head_dim=head_dim,
            kv_heads=kv_heads,
        )
        for kind, (head_dim, kv_heads) in zip(kinds, sizes, strict=True)
    )


def _heads(fields: Fields, shape: dict[str, Any], i: int, kind: str) -> tuple[int, int]:
    """Head size and number of key heads of layer i."""
    listed = listed_heads(fields, shape, i)
    if listed is not None:
        return listed
    if kind == "sliding_attention":
        return shape["head_dim"], shape["kv_heads"]
    shared = key_heads(fields, shape["heads"], 1, name="num_global_key_value_heads")
    return fields.count("global_head_dim", 512, high=4096), shared


def layout(config: Config) -> list[LayerSpec]:
    return [Stateless() for _ in config.layers]


class Attention(Module):
    def __init__(self, config: Config, layer: Layer, rope: Rope) -> None:
        super().__init__()
        size, bias = layer.head_dim, config.bias
        self.q_proj = nn.Linear(config.width, config.heads * size, bias=bias)
        self.k_proj = nn.Linear(config.width, layer.kv_heads * size, bias=bias)
        self.v_proj = nn.Linear(config.width, layer.kv_heads * size, bias=bias)
        self.o_proj = nn.Linear(config.heads * size, config.width, bias=bias)
        self.q_norm = RMSNorm(size, eps=config.norm_eps)
        self.k_norm = RMSNorm(size, eps=config.norm_eps)
        self._value_norm, self._rope = PlainRMS(config.norm_eps), rope
        self._heads, self._kv_heads, self._window = config.heads, layer.kv_heads, layer.window

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        queries = self.q_norm(split_heads(linear(self.q_proj, x, step), self._heads))
        keys = self.k_norm(split_heads(linear(self.k_proj, x, step), self._kv_heads))
        values = self._value_norm(split_heads(linear(self.v_proj, x, step), self._kv_heads))
        seen = attend_both_ways(
            self._rope(queries, step),
            self._rope(keys, step),
            values,
            scale=1.0,
            window=self._window,
            counts=step.counts,
        )
        return linear(self.o_proj, seen, step)


class Fed(Module):
    """What a layer adds of its part of `PerLayer`."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.per_layer_input_gate = nn.Linear(config.width, config.per_layer_size, bias=False)
        self.per_layer_projection = nn.Linear(config.per_layer_size, config.width, bias=False)
        self.post_per_layer_input_norm = RMSNorm(config.width, eps=config.norm_eps)
        self._activation = ACTIVATIONS[config.activation]

    def __call__(self, x: mx.array, own: mx.array, step: Step) -> mx.array:
        opened = gated(self._activation, linear(self.per_layer_input_gate, x, step), own)
        return self.post_per_layer_input_norm(linear(self.per_layer_projection, opened, step))


class Block(Module):
    def __init__(self, config: Config, layer: Layer, rope: Rope) -> None:
        super().__init__()
        width, eps = config.width, config.norm_eps
        self.self_attn = Attention(config, layer, rope)
        self.mlp = GatedMLP(width, config.intermediate_size, activation=config.activation)
        self.input_layernorm = RMSNorm(width, eps=eps)
        self.post_attention_layernorm = RMSNorm(width, eps=eps)
        self.pre_feedforward_layernorm = RMSNorm(width, eps=eps)
        self.post_feedforward_layernorm = RMSNorm(width, eps=eps)
        self.layer_scalar = mx.ones((1,))
        self.ple_block = Fed(config)

    def __call__(self, x: mx.array, own: mx.array, step: Step) -> mx.array:
        x = x + self.post_attention_layernorm(self.self_attn(self.input_layernorm(x), step))
        x = x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x), step))
        return (x + self.ple_block(x, own, step)) * self.layer_scalar


class PerLayer(Module):
    """Embeddings [B, L, D] -> a vector of P numbers for each of N layers, [B, L, N, P]."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._shape = len(config.layers), config.per_layer_size
        self.per_layer_model_projection = nn.Linear(config.width, math.prod(self._shape), bias=False)
        self.per_layer_projection_norm = RMSNorm(config.per_layer_size, eps=config.norm_eps)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        made = linear(self.per_layer_model_projection, x, step) * x.shape[-1] ** -0.5
        return self.per_layer_projection_norm(made.reshape(*x.shape[:-1], *self._shape))


class EmbeddingGemma2(Encoder):
    shifts: ClassVar[tuple[()]] = ()

    def __init__(self, config: Config) -> None:
        super().__init__()
        ropes = {layer.rope: Rope(layer.rope) for layer in config.layers}
        self.embed_tokens = nn.Embedding(config.vocab_size, config.width)
        self.layers = [Block(config, layer, ropes[layer.rope]) for layer in config.layers]
        self.norm = RMSNorm(config.width, eps=config.norm_eps)
        self.ple = PerLayer(config)
        self.embedding_projection = nn.Linear(config.width, config.hidden_size, bias=False)
        self._scale = math.sqrt(config.width)

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        x = step.embedded(self.embed)
        owns = self.ple(x, step)
        for place, layer in enumerate(self.layers):
            x = layer(x, owns[:, :, place], step)
        return linear(self.embedding_projection, self.norm(x), step)

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.embed_tokens, ids, step) * self._scale


def build(config: Config) -> EmbeddingGemma2:
    return EmbeddingGemma2(config)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return {name.removeprefix("model."): array for name, array in text_tower(weights).items()}


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(towers=USUAL, inside=("language_model.", ""), default_layers=24)),
    writes=False,
)
