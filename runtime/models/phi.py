"""Phi-1, Phi-1.5 and Phi-2: attention and MLP side by side behind one LayerNorm, biases everywhere, part of
each head rotated.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models.family import Family
from runtime.nn.attention.self_attention import HeadNormAttention, SelfAttention
from runtime.nn.layer import Mixer
from runtime.nn.norm import LayerNorm, Normalize
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import Parallel
from runtime.records import dataclass
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_norms, layer_ropes, plain_mlp


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    head_norm: bool
    """A LayerNorm, shared by all heads, on queries and on keys."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(fields, eps_field="layer_norm_eps", eps=1e-5, activation="gelu_new")
    layers = layer_count(fields)
    if shape["tied"]:
        raise UnsupportedModel(
            "config.json: tie_word_embeddings is true, and Phi's head has a bias of its own"
        )
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape, partial=0.5),) * layers,
        head_norm=fields.flag("qk_layernorm"),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def _attention(config: Config, rope: Rope | None) -> Mixer:
    if not config.head_norm:
        return SelfAttention(config, rope, qkv_bias=True, output_bias=True)

    def norm(_heads: int) -> Normalize:
        return LayerNorm(config.head_dim, eps=config.norm_eps)

    return HeadNormAttention(config, rope, norm, qkv_bias=True, output_bias=True)


def build(config: Config) -> CausalLM:
    norm = layer_norms(config)
    layers = [
        Parallel(_attention(config, rope), plain_mlp(config, bias=True), norm) for rope in layer_ropes(config)
    ]
    return CausalLM(config, layers, norm(), head_bias=True)


_NAMES = (
    (".self_attn.dense.", ".self_attn.o_proj."),
    (".q_layernorm.", ".q_norm."),
    (".k_layernorm.", ".k_norm."),
    (".mlp.fc1.", ".mlp.up_proj."),
    (".mlp.fc2.", ".mlp.down_proj."),
    ("model.final_layernorm.", "model.norm."),
)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return respelled(without_spares(config, weights), _NAMES)


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
