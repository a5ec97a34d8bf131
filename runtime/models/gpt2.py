"""GPT-2: learned positions, LayerNorms, one matrix for q, k and v.

transformers stores its matrices the other way round (`Conv1D`, [in, out]); MLX conversions do not. Which it
is shows in the shape of c_attn.
"""

import re
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models.family import Family
from runtime.nn.attention.fused_attention import FusedAttention
from runtime.nn.feed_forward.mlp import ACTIVATIONS
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import GPT_NAMES, respelled, without_spares
from runtime.trunks.decoder import attention_layout, layer_norms, plain_mlp
from runtime.trunks.headed import untied_head
from runtime.trunks.position_table import PositionTableLM, PositionTableTrunk


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    scales: tuple[float, ...]
    """Of each layer: what its attention scores are multiplied by."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    if fields.flag("add_cross_attention"):
        raise UnsupportedModel(
            "config.json: add_cross_attention is true, and only the decoder alone is computed"
        )
    hidden = fields.count("n_embd", 768, high=1 << 20)
    heads = fields.count("n_head", 12, high=4096)
    if hidden % heads:
        fields.refuse("n_embd", f"a multiple of n_head, {heads}")
    scales = _scales(fields, hidden // heads)
    return Config(
        vocab_size=fields.count("vocab_size", 50257, high=1 << 24),
        hidden_size=hidden,
        intermediate_size=fields.count("n_inner", 4 * hidden, high=1 << 22),
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        norm_eps=fields.number("layer_norm_epsilon", 1e-5, low=1e-30),
        activation=fields.choice("activation_function", tuple(ACTIVATIONS), "gelu_new"),
        tied=fields.flag("tie_word_embeddings", True),
        context_length=fields.count("n_positions", 1024, high=1 << 24),
        windows=(None,) * len(scales),
        ropes=(None,) * len(scales),
        scales=scales,
    )


def _scales(fields: Fields, head_dim: int) -> tuple[float, ...]:
    layers = fields.count("n_layer", 12, high=4096)
    scale = head_dim**-0.5 if fields.flag("scale_attn_weights", True) else 1.0
    shrinks = fields.flag("scale_attn_by_inverse_layer_idx")
    return tuple(scale / (i + 1) if shrinks else scale for i in range(layers))


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> PositionTableLM:
    norm = layer_norms(config)
    layers = [
        PreNorm(FusedAttention(config, None, bias=True, scale=scale), plain_mlp(config, bias=True), norm)
        for scale in config.scales
    ]
    return PositionTableLM(PositionTableTrunk(config, layers, norm()), untied_head(config))


_MATRIX = re.compile(r".*\.(attn\.c_attn|attn\.c_proj|mlp\.c_fc2?|mlp\.c_proj)\.weight")
_FIRST = "h.0.attn.c_attn.weight"
_NAMES = (("transformer.model.", "transformer."), *GPT_NAMES)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return without_spares(config, respelled(outputs_first(config, weights), _NAMES, trunk="transformer."))


def outputs_first(config: DecoderConfig, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Matrices as [out, in]."""
    first = next((array for name, array in weights.items() if name.endswith(_FIRST)), None)
    if first is None or first.shape[0] != config.hidden_size:
        return weights
    return {name: array.T if _MATRIX.fullmatch(name) else array for name, array in weights.items()}


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(
        Checkpoint(
            input_first=(".c_attn.weight", ".c_proj.weight", ".c_fc.weight"),
            prefix="model.",
            modules=(("model.", "transformer."),),
            spare=(".attn.bias", ".attn.masked_bias"),
        )
    ),
)
