"""Bamba: Mamba-2 layers with an attention layer here and there, each followed by a feed-forward block."""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import Full, LayerSpec
from runtime.cache.protocol import StepCache
from runtime.config.decoder import DecoderConfig, layer_count, listed_layers, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.config.mamba import read_mamba2, recurrent_layers, settled
from runtime.models.family import RATES, Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.layer import Mixer
from runtime.nn.norm import RMSNorm
from runtime.nn.positions.rope import Rope
from runtime.nn.recurrent.conv import with_filters
from runtime.nn.recurrent.mamba2 import Mamba2, Mamba2Spec
from runtime.nn.residual.block import Block as Sublayers
from runtime.nn.residual.block import NormedSublayer
from runtime.nn.residual.sublayer import added
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.experts import Weights
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, layer_ropes


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    attention_bias: bool
    mlp_bias: bool
    recurrent: tuple[bool, ...]
    mixer: Mamba2Spec


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    layers = layer_count(fields)
    shape = read_shape(fields, eps=1e-5, max_position_embeddings=262144, num_key_value_heads=8)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape, partial=0.5),) * layers,
        attention_bias=fields.flag("attention_bias"),
        mlp_bias=fields.flag("mlp_bias"),
        recurrent=recurrent_layers(fields, layers) or _recurrent(fields, layers),
        mixer=read_mamba2(fields, shape["hidden_size"], shape["norm_eps"]),
    )


def _recurrent(fields: Fields, layers: int) -> tuple[bool, ...]:
    attention = listed_layers(fields, "attn_layer_indices", layers) or (False,) * layers
    return settled(fields, (not attends for attends in attention))


def layout(config: Config) -> list[LayerSpec]:
    full = Full(config.kv_heads, config.head_dim)
    return [config.mixer.memory if recurrent else full for recurrent in config.recurrent]


class Block(Sublayers):
    def __init__(self, config: Config, rope: Rope | None, *, recurrent: bool) -> None:
        super().__init__()
        hidden, eps, bias = config.hidden_size, config.norm_eps, config.attention_bias
        if recurrent:
            self.mamba = Mamba2(config.mixer)
        else:
            self.self_attn = SelfAttention(config, rope, qkv_bias=bias, output_bias=bias)
        self.feed_forward = GatedMLP(
            hidden, config.intermediate_size, activation=config.activation, bias=config.mlp_bias
        )
        self.input_layernorm = RMSNorm(hidden, eps=eps)
        self.pre_ff_layernorm = RMSNorm(hidden, eps=eps)
        self._recurrent = recurrent

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        x = added(x, self._mixer, step, cache, norm=self.input_layernorm)
        return added(x, self.feed_forward, step, norm=self.pre_ff_layernorm)

    def sublayers(self) -> tuple[NormedSublayer, ...]:
        return (self._mixer, self.input_layernorm, None), (self.feed_forward, self.pre_ff_layernorm, None)

    @property
    def _mixer(self) -> Mixer:
        return self.mamba if self._recurrent else self.self_attn


def build(config: Config) -> CausalLM:
    kinds = zip(layer_ropes(config), config.recurrent, strict=True)
    layers = [Block(config, rope, recurrent=recurrent) for rope, recurrent in kinds]
    return CausalLM(config, layers, RMSNorm(config.hidden_size, eps=config.norm_eps))


def adapt(config: Config, weights: Weights) -> Weights:
    """Filters to MLX's axis order; the last norm under the name that others have for it."""
    adapted: Weights = {}
    for name, array in without_spares(config, weights).items():
        name = name.replace("model.final_layernorm.", "model.norm.")
        adapted[name] = array
    return with_filters(adapted)


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt, wide=RATES)
