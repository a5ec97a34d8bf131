"""StarCoder2: LayerNorms and biases everywhere, an MLP without gate, one window for all layers."""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_norms, layer_ropes, plain_mlp


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("norm_type", ("layer_norm",), "layer_norm")
    fields.choice("mlp_type", ("default",), "default")
    shape = read_shape(
        fields,
        eps_field="norm_epsilon",
        eps=1e-5,
        activation="gelu_pytorch_tanh",
        tied=True,
        num_key_value_heads=2,
        max_position_embeddings=4096,
    )
    layers = layer_count(fields)
    window = fields.count("sliding_window") if fields.has("sliding_window") else None
    return Config(
        **shape,
        windows=(window,) * layers,
        ropes=(one_rope(fields, shape),) * layers,
        bias=fields.flag("use_bias", True),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm, bias = layer_norms(config), config.bias
    layers = [
        PreNorm(
            SelfAttention(config, rope, qkv_bias=bias, output_bias=bias), plain_mlp(config, bias=bias), norm
        )
        for rope in layer_ropes(config)
    ]
    return CausalLM(config, layers, norm())


_NAMES = (".mlp.c_fc.", ".mlp.up_proj."), (".mlp.c_proj.", ".mlp.down_proj.")


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return respelled(without_spares(config, weights), _NAMES)


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
