"""Llama under other names: InternLM 1 and 3, IQuestCoder, EXAONE 3 and 3.5, XVERSE, TeleChat3, Nanbeige,
Aquila, openPangu Embedded, KORMo and Yi's first files.

transformers computes InternLM3, IQuestCoder and EXAONE with its own Llama, vLLM InternLM and Aquila; for the
others mlx-lm's classes or the authors' compute what Llama does. They differ in the names of two flags, in
what a file may leave out, and EXAONE and Yi in the names of tensors. A Nanbeige whose layers are passed
several times is `nanbeige`'s.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.config.fields import Fields
from runtime.models import llama
from runtime.models.family import Family
from runtime.models.llama import Config, build, layout
from runtime.models.nanbeige import refuse_more
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import GPT_TRUNK, respelled, without_spares

# What transformers' configs take for a field that the file leaves out, where Llama's takes something else.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "internlm3": {
        "num_key_value_heads": 2,
        "head_dim": 128,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-5,
    },
    "iquestcoder": {
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
    },
    "internlm": {"bias": True},
    "PanguEmbedded": {"bias": True},
    "aquila": {"rms_norm_eps": 1e-5},
    "Yi": {"rms_norm_eps": 1e-5, "rope_theta": 5000000.0},
    "exaone": {
        "num_key_value_heads": 8,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
    },
}
_FLAGS = {
    "internlm": {"bias": "attention_bias"},
    "PanguEmbedded": {"bias": "attention_bias"},
    "internlm3": {"qkv_bias": "attention_bias", "bias": "mlp_bias"},
}
"""What Llama calls them."""


def parse(raw: Mapping[str, Any]) -> Config:
    """As Llama's, after the names that differ. Raises UnsupportedModel."""
    fields = Fields(raw).raw
    kind = str(fields.get("model_type"))
    if kind == "nanbeige":
        refuse_more(fields)
    told = {**_DEFAULTS.get(kind, {}), **fields}
    flags = {llamas: told[name] for name, llamas in _FLAGS.get(kind, {}).items() if name in told}
    rope = _turned(fields) if kind == "internlm" else {}
    return llama.parse({**flags, **told, **rope, "model_type": "llama"})


def _turned(raw: Mapping[str, Any]) -> dict[str, Any]:
    """InternLM's own block. A dynamic rotation is the plain one up to the trained length, where texts end."""
    block = Fields(raw).block("rotary")
    block.choice("type", ("origin", "dynamic"), "origin")
    return {"rope_theta": block.number("base", 10000.0, low=2.0)} if block.raw else {}


_NAMES = (
    *GPT_TRUNK,
    (".attn.attention.out_proj.", ".self_attn.o_proj."),
    (".attn.attention.", ".self_attn."),
    (".mlp.c_fc_0.", ".mlp.gate_proj."),
    (".mlp.c_fc_1.", ".mlp.up_proj."),
    (".mlp.c_proj.", ".mlp.down_proj."),
)
"""EXAONE's."""
_YI = ((".ln1.", ".input_layernorm."), (".ln2.", ".post_attention_layernorm."))
_KORMO = (
    (".pre_attention_layernorm.", ".input_layernorm."),
    (".pre_mlp_layernorm.", ".post_attention_layernorm."),
)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return without_spares(config, respelled(weights, (*_NAMES, *_YI, *_KORMO)))


FAMILY = Family(
    parse=parse, layout=layout, build=build, adapt=adapt, checkpoint=always(Checkpoint(modules=_NAMES))
)
