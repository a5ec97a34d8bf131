"""Flint: a Qwen3-MoE whose layers mostly slide, with sinks, and positions in those alone.

Gates are sigmoids by themselves, of a router that is computed in float32; one expert always answers.

Source: transformers modeling_flint.py.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import layer_count, listed_layers, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import HeadNormAttention
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, head_norms, layer_ropes, rms_norms
from runtime.trunks.mixture import MixtureConfig, MixtureSpec, feed_forward, sigmoid_mixture


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    bias: bool
    sparse: tuple[bool, ...]
    """Of each layer: its feed-forward is a mixture."""


_KINDS = "full_attention", "sliding_attention"


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("flint",))
    shape = read_shape(
        fields,
        vocab_size=150144,
        hidden_size=2048,
        intermediate_size=6144,
        num_attention_heads=32,
        num_key_value_heads=4,
        head_dim=128,
        max_position_embeddings=262144,
    )
    layers, rope = layer_count(fields, 49), one_rope(fields, shape)
    windows = _windows(fields, layers)
    experts = fields.count("num_experts", 256, high=1 << 16)
    return Config(
        **shape,
        windows=windows,
        ropes=tuple(None if window is None else rope for window in windows),
        bias=fields.flag("attention_bias"),
        sparse=_sparse(fields, layers),
        mixture=MixtureSpec(
            experts=experts,
            chosen=fields.count("num_experts_per_tok", 6, high=experts),
            inner=fields.count("moe_intermediate_size", 512, high=1 << 22),
            shared=fields.count("shared_expert_intermediate_size", 1024, high=1 << 22),
            normalize=fields.flag("norm_topk_prob", True),
        ),
    )


def _windows(fields: Fields, layers: int) -> tuple[int | None, ...]:
    """Without a list the first two layers see all, every fourth behind them, and the last."""
    window, kinds = fields.count("sliding_window", 513), fields.words("layer_types", layers, _KINDS)
    if kinds is None:
        seeing_all = (i < 2 or i % 4 == 1 or i == layers - 1 for i in range(layers))
        full = fields.settle("layer_types", _KINDS, seeing_all)
    else:
        full = tuple(kind == _KINDS[0] for kind in kinds)
    return tuple(None if one else window for one in full)


def _sparse(fields: Fields, layers: int) -> tuple[bool, ...]:
    dense = listed_layers(fields, "mlp_only_layers", layers) or tuple(i < 2 for i in range(layers))
    every = fields.count("decoder_sparse_step", 1)
    return tuple(not dense[i] and (i + 1) % every == 0 for i in range(layers))


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class Attention(HeadNormAttention):
    def __init__(self, config: Config, rope: Rope | None) -> None:
        super().__init__(config, rope, head_norms(config), qkv_bias=config.bias, output_bias=config.bias)
        self.sinks = mx.zeros((config.heads,))


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    layers = [
        PreNorm(Attention(config, rope), feed_forward(config, sparse=sparse, mixture=sigmoid_mixture), norm)
        for rope, sparse in zip(layer_ropes(config), config.sparse, strict=True)
    ]
    return CausalLM(config, layers, norm())


_NAMES = ((".mlp.shared_expert.", ".mlp.shared_experts."), (".softmax_offset", ".sinks"))


def adapt(config: Config, weights: Weights) -> Weights:
    return to_switch(respelled(without_spares(config, weights), _NAMES), config.mixture.experts)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    # Stored in float32: scores differ by less than a 16-bit float can tell.
    wide=(".mlp.gate.weight", ".sinks"),
)
