"""InternLM2 and 2.5: a Llama whose queries, keys and values are one matrix, group by group."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mlx.core as mx

from runtime.config.decoder import DecoderConfig
from runtime.config.fields import Fields
from runtime.models import llama
from runtime.models.family import Family
from runtime.models.llama import Config, build, layout
from runtime.tensors.names import respelled, without_spares


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("internlm2",))
    bias = fields.flag("bias", True)
    return replace(llama.read(fields, "llama"), qkv_bias=bias, output_bias=bias, mlp_bias=False)


_NAMES = (
    ("model.tok_embeddings.", "model.embed_tokens."),
    ("model.output.", "lm_head."),
    (".attention_norm.", ".input_layernorm."),
    (".ffn_norm.", ".post_attention_layernorm."),
    (".attention.wo.", ".self_attn.o_proj."),
    (".attention.rope.", ".self_attn.rotary_emb."),
    (".feed_forward.w1.", ".mlp.gate_proj."),
    (".feed_forward.w3.", ".mlp.up_proj."),
    (".feed_forward.w2.", ".mlp.down_proj."),
)
_FUSED = ".attention.wqkv."


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    own = without_spares(config, respelled(weights, _NAMES, trunk="model."))
    return apart(config, own, _FUSED, ".self_attn.")


def apart(
    config: DecoderConfig, weights: dict[str, mx.array], fused: str, before: str
) -> dict[str, mx.array]:
    """Queries, keys and values apart: their one matrix has [key head][its queries, key, value] rows. fused:
    what stands in its name; before: what stands before their own ones.
    """
    adapted: dict[str, mx.array] = {}
    rows = (config.heads + 2 * config.kv_heads) * config.head_dim
    for name, array in weights.items():
        if fused not in name or array.shape[:1] != (rows,):
            adapted[name] = array
            continue
        groups = array.reshape(config.kv_heads, -1, config.head_dim, *array.shape[1:])
        for part, cut in (("q", slice(0, -2)), ("k", slice(-2, -1)), ("v", slice(-1, None))):
            own = groups[:, cut].reshape(-1, *array.shape[1:])
            adapted[name.replace(fused, f"{before}{part}_proj.")] = own
    return adapted


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
