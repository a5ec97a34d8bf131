"""Llama under other names: InternLM3, IQuestCoder, EXAONE 3 and 3.5, XVERSE, TeleChat3, Nanbeige.

transformers computes the first three with its own Llama; for the others mlx-lm's classes compute what Llama
does. They differ in the names of two flags, in what a file may leave out, and EXAONE in the names of tensors.
A Nanbeige whose layers are passed several times is `nanbeige`'s.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.models import llama
from runtime.models.checkpoint import Checkpoint, always
from runtime.models.config import Fields
from runtime.models.family import Family
from runtime.models.llama import Config, build, layout
from runtime.models.nanbeige import refuse_more
from runtime.models.tensor_names import respelled, without_spares

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
    "exaone": {
        "num_key_value_heads": 8,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
    },
}
_FLAGS = {"qkv_bias": "attention_bias", "bias": "mlp_bias"}


def parse(raw: Mapping[str, Any]) -> Config:
    """As Llama's, after the names that differ. Raises UnsupportedModel."""
    fields = Fields(raw).raw
    if fields.get("model_type") == "nanbeige":
        refuse_more(fields)
    own = dict(_DEFAULTS.get(str(fields.get("model_type")), {}))
    if fields.get("model_type") == "internlm3":
        own |= {llamas: fields[name] for name, llamas in _FLAGS.items() if name in fields}
    return llama.parse({**own, **fields, "model_type": "llama"})


_NAMES = (
    ("transformer.wte.", "model.embed_tokens."),
    ("transformer.ln_f.", "model.norm."),
    ("transformer.h.", "model.layers."),
    (".ln_1.", ".input_layernorm."),
    (".ln_2.", ".post_attention_layernorm."),
    (".attn.attention.out_proj.", ".self_attn.o_proj."),
    (".attn.attention.", ".self_attn."),
    (".mlp.c_fc_0.", ".mlp.gate_proj."),
    (".mlp.c_fc_1.", ".mlp.up_proj."),
    (".mlp.c_proj.", ".mlp.down_proj."),
)
"""EXAONE's."""


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return without_spares(config, respelled(weights, _NAMES))


FAMILY = Family(
    parse=parse, layout=layout, build=build, adapt=adapt, checkpoint=always(Checkpoint(modules=_NAMES))
)
