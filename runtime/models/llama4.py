"""Llama 4 (Scout, Maverick; the text tower): attention in chunks with positions, and over everything without.

Layers with positions see their own chunk only, and norm queries and keys after they are turned. Every fourth
layer sees all and has no positions; its queries grow with the logarithm of theirs. Experts are fed an input
that is already scaled by the router's gate, beside one expert that all tokens share; Maverick alternates them
with plain MLPs.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Chunked, Full, LayerSpec
from runtime.cache.protocol import StepCache
from runtime.config.decoder import (
    DecoderConfig,
    layer_count,
    listed_layers,
    one_rope,
    read_shape,
    rotated_layers,
)
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.feed_forward.experts import Experts
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.feed_forward.router import choose
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize, PlainRMS
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import Block as Sublayers
from runtime.nn.residual.block import NormedSublayer
from runtime.nn.residual.sublayer import Always, added, mixture_parts
from runtime.parts.feed_forward import MixtureParts, Routing
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import text_tensors
from runtime.tensors.towers import USUAL
from runtime.trunks.decoder import CausalLM, layer_ropes, rms_norms


@dataclass(frozen=True, slots=True)
class Temperature:
    """Queries of layers without positions grow: by 1 + slope * ln(1 + floor((p + 1) / floor)) at p."""

    floor: float
    """Tokens."""
    slope: float


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    chunks: tuple[int | None, ...]
    """Of each layer: the length of its chunks in tokens; None: full attention."""
    mixtures: tuple[bool, ...]
    """Of each layer: it has experts."""
    experts: int
    chosen: int
    """Experts per token."""
    dense_size: int
    """Width of the MLP in layers without experts."""
    bias: bool
    head_norm: bool
    """Queries and keys are normed, in layers with positions."""
    temperature: Temperature | None
    """None: queries are left as they are."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(
        fields,
        eps=1e-5,
        vocab_size=202048,
        hidden_size=5120,
        intermediate_size=8192,
        num_attention_heads=40,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=131072,
    )
    layers = layer_count(fields, 48)
    rotated = rotated_layers(fields, layers)
    rope = one_rope(fields, shape, theta=500000.0, traditional=True)
    experts = fields.count("num_local_experts", 16, high=1 << 16)
    tuned = fields.flag("attn_temperature_tuning", True)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=tuple(rope if turns else None for turns in rotated),
        chunks=_chunks(fields, rotated),
        mixtures=_mixtures(fields, layers),
        experts=experts,
        chosen=fields.count("num_experts_per_tok", 1, high=experts),
        dense_size=fields.count("intermediate_size_mlp", 16384, high=1 << 22),
        bias=fields.flag("attention_bias"),
        head_norm=fields.flag("use_qk_norm", True),
        temperature=Temperature(
            fields.number("floor_scale", 8192, low=1.0), fields.number("attn_scale", 0.1, low=0.0)
        )
        if tuned
        else None,
    )


def _chunks(fields: Fields, rotated: tuple[bool, ...]) -> tuple[int | None, ...]:
    layers = len(rotated)
    if fields.raw.get("attention_chunk_size", 8192) is None:
        return (None,) * layers
    chunk = fields.count("attention_chunk_size", 8192)
    kinds = fields.words("layer_types", layers, ("full_attention", "chunked_attention"))
    chunked = rotated if kinds is None else [kind == "chunked_attention" for kind in kinds]
    return tuple(chunk if is_chunked else None for is_chunked in chunked)


def _mixtures(fields: Fields, layers: int) -> tuple[bool, ...]:
    every = fields.count("interleave_moe_layer_step", 1)
    return listed_layers(fields, "moe_layers", layers) or tuple((i + 1) % every == 0 for i in range(layers))


def layout(config: Config) -> list[LayerSpec]:
    return [
        Full(config.kv_heads, config.head_dim)
        if chunk is None
        else Chunked(config.kv_heads, config.head_dim, chunk)
        for chunk in config.chunks
    ]


class Attention(SelfAttention):
    """Without norms."""

    def __init__(self, config: Config, rope: Rope | None) -> None:
        super().__init__(config, rope, qkv_bias=config.bias, output_bias=config.bias)
        self._temperature = config.temperature if rope is None else None

    def factors(self, step: Step) -> mx.array | None:
        temperature = self._temperature
        if temperature is None or not step.may_reach(temperature.floor - 1):
            return None

        def build() -> mx.array:
            times = mx.floor((step.positions + 1) / temperature.floor)
            return 1 + temperature.slope * mx.log1p(times)

        return step.memo("temperature", build)

    @property
    def shift(self) -> None:
        """Chunks begin elsewhere once tokens are gone."""
        return None


class NormedAttention(Attention):
    """With norms behind positions."""

    def __init__(self, config: Config, rope: Rope | None) -> None:
        super().__init__(config, rope)
        self._norm = PlainRMS(config.norm_eps)
        self._attends = replace(self._attends, normed_turned=True)

    def place(self, queries: mx.array, keys: mx.array, step: Step) -> tuple[mx.array, mx.array]:
        queries, keys = super().place(queries, keys, step)
        return self._norm(queries), self._norm(keys)

    def head_norms(self) -> tuple[Normalize, Normalize]:
        return self._norm, self._norm


class Mixture(Module):
    """The answers of the chosen experts, to inputs scaled by their gates, plus that of one that all share."""

    adds: ClassVar[tuple[str, ...]] = ("experts", "shared_expert")

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.router = nn.Linear(hidden, config.experts, bias=False)
        self.experts = Experts(hidden, inner, config.experts, activation=config.activation)
        self.shared_expert = GatedMLP(hidden, inner, activation=config.activation)
        self._routing = Routing("late", config.chosen)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        chosen, gates = choose(self._routing, linear(self.router, x, step))
        gates, whole = gates.astype(x.dtype), mx.ones((*x.shape[:-1], 1), mx.float32)
        answer: mx.array | None = None
        for i in range(self._routing.each):
            one = slice(i, i + 1)
            its = self.experts(x * gates[..., one], (chosen[..., one], whole), step)
            answer = its if answer is None else answer + its
        shared = self.shared_expert(x, step)
        return shared if answer is None else answer + shared

    def parts(self, norm: Normalize | None, after: Normalize | None) -> MixtureParts | None:
        """See `sublayer.added`."""
        shared = Always(self.shared_expert)
        said = mixture_parts(norm, self.router, self._routing, self.experts, after, shared)
        return None if said is None else said._replace(fed=True)


class Block(Sublayers):
    def __init__(self, config: Config, rope: Rope | None, mixture: bool) -> None:
        super().__init__()
        norm = rms_norms(config)
        normed = rope is not None and config.head_norm
        self.self_attn = NormedAttention(config, rope) if normed else Attention(config, rope)
        self.feed_forward = (
            Mixture(config)
            if mixture
            else GatedMLP(config.hidden_size, config.dense_size, activation=config.activation)
        )
        self.input_layernorm: Normalize = norm()
        self.post_attention_layernorm: Normalize = norm()

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        x = added(x, self.self_attn, step, cache, norm=self.input_layernorm)
        return added(x, self.feed_forward, step, norm=self.post_attention_layernorm)

    def sublayers(self) -> tuple[NormedSublayer, NormedSublayer]:
        return (
            (self.self_attn, self.input_layernorm, None),
            (self.feed_forward, self.post_attention_layernorm, None),
        )


def build(config: Config) -> CausalLM:
    layers = [
        Block(config, rope, mixture)
        for rope, mixture in zip(layer_ropes(config), config.mixtures, strict=True)
    ]
    return CausalLM(config, layers, rms_norms(config)())


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """transformers stores stacks as [E, in, out], gate beside up, without `.weight`; MLX as [E, out, in]
    each.
    """
    adapted: dict[str, mx.array] = {}
    for name, array in text_tensors(config, weights).items():
        if name.endswith(".experts.gate_up_proj"):
            gate, up = mx.split(array.swapaxes(-1, -2), 2, axis=-2)
            stem = name.removesuffix("gate_up_proj")
            adapted |= {f"{stem}gate_proj.weight": gate, f"{stem}up_proj.weight": up}
        elif name.endswith(".experts.down_proj"):
            adapted[f"{name}.weight"] = array.swapaxes(-1, -2)
        else:
            adapted[name] = array
    return adapted


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(
        Checkpoint(experts="experts", towers=USUAL, inside=("language_model.model.", "language_model."))
    ),
)
