"""CodeShell: StarCoder's layer, whose heads turn by their positions, and share keys in groups.

Source: the authors' modeling_codeshell.py; llama.cpp's codeshell.cpp.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import key_heads, layer_count, one_rope, read_older_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.models.gpt_bigcode import MASKS, Config
from runtime.nn.attention.fused_attention import FusedAttention
from runtime.nn.residual.block import PreNorm
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import GPT_NAMES, respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_norms, layer_ropes, plain_mlp

_THETA = 10000.0
"""The class's, whatever a file says."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("codeshell",))
    fields.only({"group_query_attention": True, "add_cross_attention": False})
    fields.choice("position_embedding_type", ("rope",), "rope")
    shape = read_older_shape(
        fields,
        inner="n_inner",
        activation_field="activation_function",
        activation="gelu_pytorch_tanh",
        tied=True,
        vocab_size=70144,
        hidden_size=4096,
        num_attention_heads=32,
        max_position_embeddings=8192,
    )
    shape["kv_heads"] = key_heads(fields, shape["heads"], 8, name="num_query_groups")
    if fields.number("rope_theta", _THETA) != _THETA or fields.has("rope_parameters"):
        fields.refuse("rope_theta", f"{_THETA:g}, at which the class turns")
    rope, layers = one_rope(fields, shape, theta=_THETA), layer_count(fields, 42)
    scaled = fields.flag("scale_attn_weights", True)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(rope,) * layers,
        scale=shape["head_dim"] ** -0.5 if scaled else 1.0,
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm = layer_norms(config)
    layers = [
        PreNorm(
            FusedAttention(config, rope, bias=True, scale=config.scale), plain_mlp(config, bias=True), norm
        )
        for rope in layer_ropes(config)
    ]
    return CausalLM(config, layers, norm())


_NAMES = ((".attn.rotary_emb.", ".self_attn.rotary_emb."), *GPT_NAMES)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return respelled(without_spares(config, weights), _NAMES, trunk="transformer.")


FAMILY = Family(
    parse=parse, layout=layout, build=build, adapt=adapt, checkpoint=always(Checkpoint(spare=MASKS))
)
