"""Jina embeddings v3: XLM-RoBERTa with rotations in place of learned positions, for embeddings.

As transformers has it (`jina-embeddings-v3-hf`), where what it learned for each task is an adapter of PEFT's.
In the form that Jina published first these lie among the weights; such a file has tensors that nothing here
reads, and is refused for them. Sources: arXiv 2409.10173; transformers modeling_jina_embeddings_v3.py.
"""

import re
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.models.config import Fields, whole_heads
from runtime.models.rotary_encoder import QKV, Config, family, plainly
from runtime.nn.mlp import ACTIVATIONS
from runtime.nn.rope_spec import read_rope


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    hidden = fields.count("hidden_size", 1024, high=1 << 20)
    heads = fields.count("num_attention_heads", 16, high=4096)
    head_dim = fields.count("head_dim", max(hidden // heads, 1), high=4096)
    context = fields.count("max_position_embeddings", 8194)
    rope = whole_heads(fields.rope_parameters(theta=20000.0))
    return Config(
        vocab_size=fields.count("vocab_size", 250002, high=1 << 24),
        hidden_size=hidden,
        intermediate_size=fields.count("intermediate_size", 4096, high=1 << 22),
        layers=fields.count("num_hidden_layers", 24, high=4096),
        heads=heads,
        head_dim=head_dim,
        norm_eps=fields.number("layer_norm_eps", 1e-5, low=1e-30),
        activation=fields.choice("hidden_act", tuple(ACTIVATIONS), "gelu"),
        types=fields.count("type_vocab_size", 1, high=1 << 16),
        context_length=context,
        rope=read_rope(rope, head_dim=head_dim, max_positions=context),
        biased=True,
        gated=False,
    )


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
