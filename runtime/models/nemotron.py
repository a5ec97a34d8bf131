"""Nemotron, Minitron: zero-centred LayerNorms, a squared-ReLU MLP without gate, half of each head turns."""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.norm import one_added
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_norms, layer_ropes, plain_mlp, rms_norms


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    centred: bool
    """Its norms are LayerNorms."""
    attention_bias: bool
    mlp_bias: bool


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(
        fields, eps_field="norm_eps", eps=1e-5, activation="relu2", max_position_embeddings=4096
    )
    layers = layer_count(fields)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape, partial=0.5),) * layers,
        centred=True,
        attention_bias=fields.flag("attention_bias"),
        mlp_bias=fields.flag("mlp_bias"),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm = layer_norms(config) if config.centred else rms_norms(config)
    bias = config.attention_bias
    layers = [
        PreNorm(
            SelfAttention(config, rope, qkv_bias=bias, output_bias=bias),
            plain_mlp(config, bias=config.mlp_bias),
            norm,
        )
        for rope in layer_ropes(config)
    ]
    return CausalLM(config, layers, norm())


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return one_added(without_spares(config, weights))


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
