"""Qwen, the first: a Llama under GPT-2's names, with one matrix for queries, keys and values.

Texts longer than the trained ones it would read with a rescaled rotation and sharper scores
(`use_dynamic_ntk`, `use_logn_attn`); no context here goes there.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.fused_attention import FusedAttention
from runtime.nn.residual.block import PreNorm
from runtime.tensors.names import GPT_NAMES, respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, layer_ropes, rms_norms

Config = DecoderConfig


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("qwen",))
    hidden = fields.count("hidden_size", 4096, high=1 << 20)
    heads = fields.count("num_attention_heads", 32, high=4096)
    size = fields.count("kv_channels", 128, high=4096)
    if size * heads != hidden:
        fields.refuse("kv_channels", f"what {heads} heads have of a hidden_size of {hidden}")
    for name in ("rope_scaling", "rope_parameters"):
        if fields.raw.get(name):
            fields.refuse(name, "none: its class has a base alone, rotary_emb_base")
    fields.only({"no_bias": True, "scale_attn_weights": True})
    if fields.number("rotary_pct", 1.0) != 1:
        fields.refuse("rotary_pct", "1: whole heads are rotated")
    inner = fields.count("intermediate_size", 22016, low=2, high=1 << 23)
    meant = {**fields.raw, "num_key_value_heads": heads, "head_dim": size}
    meant |= {"intermediate_size": inner // 2, "max_position_embeddings": _context(fields)}
    meant["rope_theta"] = fields.number("rotary_emb_base", 10000.0, low=2.0)
    own = Fields(meant)
    shape = read_shape(own, eps_field="layer_norm_epsilon", hidden_size=4096, num_attention_heads=32)
    layers = layer_count(fields, 32)
    return Config(**shape, windows=(None,) * layers, ropes=(one_rope(own, shape),) * layers)


def _context(fields: Fields) -> int:
    whole = fields.count("max_position_embeddings", 8192)
    if fields.flag("use_dynamic_ntk", True) or fields.flag("use_logn_attn", True):
        return min(whole, fields.count("seq_length", whole))
    return whole


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    layers = [
        PreNorm(FusedAttention(config, rope, bias=True, output_bias=False), gated_mlp(config), norm)
        for rope in layer_ropes(config)
    ]
    return CausalLM(config, layers, norm())


_NAMES = (
    ("transformer.rotary_emb.", "model.rotary_emb."),
    (".attn.rotary_emb.", ".self_attn.rotary_emb."),
    (".mlp.w2.", ".mlp.gate_proj."),
    (".mlp.w1.", ".mlp.up_proj."),
    *GPT_NAMES,
)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return without_spares(config, respelled(weights, _NAMES, trunk="transformer."))


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
