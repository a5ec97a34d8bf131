"""Jina embeddings v3: XLM-RoBERTa with rotations in place of learned positions, for embeddings.

As transformers has it (`jina-embeddings-v3-hf`), where what it learned for each task is an adapter of PEFT's.
In the form that Jina published first these lie among the weights; such a file has tensors that nothing here
reads, and is refused for them. Sources: arXiv 2409.10173; transformers modeling_jina_embeddings_v3.py.
"""

import re
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.config.fields import Fields
from runtime.models.family.rotary_encoder import QKV, Config, family, plainly, read_sizes


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    sizes = read_sizes(
        fields,
        theta=20000.0,
        activation="gelu",
        layer_norm_eps=1e-5,
        vocab_size=250002,
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=24,
        num_attention_heads=16,
        max_position_embeddings=8194,
        type_vocab_size=1,
    )
    return Config(**sizes, biased=True, gated=False)


_PREFIXES = ("jina_embeddings_v3.", "roberta.")
_RENAMED = (
    (re.compile(r"^emb_ln\."), "embeddings.LayerNorm."),
    (re.compile(r"^encoder\.layers\."), "layers."),
    (re.compile(r"\.mixer\.out_proj\."), ".self_attn.o_proj."),
    (re.compile(r"\.norm1\."), ".post_attention_layernorm."),
    (re.compile(r"\.norm2\."), ".post_mlp_layernorm."),
    (re.compile(r"\.mlp\.fc1\."), ".mlp.up_proj."),
    (re.compile(r"\.mlp\.fc2\."), ".mlp.down_proj."),
)
_FUSED = ((re.compile(r"(.*\.)mixer\.Wqkv(\.\w+)"), QKV),)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Either form's names, and a matrix for each of queries, keys and values."""
    return plainly(weights, _PREFIXES, _RENAMED, _FUSED)


FAMILY = family(parse, adapt, ".Wqkv.", ".k_proj.", ".v_proj.", ".fc2.")
