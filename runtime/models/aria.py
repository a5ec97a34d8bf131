"""Aria's text model: Llama's attention, and in every layer a mixture under a softmax over the chosen experts,
beside some that always answer.

Experts are stored input first. What always answers may have another activation, and biases.

Source: transformers modeling_aria.py.
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.feed_forward.moe import SharedMoE
from runtime.nn.feed_forward.router import RuledRouter
from runtime.nn.residual.block import PreNorm
from runtime.parts.feed_forward import Routing
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, output_first, to_switch
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_ropes, rms_norms


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    """`intermediate_size` is an expert's."""

    bias: bool
    """Of the attention's projections."""
    mlp_bias: bool
    """Of what always answers."""
    experts: int
    chosen: int
    """Per token."""
    shared: int
    """How many experts what always answers is as wide as."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("aria_text",))
    shape = read_shape(
        fields,
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=4096,
        num_attention_heads=32,
        max_position_embeddings=2048,
    )
    layers, experts = layer_count(fields, 32), fields.count("moe_num_experts", 8, high=1 << 16)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape),) * layers,
        bias=fields.flag("attention_bias"),
        mlp_bias=fields.flag("mlp_bias"),
        experts=experts,
        chosen=fields.count("moe_topk", 2, high=experts),
        shared=fields.count("moe_num_shared_experts", 2, high=64),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def _mixture(config: Config) -> SharedMoE:
    hidden, inner = config.hidden_size, config.intermediate_size
    router = RuledRouter(hidden, config.experts, Routing("best", config.chosen))
    made, width = SharedMoE(hidden, inner, config.experts, router, shared=0), inner * config.shared
    made.shared_experts = GatedMLP(hidden, width, activation=config.activation, bias=config.mlp_bias)
    return made


def build(config: Config) -> CausalLM:
    norm, bias = rms_norms(config), config.bias
    layers = [
        PreNorm(SelfAttention(config, rope, qkv_bias=bias, output_bias=bias), _mixture(config), norm)
        for rope in layer_ropes(config)
    ]
    return CausalLM(config, layers, norm())


STACKS = (".experts.fc1.weight", ".experts.gate_up_proj"), (".experts.fc2.weight", ".experts.down_proj")
_NAMES = (*STACKS, (".mlp.router.", ".mlp.gate."))


def adapt(config: Config, weights: Weights) -> Weights:
    named = respelled(without_spares(config, weights), _NAMES)
    return to_switch(output_first(named), config.experts)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(stacks=STACKS, default_layers=32)),
)
