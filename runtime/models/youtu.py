"""Youtu-LLM: DeepSeek's latent attention over plain gated MLPs."""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, read_shape
from runtime.config.fields import Fields
from runtime.config.latent import read_latent
from runtime.models.family import Family
from runtime.nn.attention.mla import LatentAttention, LatentShape
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.latent_heads import split_latent_heads
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, gated_mlp, rms_norms


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    latent: LatentShape
    rope: RopeSpec
    """Of the part of queries and keys that is rotated."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("youtu", "youtu_llm"))
    shape = read_shape(fields, tied=True, max_position_embeddings=131072)
    layers = layer_count(fields)
    fields.only({"mlp_bias": False})
    latent, rope = read_latent(fields, shape)
    return Config(**shape, windows=(None,) * layers, ropes=(rope,) * layers, latent=latent, rope=rope)


def layout(config: Config) -> list[LayerSpec]:
    return [config.latent.memory] * config.layers


def build(config: Config) -> CausalLM:
    norm, rope = rms_norms(config), Rope(config.rope)
    layers = [
        PreNorm(LatentAttention(config.latent, rope), gated_mlp(config), norm) for _ in range(config.layers)
    ]
    return CausalLM(config, layers, norm())


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return split_latent_heads(without_spares(config, weights), config.latent)


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
