"""GTE: an encoder with gated feed-forward blocks, biases and rotations for long texts, for embeddings.

Two forms of files are read: transformers' own (`gte`), and the one that Alibaba published with its own code
(`new`), with other names for tensors, one matrix for queries, keys and values and one for a gate and what it
gates; what else that form can say is refused. Sources: arXiv 2407.19669; transformers modeling_gte.py; vLLM's
rotary_embedding/ntk_scaling_rope.py, which has the published code's rotations.
"""

import re
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models.family.rotary_encoder import QKV, Config, family, plainly, read_sizes
from runtime.quoting import quoted

_PUBLISHED = "new"


def parse(raw: Mapping[str, Any]) -> Config:
    published = raw.get("model_type") == _PUBLISHED
    fields = Fields(_turned(raw))
    fields.choice("model_type", ("gte", _PUBLISHED), "gte")
    fields.choice("position_embedding_type", ("rope",), "rope")
    fields.choice("layer_norm_type", ("layer_norm",), "layer_norm")
    fields.only({"logn_attention_scale": False})
    hidden, heads = fields.count("hidden_size", 768), fields.count("num_attention_heads", 12)
    if hidden % heads:
        fields.refuse("hidden_size", f"a multiple of the {heads} heads")
    sizes = read_sizes(
        fields,
        theta=10000.0 if published else 160000.0,
        activation="gelu",
        layer_norm_eps=1e-12,
        head_dim=hidden // heads,
        least_types=0,
        vocab_size=30528 if published else 250048,
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
        max_position_embeddings=2048 if published else 8192,
        type_vocab_size=1,
    )
    return Config(**sizes, biased=True)


def _turned(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The published code's `ntk`: a larger base, and all wavelengths longer by a factor, whatever the length
    of the text.
    """
    scaling = raw.get("rope_scaling")
    if not isinstance(scaling, Mapping) or scaling.get("type", scaling.get("rope_type")) != "ntk":
        return raw
    if scaling.get("mixed_b") is not None:
        raise UnsupportedModel(
            f"config.json: mixed_b is {quoted(scaling['mixed_b'])}, and only ntk without it is computed here"
        )
    fields, block = Fields(raw), Fields(scaling, under="rope_scaling")
    heads, factor = fields.count("num_attention_heads", 12), block.number("factor", low=1.0, high=1e6)
    dims = max(fields.count("hidden_size", 768) // heads, 1)
    theta = fields.number("rope_theta", 10000.0, low=1.0, high=1e12) * factor
    plain = {name: value for name, value in raw.items() if name not in ("rope_scaling", "rope_theta")}
    return plain | {
        "rope_parameters": {"rope_type": "linear", "rope_theta": theta, "factor": factor ** (2 / dims)}
    }


_PREFIXES = ("gte.", "new.")
_RENAMED = (
    (re.compile(r"^encoder\.layer\."), "layers."),
    (re.compile(r"\.attention\."), ".self_attn."),
    (re.compile(r"\.attn_ln\."), ".post_attention_layernorm."),
    (re.compile(r"\.mlp_ln\."), ".post_mlp_layernorm."),
)
_FUSED = (
    (re.compile(r"(.*\.)self_attn\.qkv_proj(\.\w+)"), QKV),
    (re.compile(r"(.*\.)mlp\.up_gate_proj(\.\w+)"), ("mlp.up_proj", "mlp.gate_proj")),
)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Either form's names, and a matrix for each of those that lie in one."""
    return plainly(weights, _PREFIXES, _RENAMED, _FUSED)


FAMILY = family(parse, adapt, ".qkv_proj.", ".k_proj.", ".v_proj.", ".down_proj.")
