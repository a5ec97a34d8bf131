"""AFMoE (Arcee's Trinity): gated attention, norms around both sublayers, experts by DeepSeek-V3's way.

Queries and keys are normed by head; a sigmoid gate multiplies what the heads have read. Layers slide and
turn; every fourth sees all, and leaves positions out. The first layers have plain MLPs.
"""

from collections.abc import Mapping
from typing import Any

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import layer_count, one_rope, read_shape, read_windows
from runtime.config.fields import Fields
from runtime.models.family import CORRECTIONS, Family
from runtime.nn.activation import sigmoid
from runtime.nn.attention.gated_attention import OpenedAttention
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import Sandwich
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, head_norms, layer_ropes, rms_norms
from runtime.trunks.mixture import MixtureConfig, MixtureSpec, feed_forward


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    bias: bool
    """Projections of attention have one; its gate has none."""
    dense: int
    """So many first layers have plain MLPs."""
    embed_scale: float | None
    """Embeddings are multiplied by it; None: they are not."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("afmoe",))
    shape = read_shape(fields, eps=1e-5, head_dim=128, max_position_embeddings=16384)
    layers = layer_count(fields)
    every, window = fields.count("global_attn_every_n_layers", 4), fields.count("sliding_window", 1024)
    windows = read_windows(fields, layers, full_every=every, window=window)
    rope = one_rope(fields, shape)
    return Config(
        **shape,
        windows=windows,
        ropes=tuple(None if window is None else rope for window in windows),
        bias=fields.flag("attention_bias"),
        dense=fields.count("num_dense_layers", 1, low=0),
        mixture=_mixture(fields),
        embed_scale=shape["hidden_size"] ** 0.5 if fields.flag("mup_enabled") else None,
    )


def _mixture(fields: Fields) -> MixtureSpec:
    """transformers looks at no other way to choose than this one, which all published files name."""
    fields.choice("score_func", ("sigmoid",), "sigmoid")
    if not fields.flag("route_norm", True):
        fields.refuse("route_norm", "true")
    for name in ("n_group", "topk_group", "num_expert_groups", "num_limited_groups"):
        fields.count(name, 1, high=1)
    inner = fields.count("moe_intermediate_size", 1408, high=1 << 22)
    experts = fields.count("num_experts", 64, high=1 << 16)
    return MixtureSpec(
        experts=experts,
        chosen=fields.count("num_experts_per_tok", 6, high=experts),
        inner=inner,
        shared=inner * fields.count("num_shared_experts", 2, high=256),
        scale=fields.number("route_scale", 1.0),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


def build(config: Config) -> CausalLM:
    norm, gates = rms_norms(config), config.heads * config.head_dim

    def attention(rope: Rope | None) -> OpenedAttention:
        return OpenedAttention(
            config, rope, head_norms(config), gates, sigmoid, called="gate_proj", bias=config.bias
        )

    layers = [
        Sandwich(
            attention(rope),
            feed_forward(config, sparse=i >= config.dense),
            norm,
        )
        for i, rope in enumerate(layer_ropes(config))
    ]
    return CausalLM(config, layers, norm(), embed_scale=config.embed_scale)


_NAMES = (
    (".pre_mlp_layernorm.", ".pre_feedforward_layernorm."),
    (".post_mlp_layernorm.", ".post_feedforward_layernorm."),
    (".mlp.router.gate.", ".mlp.gate."),
    (".mlp.expert_bias", ".mlp.gate.e_score_correction_bias"),
)


def adapt(config: Config, weights: Weights) -> Weights:
    kept = without_spares(config, weights)
    return to_switch(respelled(kept, _NAMES), config.mixture.experts)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=CORRECTIONS,
    checkpoint=always(Checkpoint(experts="experts")),
)
