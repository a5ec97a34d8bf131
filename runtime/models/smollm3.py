"""SmolLM3: a Llama that leaves positions out of every fourth layer (NoPE).

`no_rope_layers` is 1 where a layer HAS positions. Windows, if used at all, are for the layers without.
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape, rotated_layers
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, layer_ropes, rms_norms


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    attention_bias: bool
    mlp_bias: bool


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(fields, tied=True, num_key_value_heads=4, max_position_embeddings=32768)
    rotated = rotated_layers(fields, layer_count(fields))
    rope = one_rope(fields, shape, theta=2e6)
    return Config(
        **shape,
        windows=_windows(fields, rotated),
        ropes=tuple(rope if turns else None for turns in rotated),
        attention_bias=fields.flag("attention_bias"),
        mlp_bias=fields.flag("mlp_bias"),
    )


def _windows(fields: Fields, rotated: tuple[bool, ...]) -> tuple[int | None, ...]:
    """By `layer_types`; without them, and if asked for, layers without positions slide."""
    layers = len(rotated)
    kinds = fields.words("layer_types", layers, ("full_attention", "sliding_attention"))
    if kinds is None and (not fields.flag("use_sliding_window") or not fields.has("sliding_window")):
        return (None,) * layers
    slides = [not turns for turns in rotated] if kinds is None else [k == "sliding_attention" for k in kinds]
    window = fields.count("sliding_window") if any(slides) else None
    return tuple(window if slide else None for slide in slides)


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm, bias = rms_norms(config), config.attention_bias
    layers = [
        PreNorm(
            SelfAttention(config, rope, qkv_bias=bias, output_bias=bias),
            gated_mlp(config, bias=config.mlp_bias),
            norm,
        )
        for rope in layer_ropes(config)
    ]
    return CausalLM(config, layers, norm())


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=without_spares)
