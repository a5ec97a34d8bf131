"""Phi-3, Phi-3.5 and Phi-4 (the text-only ones): a Llama whose q, k, v are one matrix, and gate and up
another.

Long-context members rotate by LongRoPE (two sets of factors, see `runtime.nn.rope_spec`); Phi-4-mini rotates
part of each head. All layers share one window or none does.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.errors import UnsupportedModel, shown
from runtime.models.config import Fields
from runtime.models.decoder import CausalLM, attention_layout, layer_ropes, rms_norms
from runtime.models.decoder_config import DecoderConfig, layer_count, read_shape
from runtime.models.family import Family
from runtime.models.tensor_names import without_spares
from runtime.nn.block import PreNorm
from runtime.nn.mlp import FusedGatedMLP
from runtime.nn.rope_spec import RopeSpec, read_rope
from runtime.nn.self_attention import FusedAttention

Config = DecoderConfig


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(fields, eps=1e-5, max_position_embeddings=4096)
    layers = layer_count(fields)
    window = fields.count("sliding_window") if fields.has("sliding_window") else None
    return Config(**shape, windows=(window,) * layers, ropes=(_rope(fields, shape),) * layers)


def _rope(fields: Fields, shape: dict[str, Any]) -> RopeSpec:
    parameters = fields.rope_parameters()
    kind = parameters.get("rope_type", "default")
    if kind not in ("default", "longrope", "su", "yarn"):
        raise UnsupportedModel(f"config.json: rope type {shown(kind)} is not one that Phi-3 has")
    if kind == "yarn":  # what the first files called it
        parameters["rope_type"] = "longrope"
    if parameters["rope_type"] != "default":  # beside the block it counts for more, also by its default
        trained = fields.count("original_max_position_embeddings", 4096, low=2)
        parameters["original_max_position_embeddings"] = trained
    return read_rope(parameters, head_dim=shape["head_dim"], max_positions=shape["context_length"])


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    layers = [PreNorm(FusedAttention(config, rope), _mlp(config), norm) for rope in layer_ropes(config)]
    return CausalLM(config, layers, norm())


def _mlp(config: Config) -> FusedGatedMLP:
    return FusedGatedMLP(config.hidden_size, config.intermediate_size, activation=config.activation)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return without_spares(config, weights)


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
