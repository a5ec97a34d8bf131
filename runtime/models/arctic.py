"""Snowflake Arctic: in every layer an MLP behind attention and, beside both, a mixture of what entered the
layer; or, without `parallel_attn_mlp_res`, Mixtral's layers.

Source: the authors' modeling_arctic.py; llama.cpp's arctic.cpp.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import AttentionCache
from runtime.config.decoder import layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.feed_forward.moe import SoftmaxMoE
from runtime.nn.layer import FeedForward, Layer
from runtime.nn.norm import Norm
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import PreNorm
from runtime.nn.residual.sublayer import added
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, numbered_names, to_switch
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, layer_ropes, rms_norms
from runtime.trunks.mixture import MixtureConfig, MixtureSpec


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    sparse: tuple[bool, ...]
    """Of each layer: it has a mixture."""
    beside: bool
    """Mixtures stand beside attention and an MLP of the stream's width."""
    bias: bool


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("arctic",))
    if fields.has("sliding_window"):
        fields.refuse("sliding_window", "null: no layer has a window")
    beside = fields.flag("parallel_attn_mlp_res")
    if fields.flag("use_residual", beside) != beside:
        fields.refuse("use_residual", f"{str(beside).lower()}, as parallel_attn_mlp_res is")
    shape = read_shape(
        fields,
        eps=1e-5,
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=14336,
        num_attention_heads=32,
        max_position_embeddings=4096,
    )
    layers, every = layer_count(fields, 32), fields.count("moe_layer_frequency", 2)
    experts = fields.count("num_local_experts", 8, high=1 << 16)
    chosen = fields.count("num_experts_per_tok", 1, high=experts)
    if chosen == 1:
        fields.refuse("num_experts_per_tok", "two or more: programs weigh a single one otherwise")
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape, theta=1e6),) * layers,
        mixture=MixtureSpec(experts=experts, chosen=chosen, inner=shape["intermediate_size"]),
        sparse=tuple((place + 1) % every == 0 for place in range(layers)),
        beside=beside,
        bias=fields.flag("attention_bias"),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class Beside(PreNorm):
    """A mixture of what enters, behind attention and its MLP. post_attention_layernorm is the mixture's."""

    def __init__(self, attention: SelfAttention, mixture: FeedForward, mlp: GatedMLP, norm: Norm) -> None:
        super().__init__(attention, mixture, norm)
        self.residual_mlp, self.residual_layernorm = mlp, norm()

    def __call__(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        heard = added(x, self.self_attn, step, cache, norm=self.input_layernorm)
        fed = added(heard, self.residual_mlp, step, norm=self.residual_layernorm)
        return fed + self.mlp(self.post_attention_layernorm(x), step)


def build(config: Config) -> CausalLM:
    layers = [_layer(config, *each) for each in zip(layer_ropes(config), config.sparse, strict=True)]
    return CausalLM(config, layers, rms_norms(config)())


def _layer(config: Config, rope: Rope | None, sparse: bool) -> Layer:
    norm = rms_norms(config)
    attention = SelfAttention(config, rope, qkv_bias=config.bias, output_bias=config.bias)
    if not sparse:
        return PreNorm(attention, gated_mlp(config), norm)
    hidden, spec = config.hidden_size, config.mixture
    mixture = SoftmaxMoE(
        hidden, spec.inner, spec.experts, spec.chosen, normalize=True, activation=config.activation
    )
    if not config.beside:
        return PreNorm(attention, mixture, norm)
    return Beside(attention, mixture, gated_mlp(config, inner=hidden), norm)


def adapt(config: Config, weights: Weights) -> Weights:
    named = respelled(numbered_names(without_spares(config, weights)), ((".mlp.mlp.", ".mlp."),))
    return to_switch(named, config.mixture.experts)


_EXPERT = (("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj"))
FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(matrices=_EXPERT, singles=True)),
)
