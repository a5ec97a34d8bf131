"""Falcon: one matrix for q, k and v, group by group, and LayerNorms, in three kinds of files.

Falcon 7B has one head of keys, and attention and MLP side by side behind one norm. Falcon 40B and 180B
(`new_decoder_architecture`) have more heads of keys and a norm for each of the two, 11B one for both. Falcon
RW has a head of keys for each of the queries, one sublayer behind the other, and ALiBi in place of rotation.

transformers rounds ALiBi's biases to bf16 in files of every type, and adds them once where attention is
computed as it is by default; its eager form adds them twice.

Sources: arXiv 2311.16867; transformers modeling_falcon.py; tiiuae's configuration_RW.py.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import (
    DecoderConfig,
    key_heads,
    layer_count,
    one_rope,
    read_older_shape,
)
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.fused_attention import GroupedAttention
from runtime.nn.positions.alibi import Alibi, slopes
from runtime.nn.residual.block import Parallel, PreNorm, SideBySide
from runtime.records import dataclass
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_norms, layer_ropes, plain_mlp


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    parallel: bool
    """Attention and MLP read the same stream."""
    norms: int
    """Of a layer."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    if fields.raw.get("model_type") in _GROUPED:
        grouped = _GROUPED[fields.raw["model_type"]]
        meant = {"new_decoder_architecture": grouped, "parallel_attn": grouped, "multi_query": False}
        fields = Fields({**meant, **raw})
    shape = read_older_shape(
        fields, inner="ffn_hidden_size", activation_field="activation", activation="gelu", tied=True
    )
    layers = layer_count(fields, 32)
    grouped, parallel = fields.flag("new_decoder_architecture"), fields.flag("parallel_attn", True)
    if grouped and not parallel:
        fields.refuse("parallel_attn", "true, as new_decoder_architecture is")
    norms = fields.count("num_ln_in_parallel_attn", 1 + grouped, high=2) if parallel else 2
    if parallel and norms == 2 and not grouped:
        fields.refuse("num_ln_in_parallel_attn", "1, as new_decoder_architecture is not true")
    shape["kv_heads"] = _key_heads(fields, shape["heads"], grouped)
    rope = None if fields.flag("alibi") else one_rope(fields, shape)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(rope,) * layers,
        bias=fields.flag("bias"),
        parallel=parallel,
        norms=norms,
    )


_GROUPED = {"RefinedWeb": True, "RefinedWebModel": False}
"""What Falcon called itself while its code came with the files: 40B, and the others. Are heads grouped?"""


def _key_heads(fields: Fields, heads: int, grouped: bool) -> int:
    if not grouped and fields.flag("multi_query", True):
        return 1
    count = key_heads(fields, heads, heads, name="num_kv_heads")
    if not grouped and count != heads:
        fields.refuse("num_kv_heads", f"{heads}, as neither new_decoder_architecture nor multi_query is true")
    return count


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm = layer_norms(config)
    wiring = PreNorm if not config.parallel else Parallel if config.norms == 1 else SideBySide
    biases = Alibi(slopes(config.heads), scale=config.head_dim**-0.5, coarse=True)
    layers = [
        wiring(
            GroupedAttention(config, rope, bias=config.bias, alibi=None if rope else biases),
            plain_mlp(config, bias=config.bias),
            norm,
        )
        for rope in layer_ropes(config)
    ]
    return CausalLM(config, layers, norm())


NAMES = (
    ("transformer.h.", "model.layers."),
    ("transformer.word_embeddings.", "model.embed_tokens."),
    ("transformer.ln_f.", "model.norm."),
    (".self_attention.dense.", ".self_attn.o_proj."),
    (".self_attention.", ".self_attn."),
    (".ln_attn.", ".input_layernorm."),
    (".ln_mlp.", ".post_attention_layernorm."),
    (".dense_h_to_4h.", ".up_proj."),
    (".dense_4h_to_h.", ".down_proj."),
)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return respelled(without_spares(config, weights), NAMES, trunk="transformer.")


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
