"""Nomic BERT with experts (nomic-embed-text-v2-moe): in some layers a mixture in place of the feed-forward
block, no gates anywhere, and biases.

Probabilities of the best experts weigh their answers, as they are, and one bias is added to the sum.

Sources: huggingface/text-embeddings-inference nomic.rs; read beside llama.cpp's nomic-bert-moe.cpp, whose
converter leaves that bias out.
"""

import re
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.config.fields import Fields
from runtime.models.family.rotary_encoder import Config as Plain
from runtime.models.family.rotary_encoder import RotaryEncoder, family, feed_forward, plainly
from runtime.models.nomic_bert import AROUND, FUSED, PREFIXES, SENSITIVE, SHARED, respelled, sizes_of
from runtime.nn.feed_forward.experts import Experts
from runtime.nn.feed_forward.router import choose
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.parts.feed_forward import Routing
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.experts import Weights, cut_piles, to_switch


@dataclass(frozen=True, slots=True)
class Config(Plain):
    experts: int = 8
    chosen: int = 1
    every: int = 2
    """Of so many layers the second has experts, or of one each."""


_ONLY: dict[str, Any] = SHARED | {
    "activation_function": "gelu",
    "expert_choice_router": False,
    "ffn_div": 1,
    "mlp_fc1_bias": True,
    "mlp_fc2_bias": True,
    "moe_normalize_expert_weights": False,
    "num_shared_experts": 0,
    "qkv_proj_bias": True,
}


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(respelled(raw, _ONLY))
    sizes = sizes_of(fields, "gelu")
    if sizes["activation"] != "gelu":
        fields.refuse("hidden_act", "gelu: experts of this family have no other")
    experts = fields.count("num_experts", 8, high=1 << 16)
    return Config(
        **sizes,
        biased=True,
        gated=False,
        experts=experts,
        chosen=fields.count("moe_top_k", 1, high=experts),
        every=fields.count("moe_every_n_layers", 2),
    )


class Mixture(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.gate = nn.Linear(hidden, config.experts, bias=False)
        self.switch_mlp = Experts(
            hidden, config.intermediate_size, config.experts, activation=config.activation, gated=False
        )
        self.bias = mx.zeros((hidden,))
        self._routing = Routing("softmax", config.chosen, normalize=False)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        choice = choose(self._routing, linear(self.gate, x, step))
        return self.switch_mlp(x, choice, step) + self.bias.astype(x.dtype)


def build(config: Config) -> RotaryEncoder:
    return RotaryEncoder(
        config,
        [
            Mixture(config) if place % config.every == 1 else feed_forward(config)
            for place in range(config.layers)
        ],
    )


_RENAMED = (
    *AROUND,
    (re.compile(r"\.mlp\.router\.layer\."), ".mlp.gate."),
    (re.compile(r"\.mlp\.experts\.mlp\."), ".mlp.experts."),
    (re.compile(r"\.mlp\.(?:experts|switch_mlp)\.bias$"), ".mlp.bias"),
    (re.compile(r"\.mlp\.switch_mlp\.mlp\."), ".mlp.switch_mlp."),
    (re.compile(r"\.experts\.w1$"), ".experts.up_proj"),
    (re.compile(r"\.experts\.w2$"), ".experts.down_proj"),
    (re.compile(r"\.mlp\.fc1\."), ".mlp.up_proj."),
    (re.compile(r"\.mlp\.fc2\."), ".mlp.down_proj."),
)


def adapt(config: Config, weights: Weights) -> Weights:
    named = plainly(weights, PREFIXES, _RENAMED, FUSED)
    return to_switch(cut_piles(named, config.experts, config.hidden_size), config.experts)


_PILED = ("experts.mlp.w1", ("up_proj", False)), ("experts.mlp.w2", ("down_proj", True))


def _experts(text: Mapping[str, Any]) -> dict[str, Any]:
    count = text.get("num_experts", 8)
    return {"piled": _PILED, "piles": count if type(count) is int else 0}


FAMILY = family(parse, adapt, *SENSITIVE, build=build, experts=_experts)
