"""Lille 130M: Llama with one matrix for queries, keys and values, pairs of neighbours that turn, norms inside
of the sublayers, and an MLP whose width follows from the stream's.

Source: mlx-lm's lille-130m.py, as the authors' class came with their checkpoints.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.fused_attention import FusedAttention
from runtime.nn.residual.block import PreNorm
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, layer_ropes, rms_norms

_UNIT = 256
"""The MLP's width is a multiple of it."""


def parse(raw: Mapping[str, Any]) -> DecoderConfig:
    fields = Fields(raw)
    fields.choice("model_type", ("lille-130m",))
    hidden = fields.count("hidden_size", 768, high=1 << 20)
    inner = max(_UNIT * round(int(8 * hidden / 3) / _UNIT), _UNIT)
    shape = read_shape(
        Fields({**fields.raw, "intermediate_size": inner}),
        eps_field="layer_norm_eps",
        eps=1e-5,
        tied=True,
        vocab_size=32768,
        hidden_size=768,
        num_attention_heads=12,
        num_key_value_heads=4,
        max_position_embeddings=512,
    )
    layers = layer_count(fields, 12)
    rope = one_rope(fields, shape, traditional=True)
    return DecoderConfig(**shape, windows=(None,) * layers, ropes=(rope,) * layers)


def layout(config: DecoderConfig) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: DecoderConfig) -> CausalLM:
    norm = rms_norms(config)
    layers = [PreNorm(FusedAttention(config, rope), gated_mlp(config), norm) for rope in layer_ropes(config)]
    return CausalLM(config, layers, norm())


_NAMES = (
    ("transformer.tok_embeddings.", "model.embed_tokens."),
    ("transformer.", "model."),
    (".attention.norm.", ".input_layernorm."),
    (".attention.out_proj.", ".self_attn.o_proj."),
    (".attention.", ".self_attn."),
    (".feed_forward.norm.", ".post_attention_layernorm."),
    (".feed_forward.", ".mlp."),
)


def adapt(config: DecoderConfig, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return without_spares(config, respelled(weights, _NAMES))


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(default_layers=12)),
)
