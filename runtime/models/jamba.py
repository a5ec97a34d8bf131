"""Jamba: Mamba layers, an attention layer without positions in every few, and routed experts in every second.

Router probabilities are taken over all experts and left as they are; mlx-lm takes them over the chosen ones.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, LayerSpec
from runtime.cache.protocol import StepCache
from runtime.config.decoder import DecoderConfig, layer_count, read_shape
from runtime.config.fields import Fields
from runtime.config.mamba import read_mamba1
from runtime.models.family import RATES, Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.feed_forward.experts import Experts
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.feed_forward.router import choose
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize, RMSNorm
from runtime.nn.recurrent.conv import with_filters
from runtime.nn.recurrent.mamba1 import Mamba1, Mamba1Spec
from runtime.nn.residual.block import Block as Sublayers
from runtime.nn.residual.block import NormedSublayer
from runtime.nn.residual.sublayer import added, mixture_parts
from runtime.parts.feed_forward import MixtureParts, Routing
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    mixer: Mamba1Spec
    recurrent: tuple[bool, ...]
    """Of each layer: it is a Mamba layer; else attention."""
    sparse: tuple[bool, ...]
    """Of each layer: its feed-forward is a mixture."""
    experts: int
    """Of a sparse layer."""
    chosen: int
    """Experts per token."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    layers = layer_count(fields)
    shape = read_shape(fields, max_position_embeddings=262144, num_key_value_heads=8)
    experts = fields.count("num_experts", fields.count("num_local_experts", 16, high=1 << 16), high=1 << 16)
    period = fields.count("attn_layer_period", 8)
    offset = fields.count("attn_layer_offset", 4, low=0, high=period - 1)
    routed = fields.count("expert_layer_period", 2)
    first = fields.count("expert_layer_offset", 1, low=0, high=routed - 1)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(None,) * layers,
        mixer=replace(read_mamba1(fields, shape["hidden_size"], shape["norm_eps"]), norms="weighted"),
        recurrent=tuple(i % period != offset for i in range(layers)),
        sparse=tuple(experts > 1 and i % routed == first for i in range(layers)),
        experts=experts,
        chosen=fields.count("num_experts_per_tok", 2, high=experts),
    )


def layout(config: Config) -> list[LayerSpec]:
    full = Full(config.kv_heads, config.head_dim)
    return [config.mixer.memory if recurrent else full for recurrent in config.recurrent]


class SparseMLP(Module):
    adds: ClassVar[tuple[str, ...]] = ("switch_mlp",)

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.router = nn.Linear(hidden, config.experts, bias=False)
        self.switch_mlp = Experts(hidden, inner, config.experts, activation=config.activation)
        self._routing = Routing("softmax", config.chosen)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        return self.switch_mlp(x, choose(self._routing, linear(self.router, x, step)), step)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> MixtureParts | None:
        """See `sublayer.added`."""
        return mixture_parts(norm, self.router, self._routing, self.switch_mlp, after)


class Block(Sublayers):
    def __init__(self, config: Config, *, recurrent: bool, sparse: bool) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.norm_eps
        if recurrent:
            self.mamba = Mamba1(config.mixer)
        else:
            self.self_attn = SelfAttention(config, None)
        if sparse:
            self.feed_forward = SparseMLP(config)
        else:
            self.feed_forward = GatedMLP(hidden, config.intermediate_size, activation=config.activation)
        self.input_layernorm = RMSNorm(hidden, eps=eps)
        self.pre_ff_layernorm = RMSNorm(hidden, eps=eps)
        self._recurrent = recurrent

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        x = added(x, self._mixer, step, cache, norm=self.input_layernorm)
        return added(x, self.feed_forward, step, norm=self.pre_ff_layernorm)

    def sublayers(self) -> tuple[NormedSublayer, NormedSublayer]:
        return (self._mixer, self.input_layernorm, None), (self.feed_forward, self.pre_ff_layernorm, None)

    @property
    def _mixer(self) -> Mamba1 | SelfAttention:
        return self.mamba if self._recurrent else self.self_attn


def build(config: Config) -> CausalLM:
    kinds = zip(config.recurrent, config.sparse, strict=True)
    layers = [Block(config, recurrent=recurrent, sparse=sparse) for recurrent, sparse in kinds]
    return CausalLM(config, layers, RMSNorm(config.hidden_size, eps=config.norm_eps))


def adapt(config: Config, weights: Weights) -> Weights:
    """Filters to MLX's axis order; the last norm under the name that others have for it; experts stacked."""
    adapted: Weights = {}
    for name, array in without_spares(config, weights).items():
        name = name.replace("model.final_layernorm.", "model.norm.")
        adapted[name] = array
    return to_switch(with_filters(adapted), config.experts)


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt, wide=RATES)
