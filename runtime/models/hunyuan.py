"""Hunyuan V1, dense or with experts: a Llama that norms each query and key head after it is rotated.

Its "dynamic" rotation with an `alpha` is a fixed larger base, whatever the length (NTK-aware scaling).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, read_shape
from runtime.config.fields import Fields, whole_heads
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.feed_forward.moe import SharedMoE
from runtime.nn.feed_forward.router import RuledRouter
from runtime.nn.norm import Normalize, RMSNorm
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.nn.residual.block import PreNorm
from runtime.parts.feed_forward import Routing
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, layer_ropes, rms_norms


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    experts: int
    """0: its MLPs are dense."""
    chosen: tuple[int, ...]
    """Of each layer: experts asked per token, beside one that always answers."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    sparse = fields.choice("model_type", ("hunyuan_v1_dense", "hunyuan_v1_moe")) == "hunyuan_v1_moe"
    fields.only({"use_qk_norm": True})
    shape = read_shape(fields, eps=1e-5)
    layers = layer_count(fields)
    experts = fields.count("num_experts", 1, high=1 << 16) if sparse else 0
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(read_rotation(fields, shape),) * layers,
        bias=fields.flag("attention_bias"),
        experts=experts,
        chosen=_chosen(fields, layers, experts) if sparse else (),
    )


def _chosen(fields: Fields, layers: int, experts: int) -> tuple[int, ...]:
    """One number for all layers, or one for each."""
    given = fields.raw.get("moe_topk")
    if not isinstance(given, list):
        return (fields.count("moe_topk", 1, high=experts),) * layers
    if len(given) != layers or any(type(k) is not int or not 1 <= k <= experts for k in given):
        fields.refuse("moe_topk", f"a number from 1 to {experts}, or a list of {layers} of them")
    return tuple(given)


def read_rotation(fields: Fields, shape: dict[str, Any], *, always: bool = False) -> RopeSpec:
    """always: is a rotation without an alpha one that nobody computes?"""
    parameters = whole_heads(fields.rope_parameters())
    dims = shape["head_dim"]
    alpha = parameters.get("alpha")
    if always and (parameters.get("rope_type") != "dynamic" or not alpha):
        fields.refuse("rope_scaling", "one of type dynamic with an alpha")
    if parameters.get("rope_type") == "dynamic" and isinstance(alpha, int | float) and alpha > 0 and dims > 2:
        theta = float(parameters["rope_theta"]) * alpha ** (dims / (dims - 2))
        parameters = {"rope_type": "default", "rope_theta": theta}
    return read_rope(parameters, head_dim=dims, max_positions=shape["context_length"])


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class Attention(SelfAttention):
    def __init__(self, config: DecoderConfig, rope: Rope | None, *, bias: bool) -> None:
        super().__init__(config, rope, qkv_bias=bias, output_bias=bias)
        self.query_layernorm = RMSNorm(config.head_dim, eps=config.norm_eps)
        self.key_layernorm = RMSNorm(config.head_dim, eps=config.norm_eps)
        self._attends = replace(self._attends, normed_turned=True)

    def place(self, queries: mx.array, keys: mx.array, step: Step) -> tuple[mx.array, mx.array]:
        queries, keys = super().place(queries, keys, step)
        return self.query_layernorm(queries), self.key_layernorm(keys)

    def head_norms(self) -> tuple[Normalize, Normalize]:
        return self.query_layernorm, self.key_layernorm


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    mlps = [_mixture(config, k) for k in config.chosen] or [gated_mlp(config) for _ in config.ropes]
    layers = [
        PreNorm(Attention(config, rope, bias=config.bias), mlp, norm)
        for rope, mlp in zip(layer_ropes(config), mlps, strict=True)
    ]
    return CausalLM(config, layers, norm())


def _mixture(config: Config, chosen: int) -> SharedMoE:
    hidden, inner = config.hidden_size, config.intermediate_size
    router = RuledRouter(hidden, config.experts, Routing("softmax", chosen, normalize=True))
    return SharedMoE(hidden, inner, config.experts, router, shared=inner, activation=config.activation)


def adapt(config: Config, weights: Weights) -> Weights:
    own = without_spares(config, weights)
    if not config.experts:
        return own
    named = {
        name.replace(".mlp.gate.wg.", ".mlp.gate.").replace(".mlp.shared_mlp.", ".mlp.shared_experts."): array
        for name, array in own.items()
    }
    return to_switch(named, config.experts)


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
