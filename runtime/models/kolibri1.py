"""Kolibri 1: norms around both sublayers, positions in sliding layers alone, and a mixture in every layer.

Experts are chosen by their scores with a stored correction; a sigmoid of the score alone is the gate.

Source: transformers modeling_kolibri1.py.
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape, read_windows
from runtime.config.fields import Fields
from runtime.models.family import CORRECTIONS, Family
from runtime.nn.attention.self_attention import HeadNormAttention
from runtime.nn.feed_forward.moe import SharedMoE
from runtime.nn.feed_forward.router import RuledRouter
from runtime.nn.residual.block import Sandwich
from runtime.parts.feed_forward import Routing
from runtime.records import dataclass
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, head_norms, layer_ropes, rms_norms


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    experts: int
    chosen: int
    """Experts per token."""
    shared: int
    """Width of the expert that always answers; `intermediate_size` is that of the others."""
    normalize: bool
    """The gates of the chosen are divided by their sum."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("kolibri1",))
    own = {**fields.raw, "intermediate_size": fields.count("moe_intermediate_size", 512, high=1 << 22)}
    shape = read_shape(
        Fields(own),
        vocab_size=128000,
        hidden_size=2560,
        num_attention_heads=48,
        num_key_value_heads=4,
        head_dim=128,
        max_position_embeddings=262144,
    )
    layers, rope = layer_count(fields, 50), one_rope(fields, shape)
    if fields.raw.get("sliding_window", 513) is None:
        fields.refuse("sliding_window", "a number, as its class asks for")
    windows = read_windows(fields, layers, full_every=5, window=fields.count("sliding_window", 513))
    experts = fields.count("num_experts", 384, high=1 << 16)
    return Config(
        **shape,
        windows=windows,
        ropes=tuple(None if window is None else rope for window in windows),
        experts=experts,
        chosen=fields.count("num_experts_per_tok", 6, high=experts),
        shared=fields.count("shared_expert_intermediate_size", 512, high=1 << 22),
        normalize=fields.flag("norm_topk_prob"),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def _mixture(config: Config) -> SharedMoE:
    hidden, routing = config.hidden_size, Routing("late", config.chosen, normalize=config.normalize)
    router = RuledRouter(hidden, config.experts, routing, corrected=True)
    sizes = hidden, config.intermediate_size, config.experts
    return SharedMoE(*sizes, router, shared=config.shared, activation=config.activation)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    layers = [
        Sandwich(HeadNormAttention(config, rope, head_norms(config)), _mixture(config), norm)
        for rope in layer_ropes(config)
    ]
    return CausalLM(config, layers, norm())


_NAMES = (
    (".post_attention_layernorm.", ".pre_feedforward_layernorm."),
    (".post_self_attn_layernorm.", ".post_attention_layernorm."),
    (".post_attn_norm.", ".post_attention_layernorm."),
    (".post_mlp_layernorm.", ".post_feedforward_layernorm."),
    (".post_ffn_norm.", ".post_feedforward_layernorm."),
    (".moe.router.expert_bias", ".mlp.gate.e_score_correction_bias"),
)


def adapt(config: Config, weights: Weights) -> Weights:
    return to_switch(respelled(without_spares(config, weights), _NAMES), config.experts)


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt, wide=CORRECTIONS)
