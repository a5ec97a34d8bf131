"""HyperCLOVA X: a Llama normed before and behind each sublayer, with Granite's multipliers."""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import Sandwich
from runtime.records import dataclass
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, layer_ropes, rms_norms

# The norms' names here, by those that files have for them.
_NORMS = {
    "post_norm1": "post_attention_layernorm",
    "post_attention_layernorm": "pre_feedforward_layernorm",
    "post_norm2": "post_feedforward_layernorm",
}


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    attention_bias: bool
    mlp_bias: bool
    scale: float
    """Attention scores are multiplied by it."""
    share: float
    """What a sublayer adds is multiplied by it."""
    embed_scale: float
    """Embeddings are multiplied by it."""
    logit_scale: float
    """Logits are multiplied by it: where Granite divides them."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.only({"use_post_norm": True})
    shape = read_shape(fields)
    layers = layer_count(fields)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape),) * layers,
        attention_bias=fields.flag("attention_bias"),
        mlp_bias=fields.flag("mlp_bias"),
        scale=fields.number("attention_multiplier", shape["head_dim"] ** -0.5),
        share=fields.number("residual_multiplier", 1.0),
        embed_scale=fields.number("embedding_multiplier", 1.0),
        logit_scale=fields.number("logits_scaling", 1.0),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    def attention(rope: Rope | None) -> SelfAttention:
        bias = config.attention_bias
        return SelfAttention(config, rope, qkv_bias=bias, output_bias=bias, scale=config.scale)

    norm = rms_norms(config)
    layers = [
        Sandwich(attention(rope), gated_mlp(config, bias=config.mlp_bias), norm)
        for rope in layer_ropes(config)
    ]
    return CausalLM(config, layers, norm(), embed_scale=config.embed_scale, logit_scale=config.logit_scale)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """The norms behind sublayers times what their answers are multiplied by."""
    own: dict[str, mx.array] = {}
    for name, array in without_spares(config, weights).items():
        layer, _, norm = name.removesuffix(".weight").rpartition(".")
        behind = norm.startswith("post_norm") and config.share != 1
        new = f"{layer}.{_NORMS[norm]}.weight" if norm in _NORMS else name
        own[new] = array.astype(mx.float32) * config.share if behind else array
    return own


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
