"""Granite 3: a Llama with four multipliers: on the embedding, scores, what sublayers add, and logits.

Granite SWA ("swash") slides in most layers, its heads have sinks, and each layer may rotate by a base of its
own, or not at all.
"""

from collections.abc import Callable, Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape, read_windows
from runtime.config.fields import Fields, whole_heads
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.layer import FeedForward
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.nn.residual.block import Scaled
from runtime.records import dataclass
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, layer_ropes, rms_norms


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    attention_bias: bool
    mlp_bias: bool
    attention_multiplier: float
    """Attention scores are multiplied by it."""
    residual_multiplier: float
    """What a sublayer adds is multiplied by it."""
    embedding_multiplier: float
    """Embeddings are multiplied by it."""
    logits_scaling: float
    """Logits are divided by it."""
    sinks: bool
    """Each head has one more logit."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    kind = fields.raw.get("model_type")
    slides = kind in ("granite_swa", "granitemoe_swa")
    shape = read_shape(fields, **_SWASH) if kind == "granite_swa" else read_shape(fields)
    layers = layer_count(fields)
    return Config(
        **shape,
        windows=_windows(fields, layers) if slides else (None,) * layers,
        ropes=_ropes(fields, shape, layers) if slides else (one_rope(fields, shape),) * layers,
        sinks=slides,
        attention_bias=fields.flag("attention_bias"),
        mlp_bias=fields.flag("mlp_bias"),
        attention_multiplier=fields.number("attention_multiplier", 1.0),
        residual_multiplier=fields.number("residual_multiplier", 1.0),
        embedding_multiplier=fields.number("embedding_multiplier", 1.0),
        logits_scaling=fields.number("logits_scaling", 1.0, low=1e-6),
    )


_SWASH: dict[str, Any] = {
    "eps": 1e-5,
    "tied": True,
    "num_key_value_heads": 4,
    "max_position_embeddings": 8192,
}


def _windows(fields: Fields, layers: int) -> tuple[int | None, ...]:
    window = fields.count("sliding_window", 128)
    return read_windows(fields, layers, full_every=4, full_first=True, window=window)


def _ropes(fields: Fields, shape: dict[str, Any], layers: int) -> tuple[RopeSpec | None, ...]:
    """`layer_rope_theta` is the base of each layer, 0 where it has no positions."""
    block = whole_heads(fields.rope_parameters())
    bases = fields.raw.get("layer_rope_theta")
    if bases is None:
        bases = [block["rope_theta"]] * layers
    if not isinstance(bases, list) or len(bases) != layers or not all(map(_is_base, bases)):
        fields.refuse("layer_rope_theta", f"a number from 2 to 1e+15 for each of {layers} layers, or 0")
    sizes = {"head_dim": shape["head_dim"], "max_positions": shape["context_length"]}
    specs = {base: read_rope({**block, "rope_theta": base}, **sizes) for base in {*bases} - {0}}
    return tuple(specs.get(base) for base in bases)


def _is_base(value: Any) -> bool:
    return type(value) in (int, float) and (value == 0 or 2 <= value <= 1e15)


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class Granite(CausalLM):
    """mlp() makes the feed-forward block of one layer."""

    def __init__(self, config: Config, mlp: Callable[[], FeedForward]) -> None:
        norm, bias = rms_norms(config), config.attention_bias

        def attention(rope: Rope | None) -> SelfAttention:
            scale = config.attention_multiplier
            return SelfAttention(
                config, rope, qkv_bias=bias, output_bias=bias, scale=scale, sinks=config.sinks
            )

        blocks = [
            Scaled(attention(rope), mlp(), norm, config.residual_multiplier) for rope in layer_ropes(config)
        ]
        super().__init__(
            config,
            blocks,
            norm(),
            embed_scale=config.embedding_multiplier,
            logit_scale=1 / config.logits_scaling,
        )


def build(config: Config) -> Granite:
    return Granite(config, lambda: gated_mlp(config, bias=config.mlp_bias))


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=without_spares)
