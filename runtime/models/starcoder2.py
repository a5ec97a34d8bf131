"""StarCoder2: LayerNorms and biases everywhere, an MLP without gate, one window for all layers."""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.cpu.stated import Feeds
from runtime.models.config import Fields
from runtime.models.decoder import CausalLM, attention_layout, layer_norms, layer_ropes
from runtime.models.decoder_config import DecoderConfig, layer_count, one_rope, read_shape
from runtime.models.family import Family
from runtime.models.tensor_names import without_spares
from runtime.nn.block import PreNorm
from runtime.nn.linear import linear
from runtime.nn.mlp import ACTIVATIONS
from runtime.nn.module import Module
from runtime.nn.norm import Normalize
from runtime.nn.self_attention import SelfAttention
from runtime.nn.sublayer import feeds
from runtime.records import dataclass
from runtime.step import Step


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("norm_type", ("layer_norm",), "layer_norm")
    fields.choice("mlp_type", ("default",), "default")
    shape = read_shape(
        fields,
        eps_field="norm_epsilon",
        eps=1e-5,
        activation="gelu_pytorch_tanh",
        tied=True,
        num_key_value_heads=2,
        max_position_embeddings=4096,
    )
    layers = layer_count(fields)
    window = fields.count("sliding_window") if fields.has("sliding_window") else None
    return Config(
        **shape,
        windows=(window,) * layers,
        ropes=(one_rope(fields, shape),) * layers,
        bias=fields.flag("use_bias", True),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class MLP(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.bias)
        self.c_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.bias)
        self._activation = ACTIVATIONS[config.activation]

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        return linear(self.c_proj, self._activation(linear(self.c_fc, x, step)), step)

    def states(self, norm: Normalize | None, after: Normalize | None) -> Feeds | None:
        """See `sublayer.added`."""
        return feeds(norm, (self.c_fc,), self._activation, self.c_proj, after)


def build(config: Config) -> CausalLM:
    norm = layer_norms(config)
    layers = [
        PreNorm(SelfAttention(config, rope, qkv_bias=config.bias, output_bias=config.bias), MLP(config), norm)
        for rope in layer_ropes(config)
    ]
    return CausalLM(config, layers, norm())


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=without_spares)
