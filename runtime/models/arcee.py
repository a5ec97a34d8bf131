"""Arcee (AFM) and Jais 2: Llamas whose MLP is a squared ReLU without gate; Jais norms by LayerNorms."""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.models.config import Fields
from runtime.models.decoder import CausalLM, attention_layout, layer_ropes, rms_norms
from runtime.models.decoder_config import DecoderConfig, layer_count, one_rope, read_shape
from runtime.models.family import Family
from runtime.models.tensor_names import without_spares
from runtime.nn.block import PreNorm
from runtime.nn.mlp import ACTIVATIONS, MLP
from runtime.nn.norm import LayerNorm, Norm
from runtime.nn.self_attention import SelfAttention
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    centred: bool
    """Its norms are LayerNorms with biases."""
    attention_bias: bool
    mlp_bias: bool


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    jais = fields.choice("model_type", ("arcee", "jais2")) == "jais2"
    shape = read_shape(
        fields,
        eps_field="layer_norm_eps" if jais else "rms_norm_eps",
        eps=1e-5,
        activation="relu2",
        max_position_embeddings=8192 if jais else 4096,
    )
    layers = layer_count(fields)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape),) * layers,
        centred=jais,
        attention_bias=fields.flag("attention_bias", jais),
        mlp_bias=fields.flag("mlp_bias", jais),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    def centred() -> LayerNorm:
        return LayerNorm(config.hidden_size, eps=config.norm_eps)

    def mlp() -> MLP:
        activation = ACTIVATIONS[config.activation]
        return MLP(config.hidden_size, config.intermediate_size, activation, bias=config.mlp_bias)

    norm: Norm = centred if config.centred else rms_norms(config)
    bias = config.attention_bias
    layers = [
        PreNorm(SelfAttention(config, rope, qkv_bias=bias, output_bias=bias), mlp(), norm)
        for rope in layer_ropes(config)
    ]
    return CausalLM(config, layers, norm())


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return without_spares(config, weights)


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
