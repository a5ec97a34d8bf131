"""Lara Mini: gated delta nets, attention that slides and turns, attention that sees all and does neither; a
mixture in every layer, with one expert that always answers.

Released files join what opens a delta net in one matrix (queries, keys, values, gate, strength, decay), which
is cut here, and call its norm otherwise.

Source: transformers modeling_lara_mini.py.
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import RATES, Family
from runtime.nn.attention.self_attention import HeadNormAttention
from runtime.nn.recurrent.conv import with_filters
from runtime.nn.recurrent.delta_net import DeltaSpec, GatedDeltaNet
from runtime.nn.residual.block import PreNorm, PreNormRecurrent
from runtime.records import dataclass
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.joined_rows import parted_rows
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, head_norms, layer_ropes, rms_norms
from runtime.trunks.mixture import MixtureConfig, MixtureSpec, softmax_mixture


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    bias: bool
    """On attention's projections."""
    recurrent: tuple[bool, ...]
    delta: DeltaSpec


_KINDS = "linear_attention", "sliding_attention", "full_attention"
_PATTERN = tuple(_KINDS[i] for i in (0, 1, 0, 2, 1))
"""Of released files, again and again."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("lara_mini",))
    fields.choice("hidden_act", ("silu",), "silu")  # delta nets bend by it, too
    # No layer has an MLP of this size; files may say one all the same.
    shape = read_shape(
        fields,
        tied=True,
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=1,
        num_attention_heads=16,
        num_key_value_heads=4,
        head_dim=128,
        max_position_embeddings=131072,
    )
    layers, rope = layer_count(fields, 34), one_rope(fields, shape)
    kinds = fields.words("layer_types", layers, _KINDS)
    if kinds is None:
        kinds = fields.take("layer_types", tuple(_PATTERN[i % len(_PATTERN)] for i in range(layers)))
    window = fields.count("sliding_window", 512)
    return Config(
        **shape,
        windows=tuple(window if kind == _KINDS[1] else None for kind in kinds),
        ropes=tuple(rope if kind == _KINDS[1] else None for kind in kinds),
        bias=fields.flag("attention_bias"),
        recurrent=tuple(kind == _KINDS[0] for kind in kinds),
        delta=_delta(fields, shape),
        mixture=_mixture(fields),
    )


def _delta(fields: Fields, shape: Mapping[str, Any]) -> DeltaSpec:
    return DeltaSpec(
        key_heads=fields.count("linear_num_key_heads", 8, high=4096),
        value_heads=fields.count("linear_num_value_heads", 16, high=4096),
        key_dim=fields.count("linear_key_head_dim", 128, high=4096),
        value_dim=fields.count("linear_value_head_dim", 128, high=1 << 14),
        taps=fields.count("linear_conv_kernel_dim", 4, low=2, high=64),
        eps=shape["norm_eps"],
    )


def _mixture(fields: Fields) -> MixtureSpec:
    experts = fields.count("num_experts", 128, high=1 << 16)
    return MixtureSpec(
        experts,
        fields.count("num_experts_per_tok", 4, high=experts),
        fields.count("moe_intermediate_size", 512, high=1 << 22),
        shared=fields.count("shared_expert_intermediate_size", 512, high=1 << 22),
        normalize=fields.flag("norm_topk_prob", True),
    )


def layout(config: Config) -> list[LayerSpec]:
    attending = attention_layout(config)
    return [
        config.delta.memory if recurrent else spec
        for recurrent, spec in zip(config.recurrent, attending, strict=True)
    ]


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)

    def attending(rope: Any) -> PreNorm:
        bias = config.bias
        attention = HeadNormAttention(config, rope, head_norms(config), qkv_bias=bias, output_bias=bias)
        return PreNorm(attention, softmax_mixture(config), norm)

    def recurring() -> PreNormRecurrent:
        return PreNormRecurrent(
            GatedDeltaNet(config.hidden_size, config.delta), softmax_mixture(config), norm
        )

    layers = [
        recurring() if recurrent else attending(rope)
        for rope, recurrent in zip(layer_ropes(config), config.recurrent, strict=True)
    ]
    return CausalLM(config, layers, norm())


_NAMES = (
    (".mlp.shared_expert.", ".mlp.shared_experts."),
    (".linear_attn.out_norm.", ".linear_attn.norm."),
)
_PARTS = tuple(f".linear_attn.in_proj_{part}." for part in ("qkv", "z", "b", "a"))


def adapt(config: Config, weights: Weights) -> Weights:
    spec = config.delta
    rows = spec.channels, spec.values, spec.value_heads, spec.value_heads
    named = respelled(without_spares(config, weights), _NAMES)
    named = parted_rows(named, ".linear_attn.in_proj.", _PARTS, rows)
    return to_switch(with_filters(named), config.mixture.experts)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=(*RATES, ".mlp.gate.weight"),
)
