"""OLMoE and FlexOlmo: Llamas with norms over all queries and over all keys, and experts for MLPs.

FlexOlmo norms behind its sublayers, as OLMo 2 does.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import Projected, WideNormAttention, clipped
from runtime.nn.feed_forward.moe import SoftmaxMoE
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import PostNorm, PreNorm
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_ropes, rms_norms


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    after: bool
    """Norms are behind sublayers, not before them."""
    bias: bool
    clip: float | None
    """Queries, keys and values are held within [-clip, clip]; None: they are not."""
    experts: int
    chosen: int
    """Experts per token."""
    normalize: bool
    """The weights of the chosen are divided by their sum."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    flex = fields.choice("model_type", ("olmoe", "flex_olmo")) == "flex_olmo"
    shape = read_shape(fields, eps=1e-6 if flex else 1e-5, max_position_embeddings=4096)
    layers = layer_count(fields)
    experts = fields.count("num_experts", 7 if flex else 64, high=1 << 16)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape, theta=500000.0 if flex else 10000.0),) * layers,
        after=flex,
        bias=fields.flag("attention_bias"),
        clip=fields.number("clip_qkv", low=0.0) if not flex and fields.has("clip_qkv") else None,
        experts=experts,
        chosen=fields.count("num_experts_per_tok", 5 if flex else 8, high=experts),
        normalize=fields.flag("norm_topk_prob"),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class ClippedAttention(WideNormAttention):
    def __init__(self, config: Config, rope: Rope | None, clip: float) -> None:
        super().__init__(config, rope, config.norm_eps, qkv_bias=config.bias, output_bias=config.bias)
        self._clip = clip

    def flat(self, x: mx.array, step: Step) -> Projected:
        return clipped(super().flat(x, step), self._clip)


def _attention(config: Config, rope: Rope | None) -> WideNormAttention:
    bias = config.bias
    if config.clip is not None:
        return ClippedAttention(config, rope, config.clip)
    return WideNormAttention(config, rope, config.norm_eps, qkv_bias=bias, output_bias=bias)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)

    def mlp() -> SoftmaxMoE:
        return SoftmaxMoE(
            config.hidden_size,
            config.intermediate_size,
            config.experts,
            config.chosen,
            normalize=config.normalize,
            activation=config.activation,
        )

    wiring = PostNorm if config.after else PreNorm
    layers = [wiring(_attention(config, rope), mlp(), norm) for rope in layer_ropes(config)]
    return CausalLM(config, layers, norm())


def adapt(config: Config, weights: Weights) -> Weights:
    return to_switch(without_spares(config, weights), config.experts)


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
