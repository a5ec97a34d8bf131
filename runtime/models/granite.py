"""Granite 3: a Llama with four multipliers: on the embedding, scores, what sublayers add, and logits."""

from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.models.config import Fields
from runtime.models.decoder import CausalLM, attention_layout, gated_mlp, layer_ropes, rms_norms
from runtime.models.decoder_config import DecoderConfig, layer_count, one_rope, read_shape
from runtime.models.family import Family
from runtime.models.tensor_names import without_spares
from runtime.nn.block import Scaled
from runtime.nn.layer import FeedForward
from runtime.nn.rope import Rope
from runtime.nn.self_attention import SelfAttention
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    attention_bias: bool
    mlp_bias: bool
    attention_multiplier: float
    """Attention scores are multiplied by it."""
    residual_multiplier: float
    """What a sublayer adds is multiplied by it."""
    embedding_multiplier: float
    """Embeddings are multiplied by it."""
    logits_scaling: float
    """Logits are divided by it."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(fields)
    layers = layer_count(fields)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape),) * layers,
        attention_bias=fields.flag("attention_bias"),
        mlp_bias=fields.flag("mlp_bias"),
        attention_multiplier=fields.number("attention_multiplier", 1.0),
        residual_multiplier=fields.number("residual_multiplier", 1.0),
        embedding_multiplier=fields.number("embedding_multiplier", 1.0),
        logits_scaling=fields.number("logits_scaling", 1.0, low=1e-6),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class Granite(CausalLM):
    """mlp() makes the feed-forward block of one layer."""

    def __init__(self, config: Config, mlp: Callable[[], FeedForward]) -> None:
        norm, bias = rms_norms(config), config.attention_bias

        def attention(rope: Rope | None) -> SelfAttention:
            scale = config.attention_multiplier
            return SelfAttention(config, rope, qkv_bias=bias, output_bias=bias, scale=scale)

        blocks = [
            Scaled(attention(rope), mlp(), norm, config.residual_multiplier) for rope in layer_ropes(config)
        ]
        super().__init__(
            config,
            blocks,
            norm(),
            embed_scale=config.embedding_multiplier,
            logit_scale=1 / config.logits_scaling,
        )


def build(config: Config) -> Granite:
    return Granite(config, lambda: gated_mlp(config, bias=config.mlp_bias))


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return without_spares(config, weights)


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
