"""Granite 3 MoE: Granite with experts for MLPs. The shared variant and that with windows have one more that
always answers.
"""

from collections.abc import Mapping
from dataclasses import fields as members
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.config.fields import Fields
from runtime.models import granite
from runtime.models.family import Family
from runtime.models.granite import Granite, layout
from runtime.nn.feed_forward.moe import SharedMoE
from runtime.nn.feed_forward.router import Choice, choose
from runtime.nn.layer import FeedForward
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.parts.feed_forward import Routing
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, split_gate_up, to_switch
from runtime.tensors.names import without_spares


@dataclass(frozen=True, slots=True)
class Config(granite.Config):
    experts: int
    chosen: int
    """Experts asked per token."""
    shared: int
    """Size of the shared expert; 0: none."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    base = granite.parse(fields.raw)
    experts = fields.count("num_local_experts", 8, high=1 << 16)
    shared = fields.raw.get("model_type") in ("granitemoeshared", "granitemoe_swa")
    return Config(
        **{member.name: getattr(base, member.name) for member in members(base)},
        experts=experts,
        chosen=fields.count("num_experts_per_tok", 2, high=experts),
        shared=fields.count("shared_intermediate_size", 0, low=0, high=1 << 22) if shared else 0,
    )


class Router(Module):
    def __init__(self, hidden: int, experts: int, chosen: int) -> None:
        super().__init__()
        self.layer = nn.Linear(hidden, experts, bias=False)
        self._routing = Routing("best", chosen)

    def __call__(self, x: mx.array, step: Step) -> Choice:
        return choose(self._routing, linear(self.layer, x, step))

    def ruled(self) -> tuple[nn.Module, Routing]:
        """As `RuledRouter` says it."""
        return self.layer, self._routing


def build(config: Config) -> Granite:
    def mlp() -> FeedForward:
        return SharedMoE(
            config.hidden_size,
            config.intermediate_size,
            config.experts,
            Router(config.hidden_size, config.experts, config.chosen),
            shared=config.shared,
            activation=config.activation,
        )

    return Granite(config, mlp)


_RENAMED = (
    (".block_sparse_moe.", ".mlp."),
    (".mlp.input_linear.", ".mlp.experts.gate_up_proj."),
    (".mlp.output_linear.", ".mlp.experts.down_proj."),
    (".mlp.router.weight", ".mlp.router.layer.weight"),
    (".mlp.router.", ".mlp.gate."),
    (".shared_mlp.input_linear.", ".mlp.shared_experts.gate_up_proj."),
    (".shared_mlp.output_linear.", ".mlp.shared_experts.down_proj."),
)


def adapt(config: Config, weights: Weights) -> Weights:
    adapted: Weights = {}
    for name, array in without_spares(config, weights).items():
        for old, new in _RENAMED:
            name = name.replace(old, new)
        adapted[name] = array
    return split_gate_up(to_switch(adapted, config.experts))


MODULES = ((".block_sparse_moe.router.layer.", ".block_sparse_moe.router."),)
STACKS = (
    (".block_sparse_moe.input_linear.weight", ".block_sparse_moe.experts.gate_up_proj"),
    (".block_sparse_moe.output_linear.weight", ".block_sparse_moe.experts.down_proj"),
)

FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(stacks=STACKS, modules=MODULES)),
)
