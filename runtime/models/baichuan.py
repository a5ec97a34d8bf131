"""Baichuan 1 and 2: a Llama with one matrix for queries, keys and values.

The 7B rotate; the 13B have ALiBi, and their files no max_position_embeddings. The rows of Baichuan 2's head
count by their directions alone. Packed heads are taken as they are: who packs one norms it first, as mlx-lm
does with Baichuan M1's.

Sources: arXiv 2309.10305; the authors' modeling_baichuan.py of Baichuan-7B and Baichuan2-13B.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.fused_attention import FusedAttention
from runtime.nn.positions.alibi import Alibi, slopes
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import respelled, without_spares
from runtime.tensors.quantizing import SOURCE, Row
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, layer_ropes, rms_norms


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    unit_head: bool
    """Rows of the output head are divided by their lengths."""


_OF_OTHERS = ("num_key_value_heads", "head_dim")
_WORDS = 125696
"""In the vocabulary of Baichuan 2; the first has half as many."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("baichuan",))
    for name in ("rope_scaling", "rope_parameters"):
        if fields.raw.get(name):
            fields.refuse(name, "none: its class looks at no field for the rotation")
    if fields.number("rope_theta", 10000.0) != 10000:
        fields.refuse("rope_theta", "10000: its class looks at no field for the rotation")
    rotates = fields.has("max_position_embeddings")
    length = fields.count("max_position_embeddings" if rotates else "model_max_length", 4096)
    meant = {**fields.raw, "max_position_embeddings": length}
    own = Fields({name: value for name, value in meant.items() if name not in _OF_OTHERS})
    shape, layers = read_shape(own), layer_count(fields)
    second = fields.raw.get("z_loss_weight") is not None or shape["vocab_size"] >= _WORDS
    if shape["tied"] and second:
        fields.refuse("tie_word_embeddings", "false: a head that is normed is not a table of embeddings")
    rope = one_rope(own, shape) if rotates else None
    return Config(**shape, windows=(None,) * layers, ropes=(rope,) * layers, unit_head=second)


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm, biases = rms_norms(config), Alibi(slopes(config.heads))
    layers = [
        PreNorm(FusedAttention(config, rope, alibi=None if rope else biases), gated_mlp(config), norm)
        for rope in layer_ropes(config)
    ]
    return CausalLM(config, layers, norm())


_NAMES = ((".self_attn.W_pack.", ".self_attn.qkv_proj."),)
_HEAD = "lm_head.weight"


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    adapted = respelled(without_spares(config, weights), _NAMES)
    return normed_head(adapted) if config.unit_head else adapted


def normed_head(weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """With the head's rows of length 1, where it is not packed."""
    if _HEAD not in weights or "lm_head.scales" in weights:
        return weights
    wide = weights[_HEAD].astype(mx.float32)
    return {**weights, _HEAD: wide / mx.maximum(mx.linalg.norm(wide, axis=-1, keepdims=True), 1e-12)}


HEAD_FILES = (Row(lambda t, _: t.name.startswith("lm_head."), SOURCE, "rows that are normed"),)

FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(rows=HEAD_FILES)),
)
