"""Muse Spark (the text model): Muse Glimmer's positions and embeddings, mixtures at a width of their own, and
gates that say how much of the stream and how much of an answer there is behind each sublayer.

What each head sees is normed without a weight, before the sigmoid gate. Experts read and write a narrower
vector, and each one's answer is normed before it is weighed. Norms of answers multiply by their weight before
they norm. Norms with weights inside layers are stored less one.

Source: transformers modeling_muse_spark.py.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import AttentionCache, StepCache
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape, sparse_layers
from runtime.config.fields import Fields
from runtime.models.family import CORRECTIONS, Family
from runtime.models.muse_glimmer import NormedTrunk, read_turns, windows_from_last
from runtime.nn.activation import sigmoid
from runtime.nn.attention.self_attention import HeadNormAttention
from runtime.nn.feed_forward.experts import Experts
from runtime.nn.feed_forward.router import Choice, RuledRouter, among
from runtime.nn.layer import FeedForward
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import PlainRMS, RMSNorm, one_added, rms
from runtime.nn.positions.rope import Rope
from runtime.parts.feed_forward import ExpertParts, Routing
from runtime.records import dataclass
from runtime.step import Adapters, Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import respelled, text_tensors
from runtime.tensors.towers import Towers
from runtime.trunks.decoder import CausalLM, attention_layout, gated_mlp, layer_ropes, rms_norms

_LEAST = 1e-3
"""Of the squared share of the stream."""


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    scale: float
    """Scores are multiplied by it."""
    after_eps: float
    """Of the norms after each sublayer, and of what an expert answers."""
    multiplier: float
    """Logits are multiplied by it, before the cap, and scores of experts."""
    softcap: float
    """Logits become cap * tanh(logit / cap)."""
    sparse: tuple[bool, ...]
    """Of each layer: its feed-forward is a mixture."""
    experts: int
    chosen: int
    """Experts per token."""
    narrow: int
    """Width of what experts read."""
    inner: int
    """Of an expert."""
    routed_scale: float
    """The weights of the chosen are multiplied by it."""
    temperature: float
    """Numbers of gates are divided by it."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(
        fields,
        eps=1e-5,
        vocab_size=202048,
        hidden_size=8192,
        intermediate_size=16384,
        num_attention_heads=128,
        num_key_value_heads=16,
        head_dim=64,
        max_position_embeddings=1048576,
    )
    layers = layer_count(fields, 62)
    if shape["tied"]:
        fields.refuse("tie_word_embeddings", "false: the head is one of its own")
    fields.count("num_shared_experts", 0, low=0, high=0)
    rope, turns = one_rope(fields, shape, theta=500000.0), read_turns(fields, layers)
    experts = fields.count("num_local_experts", 256, high=1 << 16)
    return Config(
        **shape,
        windows=windows_from_last(fields, layers),
        ropes=tuple(rope if turned else None for turned in turns),
        bias=fields.flag("attention_bias"),
        scale=shape["head_dim"] ** -0.5 * fields.number("qk_scale_factor", 5.4730064863875),
        after_eps=fields.number("post_norm_eps", 1e-8, low=1e-30),
        multiplier=fields.number("output_multiplier", 0.1767766952966369),
        softcap=fields.number("final_logit_softcapping", 20.0, low=1e-6),
        sparse=sparse_layers(fields, layers, 0),
        experts=experts,
        chosen=fields.count("num_experts_per_tok", 8, high=experts),
        narrow=fields.count("moe_hidden_size", 4096, high=1 << 20),
        inner=fields.count("moe_intermediate_size", 4096, high=1 << 22),
        routed_scale=fields.number("routed_scaling_factor", 1.0),
        temperature=fields.number("residual_gate_temperature", 0.3, low=1e-6),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class WeighedNorm(Module):
    """The norm of x times the weight."""

    def __init__(self, dims: int, eps: float) -> None:
        super().__init__()
        self.weight = mx.ones((dims,))
        self._eps = eps

    def __call__(self, x: mx.array) -> mx.array:
        return rms((x.astype(mx.float32) * self.weight.astype(mx.float32)).astype(x.dtype), self._eps)


class Attention(HeadNormAttention):
    def __init__(self, config: Config, rope: Rope | None) -> None:
        plain, bias = PlainRMS(config.norm_eps), config.bias
        super().__init__(
            config, rope, lambda _heads: plain, qkv_bias=bias, output_bias=bias, scale=config.scale
        )
        self.gate_proj = nn.Linear(config.hidden_size, config.heads * config.head_dim, bias=False)
        self._eps = config.norm_eps

    def seen(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        heads = mx.unflatten(super().seen(x, step, cache), -1, (-1, self._head_dim))
        return rms(heads, self._eps).flatten(-2) * sigmoid(linear(self.gate_proj, x, step))


class ScaledRouter(RuledRouter):
    """Its scores are multiplied by a number before they become gates."""

    def __init__(self, config: Config) -> None:
        routing = Routing("sigmoid", config.chosen, normalize=True, scale=config.routed_scale)
        super().__init__(config.hidden_size, config.experts, routing, corrected=True)
        self._multiplier = config.multiplier

    def __call__(self, x: mx.array, step: Step) -> Choice:
        return super().__call__(x.astype(mx.float32) * self._multiplier, step)


class NormedExperts(Experts):
    """What each answers is normed before it is weighed."""

    def __init__(self, config: Config) -> None:
        super().__init__(config.narrow, config.inner, config.experts, activation=config.activation)
        self.post_expert_norm = WeighedNorm(config.narrow, config.after_eps)

    def stacks(self) -> ExpertParts | None:
        """Kernels know no such norm."""
        return None

    def _answer(self, adapters: Adapters | None, x: mx.array, chosen: mx.array, ordered: bool) -> mx.array:
        return self.post_expert_norm(super()._answer(adapters, x, chosen, ordered))


class Mixture(Module):
    asks_whole: ClassVar[tuple[str, str]] = ("switch_mlp", "post_expert_proj")
    """Experts, and what closes their sum: see `runtime.ranks.experts`."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._own: tuple[int, int] | None = None
        self.gate = ScaledRouter(config)
        self.pre_expert_proj = nn.Linear(config.hidden_size, config.narrow, bias=False)
        self.pre_expert_norm = RMSNorm(config.narrow, eps=config.norm_eps)
        self.switch_mlp = NormedExperts(config)
        self.post_expert_proj = nn.Linear(config.narrow, config.hidden_size, bias=False)

    def of_experts(self, start: int, stop: int) -> dict[str, Any]:
        """Its attributes where it has these experts alone (`runtime.ranks`)."""
        return {"_own": (start, stop)}

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        narrow = self.pre_expert_norm(linear(self.pre_expert_proj, x, step))
        choice = self.gate(x, step)
        asked = choice if self._own is None else among(choice, *self._own)
        return linear(self.post_expert_proj, self.switch_mlp(narrow, asked, step), step)


class ResidualGate(Module):
    """How much of the stream there is behind a sublayer, and how much of its answer, number by number."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate = mx.zeros((config.hidden_size,))
        self._temperature = config.temperature

    def __call__(self, x: mx.array, answer: mx.array) -> mx.array:
        said = self.gate.astype(mx.float32) / self._temperature
        new = sigmoid(said)
        old = mx.sqrt(mx.maximum(sigmoid(-said) * (1 + new), _LEAST))
        return (old * x + new * answer).astype(x.dtype)


class Block(Module):
    def __init__(self, config: Config, rope: Rope | None, mlp: FeedForward) -> None:
        super().__init__()
        norm = rms_norms(config)
        self.self_attn, self.mlp = Attention(config, rope), mlp
        self.input_layernorm, self.pre_feedforward_layernorm = norm(), norm()
        self.post_feedforward_layernorm = WeighedNorm(config.hidden_size, config.after_eps)
        self.post_attention_residual_gate = ResidualGate(config)
        self.post_feedforward_residual_gate = ResidualGate(config)
        self._eps = config.after_eps

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        answer = self.self_attn(self.input_layernorm(x), step, cache)
        x = self.post_attention_residual_gate(x, rms(answer, self._eps))
        answer = self.mlp(self.pre_feedforward_layernorm(x), step)
        return self.post_feedforward_residual_gate(x, self.post_feedforward_layernorm(answer))


class MuseSpark(CausalLM):
    def __init__(self, config: Config) -> None:
        layers = [
            Block(config, rope, Mixture(config) if sparse else gated_mlp(config))
            for rope, sparse in zip(layer_ropes(config), config.sparse, strict=True)
        ]
        scale, cap = config.multiplier, config.softcap
        super().__init__(config, layers, rms_norms(config)(), logit_scale=scale, logit_softcap=cap)
        self.model = NormedTrunk(config, layers)


def build(config: Config) -> MuseSpark:
    return MuseSpark(config)


_NAMES = ((".experts.post_expert_norm.", ".switch_mlp.post_expert_norm."),)


def adapt(config: Config, weights: Weights) -> Weights:
    named = respelled(text_tensors(config, weights), _NAMES)
    return one_added(one_added(to_switch(named, config.experts), "layernorm.weight"), "expert_norm.weight")


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    # Stored in float32.
    wide=(*CORRECTIONS, ".mlp.gate.weight", "_residual_gate.gate"),
    checkpoint=always(
        Checkpoint(
            default_layers=62,
            norms_rows=True,
            towers=Towers(
                images=("vision_tower.", "vision_adapter.", "vision_projection."), sound=("audio_tower.",)
            ),
        )
    ),
)
