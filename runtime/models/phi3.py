"""Phi-3, Phi-3.5 and Phi-4: a Llama whose q, k, v are one matrix, and gate and up
another.

Long-context members rotate by LongRoPE (two sets of factors, see `runtime.nn.positions.rope_spec`);
Phi-4-mini rotates part of each head. All layers share one window or none does. Phi-4-multimodal has, beside
it, towers and two adapters for what these see and hear; text passes neither.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, read_shape
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models.family import Family
from runtime.nn.attention.fused_attention import FusedAttention
from runtime.nn.feed_forward.mlp import FusedGatedMLP
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.nn.residual.block import PreNorm
from runtime.quoting import quoted
from runtime.tensors.checkpoint import Checkpoint
from runtime.tensors.names import without_spares
from runtime.tensors.towers import Towers
from runtime.trunks.decoder import CausalLM, attention_layout, layer_ropes, rms_norms

Config = DecoderConfig


_MULTIMODAL = {
    "vocab_size": 200064,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
}
"""What Phi-4-multimodal's class takes where a file says nothing."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields({**_MULTIMODAL, **raw} if _is_multimodal(raw) else raw)
    shape = read_shape(fields, eps=1e-5, max_position_embeddings=4096)
    layers = layer_count(fields)
    window = fields.count("sliding_window") if fields.has("sliding_window") else None
    return Config(**shape, windows=(window,) * layers, ropes=(_rope(fields, shape),) * layers)


def _is_multimodal(raw: Mapping[str, Any]) -> bool:
    return raw.get("model_type") in ("phi4_multimodal", "phi4mm")


def _rope(fields: Fields, shape: dict[str, Any]) -> RopeSpec:
    parameters = fields.rope_parameters()
    kind = parameters.get("rope_type", "default")
    if kind not in ("default", "longrope", "su", "yarn"):
        raise UnsupportedModel(f"config.json: rope type {quoted(kind)} is not one that Phi-3 has")
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


_WRAPPED = ".base_layer."
_MATRICES = "qkv_proj", "o_proj", "gate_up_proj", "down_proj"
_PAIRS = tuple(f".lora_{end}.{kind}.weight" for end in "AB" for kind in ("speech", "vision"))


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return {name.replace(_WRAPPED, "."): array for name, array in without_spares(config, weights).items()}


def _checkpoint(config: Mapping[str, Any]) -> Checkpoint:
    if not _is_multimodal(config):
        return Checkpoint(spare=_PAIRS)
    towers = Towers(images=("embed_tokens_extend.",))
    renamed = tuple((f".{matrix}{_WRAPPED}", f".{matrix}.") for matrix in _MATRICES)
    return Checkpoint(
        renamed=renamed, modules=((_WRAPPED, "."),), spare=_PAIRS, towers=towers, default_layers=32
    )


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt, checkpoint=_checkpoint)
