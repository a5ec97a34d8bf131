"""ChatGLM2, ChatGLM3 and GLM-4 9B as their authors published them: GLM of transformers under other names.

Queries, keys and values are one matrix, and half of each head turns in neighbouring pairs, by a base that
files say as a multiple of 10000. The first ChatGLM, which reads a prompt both ways, calls itself so too
and is refused, and so are files in the authors' own 4 and 8 bits. GLM-4V's text model is it.

Source: the authors' modeling_chatglm.py; vLLM's chatglm.py.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.fused_attention import FusedAttention
from runtime.nn.feed_forward.mlp import FusedGatedMLP
from runtime.nn.positions.rope_spec import read_rope
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import respelled
from runtime.tensors.towers import Towers
from runtime.trunks.decoder import CausalLM, attention_layout, layer_ropes, rms_norms

_THETA = 10000.0
_LAYERS = 28


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    qkv_bias: bool


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("chatglm",))
    _refuse_others(fields)
    shape = read_shape(
        fields,
        eps=1e-5,
        vocab_size=65024,
        hidden_size=4096,
        intermediate_size=13696,
        num_attention_heads=32,
        num_key_value_heads=1,
        head_dim=128,
        max_position_embeddings=2048,
    )
    rope = read_rope(
        {"rope_theta": _THETA * fields.number("rope_ratio", 1.0, low=1e-3, high=1e6)},
        head_dim=shape["head_dim"],
        max_positions=shape["context_length"],
        traditional=True,
        partial=0.5,
    )
    layers = layer_count(fields, _LAYERS)
    return Config(
        **shape, windows=(None,) * layers, ropes=(rope,) * layers, qkv_bias=fields.flag("attention_bias")
    )


def _refuse_others(fields: Fields) -> None:
    """What these classes compute otherwise where a file says it, and what they do not look at."""
    if not fields.flag("multi_query_attention"):
        fields.refuse("multi_query_attention", "true: the first ChatGLM is not computed")
    fields.only(
        {
            "rmsnorm": True,
            "post_layer_norm": True,
            "original_rope": True,
            "add_bias_linear": False,
            "apply_residual_connection_post_layernorm": False,
            "tie_word_embeddings": False,
        }
    )
    for name, why in _ABSENT.items():
        if fields.raw.get(name):
            fields.refuse(name, f"none: {why}")


_ABSENT = {
    "quantization_bit": "the authors' own packed weights are not read; take a checkpoint in 16 bits",
    "pre_seq_len": "learned prefixes are not computed",
    "rope_scaling": "rope_ratio says how heads turn",
    "rope_parameters": "rope_ratio says how heads turn",
}


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm, hidden, inner = rms_norms(config), config.hidden_size, config.intermediate_size
    layers = [
        PreNorm(
            FusedAttention(config, rope, bias=config.qkv_bias, output_bias=False),
            FusedGatedMLP(hidden, inner, activation=config.activation),
            norm,
        )
        for rope in layer_ropes(config)
    ]
    return CausalLM(config, layers, norm())


_NAMES = (
    ("transformer.embedding.word_embeddings.", "model.embed_tokens."),
    ("transformer.encoder.layers.", "model.layers."),
    ("transformer.encoder.final_layernorm.", "model.norm."),
    ("transformer.output_layer.", "lm_head."),
    (".self_attention.query_key_value.", ".self_attn.qkv_proj."),
    (".self_attention.dense.", ".self_attn.o_proj."),
    (".mlp.dense_h_to_4h.", ".mlp.gate_up_proj."),
    (".mlp.dense_4h_to_h.", ".mlp.down_proj."),
)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return respelled(weights, _NAMES)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(
        Checkpoint(
            default_layers=_LAYERS,
            spare=(".rotary_pos_emb.inv_freq",),
            towers=Towers(images=("transformer.vision.",)),
        )
    ),
)
