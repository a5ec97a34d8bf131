"""XGLM: positions are sinusoids, added to scaled embeddings; LayerNorms before each sublayer.

The first position is the third of its table, and the row that the padding id has there is empty, whether or
not that is a place for tokens.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, read_older_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.layer import Layer
from runtime.nn.norm import Normalize
from runtime.nn.positions.sinusoids import sinusoids
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import Trunk, attention_layout, layer_norms, plain_mlp
from runtime.trunks.headed import untied_head
from runtime.trunks.position_table import PositionTableLM

_BEFORE = 2


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    scaled: bool
    """Embeddings are multiplied by the root of their size."""
    empty: int | None
    """The row of the table of positions that is zero."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_older_shape(
        fields, inner="ffn_dim", activation_field="activation_function", activation="gelu", tied=True
    )
    if shape["hidden_size"] % 2 or shape["hidden_size"] < 4:
        fields.refuse("d_model", "an even number from 4 on")
    if fields.flag("add_cross_attention"):
        fields.refuse("add_cross_attention", "false: there is no encoder here")
    shape["norm_eps"] = 1e-5
    padded = fields.raw.get("pad_token_id", 1) is not None
    layers = layer_count(fields)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(None,) * layers,
        scaled=fields.flag("scale_embedding", True),
        empty=fields.count("pad_token_id", 1, low=0) if padded else None,
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class WavedTrunk(Trunk):
    def __init__(self, config: Config, layers: Sequence[Layer], norm: Normalize) -> None:
        hidden = config.hidden_size
        super().__init__(config, layers, norm, math.sqrt(hidden) if config.scaled else None)
        self._half, self._empty, self._turned = hidden // 2, config.empty, True

    def entering(self, step: Step) -> mx.array:
        x, rows = step.embedded(self.embed), step.positions + _BEFORE
        places = sinusoids(rows, self._half, self._half - 1)
        if self._empty is not None:
            places = mx.where((rows == self._empty)[..., None], 0.0, places)
        return x + places.astype(x.dtype)


def build(config: Config) -> PositionTableLM:
    norm = layer_norms(config)
    layers = [
        PreNorm(
            SelfAttention(config, None, qkv_bias=True, output_bias=True), plain_mlp(config, bias=True), norm
        )
        for _ in config.windows
    ]
    return PositionTableLM(WavedTrunk(config, layers, norm()), untied_head(config))


_NAMES = (
    ("model.layer_norm.", "model.norm."),
    (".self_attn_layer_norm.", ".input_layernorm."),
    (".final_layer_norm.", ".post_attention_layernorm."),
    (".self_attn.out_proj.", ".self_attn.o_proj."),
    (".fc1.", ".mlp.up_proj."),
    (".fc2.", ".mlp.down_proj."),
)
_SPARE = ("embed_positions.weights",)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return respelled(without_spares(config, weights), _NAMES, trunk="model.")


FAMILY = Family(
    parse=parse, layout=layout, build=build, adapt=adapt, checkpoint=always(Checkpoint(spare=_SPARE))
)
