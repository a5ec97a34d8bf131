"""GPT-Neo: GPT-2's layer and learned positions, in every other layer a window, scores that are not scaled.

Source: transformers modeling_gpt_neo.py.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, read_older_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.residual.block import PreNorm
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import GPT_NAMES, respelled, without_spares
from runtime.trunks.decoder import attention_layout, layer_norms, plain_mlp
from runtime.trunks.headed import untied_head
from runtime.trunks.position_table import PositionTableLM, PositionTableTrunk


def parse(raw: Mapping[str, Any]) -> DecoderConfig:
    fields = Fields(raw)
    shape = read_older_shape(
        fields,
        inner="intermediate_size",
        activation_field="activation_function",
        activation="gelu_new",
        tied=True,
    )
    layers = layer_count(fields, 24)
    window = fields.count("window_size", 256)
    windows = tuple(window if kind == "local" else None for kind in _kinds(fields, layers))
    return DecoderConfig(**shape, windows=windows, ropes=(None,) * layers)


def _kinds(fields: Fields, layers: int) -> tuple[str, ...]:
    """global or local, of each layer: `attention_types` has them in runs, [[kinds, how often], ...]."""
    allowed = "global", "local"
    runs: Any = fields.raw.get("attention_types") or [[list(allowed), layers // 2]]
    try:
        kinds = [kind for run, times in runs for _ in range(min(int(times), layers)) for kind in run]
    except (TypeError, ValueError):
        kinds = []
    if len(kinds) != layers or any(kind not in allowed for kind in kinds):
        fields.refuse("attention_types", f"runs of global and local for {layers} layers")
    if fields.raw.get("attention_layers") not in (None, kinds):
        fields.refuse("attention_layers", "what attention_types says")
    return tuple(kinds)


def layout(config: DecoderConfig) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: DecoderConfig) -> PositionTableLM:
    norm = layer_norms(config)
    layers = [
        PreNorm(SelfAttention(config, None, output_bias=True, scale=1.0), plain_mlp(config, bias=True), norm)
        for _ in config.windows
    ]
    return PositionTableLM(PositionTableTrunk(config, layers, norm()), untied_head(config))


_SPARE = (".attention.bias", ".attention.masked_bias")
_NAMES = (
    (".attn.attention.out_proj.", ".self_attn.o_proj."),
    (".attn.attention.", ".self_attn."),
    *GPT_NAMES,
)


def adapt(config: DecoderConfig, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return respelled(without_spares(config, weights), _NAMES, trunk="transformer.")


FAMILY = Family(
    parse=parse, layout=layout, build=build, adapt=adapt, checkpoint=always(Checkpoint(spare=_SPARE))
)
