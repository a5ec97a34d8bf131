"""Klear: Qwen3-MoE's attention, experts chosen by sigmoids with a stored correction, and a shared expert that
is mixed with theirs by two shares of each token, which sum to one.

Files say a `routed_scaling_factor` that no program applies, and neither does this one.

Source: mlx-lm's Klear.py, as the authors' class came with their checkpoints.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import layer_count, listed_layers, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import CORRECTIONS, Family
from runtime.nn.attention.self_attention import HeadNormAttention
from runtime.nn.feed_forward.experts import Experts
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.feed_forward.router import RuledRouter
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.operations import ops
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, head_norms, layer_ropes, rms_norms
from runtime.trunks.mixture import MixtureConfig, MixtureSpec


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    sparse: tuple[bool, ...]
    """Of each layer: its feed-forward is a mixture."""
    bias: bool


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("Klear",))
    fields.only({"use_sliding_window": False})
    shape, layers = (
        read_shape(fields, activations=("silu",), max_position_embeddings=65536),
        layer_count(fields),
    )
    dense = listed_layers(fields, "mlp_only_layers", layers) or (False,) * layers
    every, experts = fields.count("decoder_sparse_step", 1), fields.count("num_experts", high=1 << 16)
    size = fields.count("moe_intermediate_size", high=1 << 22)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape),) * layers,
        sparse=tuple(not dense[i] and (i + 1) % every == 0 for i in range(layers)),
        mixture=MixtureSpec(
            experts=experts,
            chosen=fields.count("num_experts_per_tok", high=experts),
            inner=size,
            shared=size * fields.count("n_shared_experts", high=64),
            normalize=fields.flag("norm_topk_prob"),
        ),
        bias=fields.flag("attention_bias"),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class MoE(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, spec = config.hidden_size, config.mixture
        self.gate = RuledRouter(hidden, spec.experts, spec.routing("sigmoid"), corrected=True)
        self.switch_mlp = Experts(hidden, spec.inner, spec.experts)
        self.shared_experts = GatedMLP(hidden, spec.shared)
        self.coefficient = nn.Linear(hidden, 2)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        asked, always = mx.split(ops.table.softmax(linear(self.coefficient, x, step)), 2, axis=-1)
        answer = self.switch_mlp(x, self.gate(x, step), step)
        return answer * asked + self.shared_experts(x, step) * always


def build(config: Config) -> CausalLM:
    norm, biases = rms_norms(config), {"qkv_bias": config.bias, "output_bias": config.bias}
    layers = [
        PreNorm(
            HeadNormAttention(config, rope, head_norms(config), **biases),
            MoE(config) if sparse else gated_mlp(config),
            norm,
        )
        for rope, sparse in zip(layer_ropes(config), config.sparse, strict=True)
    ]
    return CausalLM(config, layers, norm())


_NAMES = ((".mlp.expert_bias", ".mlp.gate.e_score_correction_bias"),)


def adapt(config: Config, weights: Weights) -> Weights:
    return to_switch(respelled(without_spares(config, weights), _NAMES), config.mixture.experts)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=CORRECTIONS,
    checkpoint=always(Checkpoint(experts="experts", singles=True)),
)
