"""Persimmon: LayerNorms, on each query and key head too, a squared-ReLU MLP without gate, half of each head
turns.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_older_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import HeadNormAttention, SelfAttention
from runtime.nn.layer import Mixer
from runtime.nn.norm import LayerNorm
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_norms, layer_ropes, plain_mlp


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    head_norm: bool
    """Queries and keys are normed per head."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_older_shape(
        fields,
        inner="intermediate_size",
        eps_field="layer_norm_eps",
        activation="relu2",
        max_position_embeddings=16384,
    )
    layers = layer_count(fields)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape, partial=0.5),) * layers,
        head_norm=fields.flag("qk_layernorm", True),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    def norm_of_heads(_heads: int) -> LayerNorm:
        return LayerNorm(config.head_dim, eps=config.norm_eps)

    def attention(rope: Rope | None) -> Mixer:
        if config.head_norm:
            return HeadNormAttention(config, rope, norm_of_heads, qkv_bias=True, output_bias=True)
        return SelfAttention(config, rope, qkv_bias=True, output_bias=True)

    norm = layer_norms(config)
    layers = [PreNorm(attention(rope), plain_mlp(config, bias=True), norm) for rope in layer_ropes(config)]
    return CausalLM(config, layers, norm())


_NAMES = (
    ("model.final_layernorm.", "model.norm."),
    (".self_attn.dense.", ".self_attn.o_proj."),
    (".q_layernorm.", ".q_norm."),
    (".k_layernorm.", ".k_norm."),
    (".dense_h_to_4h.", ".up_proj."),
    (".dense_4h_to_h.", ".down_proj."),
)


_FUSED = ".query_key_value."


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Queries, keys and values apart: their one matrix has [head][query, key, value] rows."""
    adapted: dict[str, mx.array] = {}
    for name, array in respelled(without_spares(config, weights), _NAMES, trunk="model.").items():
        if _FUSED not in name:
            adapted[name] = array
            continue
        parts = array.reshape(config.heads, 3, -1, *array.shape[1:])
        for place, part in enumerate("qkv"):
            adapted[name.replace(_FUSED, f".{part}_proj.")] = parts[:, place].reshape(-1, *array.shape[1:])
    return adapted


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
