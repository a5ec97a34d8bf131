"""GroveMoE: Qwen3-MoE with small experts besides, one for every two large ones, which answer for each of the
two that is asked, by as much, times 0.05.

How wide the small ones are, how many share one and how much it counts are the class's, whatever a file says.

Sources: arXiv 2508.07785; the authors' modeling_grove_moe.py. (llama.cpp gives small experts what the large
ones have answered, and asks others; so it says other things.)
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.config.fields import Fields
from runtime.models import qwen_moe
from runtime.models.family import Family
from runtime.nn.feed_forward.experts import Experts
from runtime.nn.feed_forward.router import choose
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.parts.feed_forward import Routing
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM

_SHARERS, _INNER, _SHARE = 2, 128, 0.05


def parse(raw: Mapping[str, Any]) -> qwen_moe.Config:
    fields = Fields(raw)
    fields.choice("model_type", ("grove_moe",))
    config = qwen_moe.parse({**fields.raw, "model_type": "qwen3_moe", "norm_topk_prob": True})
    if config.mixture.experts % _SHARERS:
        fields.refuse("num_experts", f"a multiple of {_SHARERS}: so many have one small expert")
    return config


def layout(config: qwen_moe.Config) -> list[LayerSpec]:
    return qwen_moe.layout(config)


class Mixture(Module):
    """[B, L, D] -> [B, L, D]"""

    adds: ClassVar[tuple[str, ...]] = ("switch_mlp", "chunk_mlp")

    def __init__(self, config: qwen_moe.Config) -> None:
        super().__init__()
        hidden, spec = config.hidden_size, config.mixture
        self.gate = nn.Linear(hidden, spec.experts, bias=False)
        self.switch_mlp = Experts(hidden, spec.inner, spec.experts, activation=config.activation)
        self.chunk_mlp = Experts(hidden, _INNER, spec.experts // _SHARERS, activation=config.activation)
        self._routing = Routing("softmax", spec.chosen, normalize=True)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        chosen, shares = choose(self._routing, linear(self.gate, x, step))
        small = self.chunk_mlp(x, (chosen // _SHARERS, shares), step)
        return self.switch_mlp(x, (chosen, shares), step) + small * _SHARE


def build(config: qwen_moe.Config) -> CausalLM:
    return qwen_moe.built(config, Mixture)


def adapt(config: qwen_moe.Config, weights: Weights) -> Weights:
    """Small experts lie one by one, wherever others do."""
    experts, own = config.mixture.experts, without_spares(config, weights)
    large = {name: array for name, array in own.items() if _SMALL not in name}
    small = {name.replace(_SMALL, ".experts."): array for name, array in own.items() if _SMALL in name}
    stacked = to_switch(small, experts // _SHARERS)
    named = {name.replace(".switch_mlp.", ".chunk_mlp."): array for name, array in stacked.items()}
    return to_switch(large, experts) | named


_SMALL = ".chunk_experts."
FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(spare=(".mlp.expert_bias",), singles=True)),
)
