"""SmallThinker: Llama's attention, in some layers without positions or within a window, and experts behind a
ReLU gate. Who is asked is decided by what enters a layer, before its attention, so that experts may be read
from a disk meanwhile.

Sources: arXiv 2507.20984; the authors' modeling_smallthinker.py, llama.cpp's smallthinker.cpp.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import AttentionCache
from runtime.config.decoder import layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.feed_forward.experts import Experts
from runtime.nn.feed_forward.router import RuledRouter
from runtime.nn.module import Module
from runtime.nn.norm import Norm
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.sublayer import added
from runtime.parts.feed_forward import Routing
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import MODULES, Weights, to_switch
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_ropes, rms_norms
from runtime.trunks.mixture import MixtureConfig, MixtureSpec


@dataclass(frozen=True, slots=True)
class Config(MixtureConfig):
    gates: Literal["best", "late"]
    """How scores of those who are asked become shares: by a softmax, or by sigmoids over their sum."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("smallthinker",))
    inner = fields.count("moe_ffn_hidden_size", 768, high=1 << 22)
    shape = read_shape(
        Fields({**fields.raw, "intermediate_size": inner, "hidden_act": "relu"}),
        tied=True,
        vocab_size=151936,
        hidden_size=1536,
        num_attention_heads=12,
        num_key_value_heads=2,
        head_dim=128,
        max_position_embeddings=131072,
    )
    layers = layer_count(fields, 32)
    experts = fields.count("moe_num_primary_experts", 32, high=1 << 16)
    rope = one_rope(fields, shape, theta=1e6)
    window = fields.count("sliding_window_size", 4096)
    # Files say both; the class in transformers takes lists for 32 layers, however many there are.
    sliding = fields.switches("sliding_window_layout", layers, [0] * 32) or ()
    turning = fields.switches("rope_layout", layers, [1] * 32) or ()
    return Config(
        **shape,
        windows=tuple(window if slides else None for slides in sliding),
        ropes=tuple(rope if turns else None for turns in turning),
        mixture=MixtureSpec(
            experts=experts,
            chosen=fields.count("moe_num_active_primary_experts", 4, high=experts),
            inner=inner,
        ),
        gates="best" if fields.flag("moe_primary_router_apply_softmax") else "late",
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class Mixture(Module):
    """What experts answer to x; who they are, `read` says. Both [B, L, D], as the answer is."""

    adds: ClassVar[tuple[str, ...]] = ("switch_mlp",)

    def __init__(self, config: Config) -> None:
        super().__init__()
        spec, gates = config.mixture, config.gates
        routing = Routing(gates, spec.chosen, normalize=gates == "late")
        self.gate = RuledRouter(config.hidden_size, spec.experts, routing)
        self.switch_mlp = Experts(config.hidden_size, spec.inner, spec.experts, activation=config.activation)

    def __call__(self, x: mx.array, read: mx.array, step: Step) -> mx.array:
        return self.switch_mlp(x, self.gate(read, step), step)


class Block(Module):
    def __init__(self, config: Config, rope: Rope | None, norm: Norm) -> None:
        super().__init__()
        self.self_attn, self.mlp = SelfAttention(config, rope), Mixture(config)
        self.input_layernorm, self.post_attention_layernorm = norm(), norm()

    def __call__(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        heard = added(x, self.self_attn, step, cache, norm=self.input_layernorm)
        return heard + self.mlp(self.post_attention_layernorm(heard), x, step)


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    return CausalLM(config, [Block(config, rope, norm) for rope in layer_ropes(config)], norm())


_EXPERT = (("up", "up_proj"), ("gate", "gate_proj"), ("down", "down_proj"))


def adapt(config: Config, weights: Weights) -> Weights:
    own = respelled(without_spares(config, weights), MODULES)
    named = {_of_expert(name): array for name, array in own.items()}
    return to_switch(named, config.mixture.experts)


def _of_expert(name: str) -> str:
    name = name.replace(".mlp.primary_router.", ".mlp.gate.")
    for theirs, ours in _EXPERT if ".mlp.experts." in name else ():
        name = name.replace(f".{theirs}.", f".{ours}.")
    return name


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(matrices=_EXPERT, singles=True)),
)
