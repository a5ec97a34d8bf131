"""OLMo 1: a Llama whose norms are LayerNorms without weights, and whose queries, keys and values may be held
within bounds.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import Projected, SelfAttention, clipped
from runtime.nn.norm import LayerNorm
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, layer_ropes

_EPS = 1e-5
"""transformers reads it from no file."""


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    clip: float | None
    """Queries, keys and values are held within [-clip, clip]; None: they are not."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape: dict[str, Any] = {**read_shape(fields), "norm_eps": _EPS}
    layers = layer_count(fields)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape),) * layers,
        bias=fields.flag("attention_bias"),
        clip=fields.number("clip_qkv", low=0.0) if fields.has("clip_qkv") else None,
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class ClippedAttention(SelfAttention):
    def __init__(self, config: Config, rope: Rope | None, clip: float) -> None:
        super().__init__(config, rope, qkv_bias=config.bias, output_bias=config.bias)
        self._clip = clip

    def flat(self, x: mx.array, step: Step) -> Projected:
        return clipped(super().flat(x, step), self._clip)


def _attention(config: Config, rope: Rope | None) -> SelfAttention:
    if config.clip is not None:
        return ClippedAttention(config, rope, config.clip)
    return SelfAttention(config, rope, qkv_bias=config.bias, output_bias=config.bias)


def build(config: Config) -> CausalLM:
    def norm() -> LayerNorm:
        return LayerNorm(config.hidden_size, eps=config.norm_eps, weight=False, bias=False)

    layers = [PreNorm(_attention(config, rope), gated_mlp(config), norm) for rope in layer_ropes(config)]
    return CausalLM(config, layers, norm())


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=without_spares)
