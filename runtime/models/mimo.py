"""MiMo 7B: Qwen2, with draft heads of its own (`model.mtp_layers`)."""

from collections.abc import Mapping
from dataclasses import fields as fields_of
from typing import Any

import mlx.core as mx

from runtime.cache.layout import Full, LayerSpec
from runtime.config.fields import Fields
from runtime.models import llama
from runtime.models.family import Family, Head
from runtime.models.llama import build, layout
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.checkpoint import TRUNK, Checkpoint, always
from runtime.tensors.experts import Weights
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import gated_mlp, layer_ropes, rms_norms
from runtime.trunks.draft_heads import DraftHead, Predictor


@dataclass(frozen=True, slots=True)
class Config(llama.Config):
    draft_heads: int


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("mimo",))
    own = llama.read(fields, "qwen2")
    heads = fields.count("num_nextn_predict_layers", 0, low=0, high=16)
    return Config(**{field.name: getattr(own, field.name) for field in fields_of(own)}, draft_heads=heads)


_HEADS = "model.mtp_layers."


def adapt(config: Config, weights: Weights) -> Weights:
    """The target's tensors; the draft heads' are `adapt_head`'s."""
    return without_spares(
        config, {name: array for name, array in weights.items() if not name.startswith(_HEADS)}
    )


def head_layout(config: Config) -> list[LayerSpec]:
    return [Full(config.kv_heads, config.head_dim)] * config.draft_heads


def build_head(config: Config) -> DraftHead:
    norm, rope = rms_norms(config), layer_ropes(config)[0]

    def predictor() -> Predictor:
        attention = SelfAttention(config, rope, qkv_bias=config.qkv_bias, output_bias=config.output_bias)
        return Predictor(config.hidden_size, config.norm_eps, PreNorm(attention, gated_mlp(config), norm))

    return DraftHead([predictor() for _ in range(config.draft_heads)])


_NAMES = {
    "token_layernorm": "enorm",
    "hidden_layernorm": "hnorm",
    "input_proj": "eh_proj",
    "final_layernorm": "norm",
}


def adapt_head(config: Config, weights: Weights) -> Weights:
    """The draft heads' tensors, {} where there are none. Their projection reads the hidden state first, and
    ours the embedding.
    """
    kept: Weights = {}
    for name, array in weights.items():
        if not name.startswith(_HEADS):
            continue
        number, _, rest = name.removeprefix(_HEADS).partition(".")
        part, _, leaf = rest.partition(".")
        if part == "input_proj":
            hidden, embedding = mx.split(array, 2, axis=-1)
            array = mx.concatenate([embedding, hidden], axis=-1)
        kept[f"mtp.{number}.{_NAMES[part]}.{leaf}" if part in _NAMES else f"mtp.{number}.block.{rest}"] = (
            array
        )
    return kept


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    head=Head(layout=head_layout, build=build_head, adapt=adapt_head),
    checkpoint=always(Checkpoint(prefix=TRUNK, heads=(_HEADS,))),
)
