"""GPT-BigCode: SantaCoder and StarCoder 1. GPT-2's layer and learned positions, and one head of keys for all
heads of queries, unless `multi_query` is false.

Source: transformers modeling_gpt_bigcode.py.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, read_older_shape
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models.family import Family
from runtime.nn.attention.fused_attention import GroupedAttention
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import GPT_NAMES, respelled, without_spares
from runtime.trunks.decoder import attention_layout, layer_norms, plain_mlp
from runtime.trunks.headed import untied_head
from runtime.trunks.position_table import PositionTableLM, PositionTableTrunk


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    scale: float
    """Of attention scores."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    if fields.flag("add_cross_attention"):
        raise UnsupportedModel(
            "config.json: add_cross_attention is true, and only the decoder alone is computed"
        )
    shape = read_older_shape(
        fields,
        inner="n_inner",
        length="n_positions",
        activation_field="activation_function",
        activation="gelu_pytorch_tanh",
        tied=True,
        max_position_embeddings=1024,
    )
    shape["kv_heads"] = 1 if fields.flag("multi_query", True) else shape["heads"]
    layers = layer_count(fields, 12)
    scaled = fields.flag("scale_attn_weights", True)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(None,) * layers,
        scale=shape["head_dim"] ** -0.5 if scaled else 1.0,
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> PositionTableLM:
    norm = layer_norms(config)
    layers = [
        PreNorm(
            GroupedAttention(config, None, bias=True, scale=config.scale), plain_mlp(config, bias=True), norm
        )
        for _ in config.windows
    ]
    return PositionTableLM(PositionTableTrunk(config, layers, norm()), untied_head(config))


MASKS = (".attn.bias", ".attn.masked_bias")
"""Triangles that old files of GPTs hold."""
_NAMES = ((".attn.c_attn.", ".self_attn.query_key_value."), *GPT_NAMES)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return respelled(without_spares(config, weights), _NAMES, trunk="transformer.")


FAMILY = Family(
    parse=parse, layout=layout, build=build, adapt=adapt, checkpoint=always(Checkpoint(spare=MASKS))
)
