"""Llama and its closest kin: Llama 1-3.x, Mistral, Qwen2, Qwen3.

One pre-norm decoder: RMSNorm -> attention with rotary positions -> RMSNorm -> SwiGLU. The members differ in
four facts, all read from the config: biases on q, k, v (Qwen2 always, Llama by flag), RMSNorm on each query
and key head (Qwen3), which layers look through a sliding window (Mistral, Qwen2 and Qwen3 by flag), and how
positions are scaled (rope).
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape, without_windows
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.checkpoint import TRUNK, Checkpoint, always
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import (
    CausalLM,
    attention_layout,
    gated_mlp,
    layer_ropes,
    rms_norms,
    self_attention,
)


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    head_norm: bool


# What transformers' classes take where a file does not say it.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "mistral": {"max_position_embeddings": 131072},
    "qwen2": {"max_position_embeddings": 32768},
    "qwen3": {"max_position_embeddings": 32768, "head_dim": 128},
}


def parse(raw: Mapping[str, Any]) -> Config:
    """Fields as transformers 4 and 5 spell them. UnsupportedModel names the field that cannot be run."""
    fields = Fields(raw)
    return read(fields, str(fields.raw.get("model_type") or "llama"))


def read(fields: Fields, family: str) -> Config:
    """As the member of that model_type."""
    layers = layer_count(fields)
    shape = read_shape(fields, **_DEFAULTS.get(family, {}))
    bias = family != "qwen2" and fields.flag("attention_bias")
    return Config(
        **shape,
        windows=_windows(fields, family, layers),
        ropes=(one_rope(fields, shape),) * layers,
        qkv_bias=bias or family == "qwen2",
        output_bias=bias,
        mlp_bias=fields.flag("mlp_bias"),
        head_norm=family == "qwen3",
    )


def _windows(fields: Fields, family: str, layers: int) -> tuple[int | None, ...]:
    # Mistral's first files did not write down the window that they have.
    window = fields.raw.get("sliding_window", 4096 if family == "mistral" else None)
    if family == "llama" or (family == "mistral" and window is None):
        return (None,) * layers
    if window is None:
        return without_windows(fields, layers)
    window = fields.count("sliding_window", 4096)
    if family == "mistral":
        return (window,) * layers
    if not fields.flag("use_sliding_window"):
        return without_windows(fields, layers)
    kinds = fields.words("layer_types", layers, ("full_attention", "sliding_attention"))
    if kinds is not None:
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    first = fields.count("max_window_layers", 28, low=0)
    return tuple(window if i >= first else None for i in range(layers))


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    layers = [
        PreNorm(_attention(config, rope), gated_mlp(config, bias=config.mlp_bias), norm)
        for rope in layer_ropes(config)
    ]
    return CausalLM(config, layers, norm())


def _attention(config: Config, rope: Rope | None) -> SelfAttention:
    biases = {"qkv_bias": config.qkv_bias, "output_bias": config.output_bias}
    return self_attention(config, rope, head_norm=config.head_norm, **biases)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=without_spares,
    checkpoint=always(Checkpoint(prefix=TRUNK)),
    both_ways=True,
)
