"""Nomic BERT: an encoder with gated feed-forward blocks and no biases but the norms', for embeddings.

Two forms of files are read: transformers' own, and the one that Nomic published, with other names for tensors
and fields and one matrix for queries, keys and values; what else that form can say is refused. Sources: arXiv
2402.01613; transformers modeling_nomic_bert.py; modeling_hf_nomic_bert.py of nomic-ai/nomic-bert-2048.
"""

import re
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models.family.rotary_encoder import QKV, Config, family, plainly, read_sizes
from runtime.quoting import quoted

# Fields of Nomic's own form, and what transformers calls them.
_PUBLISHED = {
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_layer": "num_hidden_layers",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "rotary_emb_base": "rope_theta",
}
# Others of it, with the one value that is computed here; null is that, too.
SHARED: dict[str, Any] = {
    "causal": False,
    "parallel_block": False,
    "prenorm": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "rotary_scaling_factor": None,
    "use_rms_norm": False,
}
_ONLY: dict[str, Any] = SHARED | {
    "activation_function": "swiglu",
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "moe_every_n_layers": 0,
    "qkv_proj_bias": False,
}


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(respelled(raw, _ONLY))
    return Config(**sizes_of(fields, "silu"))


def sizes_of(fields: Fields, activation: str) -> dict[str, Any]:
    """As `read_sizes`, with what both of Nomic's kinds are where a file says nothing."""
    return read_sizes(
        fields,
        theta=1000.0,
        activation=activation,
        layer_norm_eps=1e-12,
        vocab_size=30528,
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
        max_position_embeddings=2048,
        type_vocab_size=2,
    )


def respelled(raw: Mapping[str, Any], only: Mapping[str, Any]) -> dict[str, Any]:
    """In transformers' names. UnsupportedModel for what Nomic's form can say and nothing here computes.
    only: fields of it with the one value that is computed.
    """
    for name, value in only.items():
        if raw.get(name) is not None and raw[name] != value:
            raise UnsupportedModel(
                f"config.json: {name} is {quoted(raw[name])}, and only {quoted(value)} is computed here"
            )
    for other, name in _PUBLISHED.items():
        if raw.get(other) is not None and raw.get(name) not in (None, raw[other]):
            raise UnsupportedModel(
                f"config.json: {other} is {quoted(raw[other])} and {name} is {quoted(raw[name])}, "
                "and both are names of one thing"
            )
    found = {name: raw[other] for other, name in _PUBLISHED.items() if raw.get(other) is not None}
    return {**raw, **found}


PREFIXES = ("nomic_bert.", "bert.")
AROUND = (
    (re.compile(r"^encoder\.layers\."), "layers."),
    (re.compile(r"^emb_ln\."), "embeddings.LayerNorm."),
    (re.compile(r"\.attn\.out_proj\."), ".self_attn.o_proj."),
    (re.compile(r"\.norm1\."), ".post_attention_layernorm."),
    (re.compile(r"\.norm2\."), ".post_mlp_layernorm."),
)
_RENAMED = (
    *AROUND,
    (re.compile(r"\.mlp\.fc11\."), ".mlp.up_proj."),
    (re.compile(r"\.mlp\.fc12\."), ".mlp.gate_proj."),
    (re.compile(r"\.mlp\.fc2\."), ".mlp.down_proj."),
)
FUSED = ((re.compile(r"(.*\.)attn\.Wqkv(\.\w+)"), QKV),)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Either form's names, and a matrix for each of queries, keys and values."""
    return plainly(weights, PREFIXES, _RENAMED, FUSED)


def _variant(raw: Mapping[str, Any]) -> str | None:
    return "nomic_bert_moe" if raw.get("moe_every_n_layers") else None


SENSITIVE = ".attn.Wqkv.", ".k_proj.", ".v_proj.", ".fc2.", ".down_proj."
FAMILY = family(parse, adapt, *SENSITIVE, variant=_variant)
