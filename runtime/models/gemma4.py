"""Gemma 4 (text towers of E2B to 31B, the unified 12B, the mixture 26B-A4B).

Sandwiched norms as in Gemma 2 but not zero-centred; scores are not scaled, since queries, keys and values are
normed. Full layers have their own head size and number of key heads, turn a share of the pairs
("proportional"), and may take their values from the keys' projection. The last layers may own no keys and
values and read those of the last layer of their kind that does. Small models feed every layer from a second
embedding table; the mixture runs experts beside the MLP. Only text is computed, for which attention is causal
everywhere.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import AttentionCache, Caches, by_layout
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.models.gemma4_config import (
    Config,
    Layer,
    Mixture,
    layers_layout,
    read_tower,
    unused_projections,
)
from runtime.nn.activation import gated
from runtime.nn.attention.attend import attend, attend_over, split_heads
from runtime.nn.attention.attention_sublayer import AttentionSublayer
from runtime.nn.feed_forward.experts import Experts
from runtime.nn.feed_forward.mlp import ACTIVATIONS, GatedMLP
from runtime.nn.feed_forward.router import Choice, choose
from runtime.nn.linear import MATRICES, embed, linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize, PlainRMS, RMSNorm, added_normed, rms
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.sublayer import (
    Always,
    added,
    attention_parts,
    closing,
    defined_together,
    mixture_parts,
    norms_fit,
    per_layer_gate,
)
from runtime.parts.attention import AttentionParts
from runtime.parts.decoder import DecoderParts
from runtime.parts.feed_forward import FeedForwardParts, MixtureParts, Routing, ScaledRMS
from runtime.parts.heads import Heads
from runtime.parts.streams import Multiply, PerLayerGate
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import to_switch
from runtime.tensors.names import text_tower
from runtime.tensors.quantizing import EIGHT_ELSE, REQUESTED, Row, in_cadence, sensitive
from runtime.tensors.towers import USUAL
from runtime.trunks.headed import Headed, untied_head
from runtime.trunks.per_layer import PerLayerTrunk
from runtime.trunks.taps import Taps


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("gemma4_text", "gemma4_unified_text", "gemma4", "gemma4_unified"))
    config = read_tower(fields)
    # Nobody's keys and values are there to be read where all layers read another's: see the assistant.
    fields.count("num_kv_shared_layers", 0, low=0, high=len(config.layers) - 1)
    return config


def layout(config: Config) -> list[LayerSpec]:
    return layers_layout(config.layers)


class Widths(Protocol):
    """What attention reads of a config; Gemma 3n's has it too."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def norm_eps(self) -> float: ...
    @property
    def bias(self) -> bool: ...


class Attention(AttentionSublayer):
    """Unscaled: queries and keys are normed with weights, values without."""

    def __init__(self, config: Widths, layer: Layer, rope: Rope) -> None:
        super().__init__()
        dims, hidden, bias = layer.head_dim, config.hidden_size, config.bias
        self.q_proj = nn.Linear(hidden, config.heads * dims, bias=bias)
        self.q_norm = RMSNorm(dims, eps=config.norm_eps)
        self.o_proj = nn.Linear(config.heads * dims, hidden, bias=bias)
        if layer.donor is None:
            self.k_proj = nn.Linear(hidden, layer.kv_heads * dims, bias=bias)
            self.k_norm = RMSNorm(dims, eps=config.norm_eps)
            if not layer.keys_are_values:
                self.v_proj = nn.Linear(hidden, layer.kv_heads * dims, bias=bias)
            self._value_norm = PlainRMS(config.norm_eps)
        self._layer, self._rope = layer, rope
        self._attends = Heads(config.heads, layer.kv_heads, dims, 1.0, rope)

    @property
    def head_counts(self) -> tuple[int, int]:
        """As in `runtime.nn.attention.self_attention`."""
        return self._attends.count, self._layer.kv_heads

    def of_heads(self, heads: int, groups: int) -> dict[str, Any]:
        """As in `runtime.nn.attention.self_attention`."""
        attends = replace(self._attends, count=heads, groups=groups)
        return {"_attends": attends, "_layer": replace(self._layer, kv_heads=groups)}

    def parts(self, norm: Normalize | None, after: Normalize | None) -> AttentionParts | None:
        """See `sublayer.added`."""
        layer = self._layer
        if layer.donor is not None:
            norms = self.q_norm, None
            return attention_parts(
                AttentionParts(self._attends, norm, (self.q_proj,), norms, self.o_proj, after, reads=True)
            )
        opening = (self.q_proj, self.k_proj, *(() if layer.keys_are_values else (self.v_proj,)))
        norms = self.q_norm, self.k_norm
        values = self._value_norm
        return attention_parts(
            AttentionParts(self._attends, norm, opening, norms, self.o_proj, after, value_norm=values)
        )

    def seen(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        """What the heads read, side by side."""
        layer, rope = self._layer, self._rope
        queries = self.q_norm(split_heads(linear(self.q_proj, x, step), self._attends.count))
        if layer.donor is not None:
            return attend_over(step, cache, queries, scale=1.0, rope=rope)
        raw = split_heads(linear(self.k_proj, x, step), layer.kv_heads)
        values = raw if layer.keys_are_values else split_heads(linear(self.v_proj, x, step), layer.kv_heads)
        return attend(step, cache, queries, self.k_norm(raw), self._value_norm(values), scale=1.0, rope=rope)


class Router(Module):
    def __init__(self, config: Config, mixture: Mixture) -> None:
        super().__init__()
        self.proj = nn.Linear(config.hidden_size, mixture.experts, bias=False)
        self.scale = mx.ones((config.hidden_size,))
        self.per_expert_scale = mx.ones((mixture.experts,))
        self._chosen, self._eps = mixture.chosen, config.norm_eps

    def __call__(self, x: mx.array, step: Step) -> Choice:
        by, eps, times = self.reading()
        return choose(self._routing(), linear(self.proj, rms(x, eps) * by * times, step))

    def ruled(self) -> tuple[nn.Module, Routing | None]:
        """See `runtime.nn.residual.sublayer.mixture_parts`."""
        return self.proj, self._routing() if type(self.proj) in MATRICES else None

    def reading(self) -> ScaledRMS:
        """What scores are made of."""
        return ScaledRMS(self.scale, self._eps, self.scale.size**-0.5)

    def _routing(self) -> Routing:
        shares = self.per_expert_scale.astype(mx.float32)
        return Routing("softmax", self._chosen, normalize=True, shares=shares)


class Block(Module):
    """place: which of the layers it is."""

    def __init__(self, config: Config, layer: Layer, rope: Rope, place: int) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.norm_eps
        self.self_attn = Attention(config, layer, rope)
        self.mlp = GatedMLP(hidden, layer.intermediate_size, activation=config.activation)
        self.input_layernorm = RMSNorm(hidden, eps=eps)
        self.post_attention_layernorm = RMSNorm(hidden, eps=eps)
        self.pre_feedforward_layernorm = RMSNorm(hidden, eps=eps)
        self.post_feedforward_layernorm = RMSNorm(hidden, eps=eps)
        self.layer_scalar = mx.ones((1,))
        if config.per_layer_size:
            self.per_layer_input_gate = nn.Linear(hidden, config.per_layer_size, bias=False)
            self.per_layer_projection = nn.Linear(config.per_layer_size, hidden, bias=False)
            self.post_per_layer_input_norm = RMSNorm(hidden, eps=eps)
        self._activation = ACTIVATIONS[config.activation]
        self._place, self._width, self._fed = place, hidden, config.per_layer_size > 0

    def __call__(
        self, x: mx.array, step: Step, cache: AttentionCache, own: mx.array | None = None
    ) -> mx.array:
        """own: the P numbers that the second table has for this layer, [B, L, P]."""
        before, after = self.input_layernorm, self.post_attention_layernorm
        x = self.feed_forward(added(x, self.self_attn, step, cache, norm=before, after=after), step)
        if own is not None:
            opened = gated(self._activation, linear(self.per_layer_input_gate, x, step), own)
            x = closing(self.per_layer_projection, opened, x, self.post_per_layer_input_norm, step)
        return x * self.layer_scalar

    def feed_forward(self, x: mx.array, step: Step) -> mx.array:
        """x + what is added to it."""
        before, after = self.pre_feedforward_layernorm, self.post_feedforward_layernorm
        return added(x, self.mlp, step, norm=before, after=after)

    def sublayer_parts(self) -> tuple[Any, ...] | None:
        """See `runtime.nn.residual.sublayer.sublayer_parts_of`."""
        if not defined_together(type(self), "__call__", "sublayer_parts"):
            return None
        first = self.self_attn.parts(self.input_layernorm, self.post_attention_layernorm)
        parts: list[AttentionParts | FeedForwardParts | MixtureParts | PerLayerGate | None] = [
            first,
            self.feeds(),
        ]
        if self._fed:
            opening, close = self.per_layer_input_gate, self.per_layer_projection
            parts.append(
                per_layer_gate(opening, self._activation, self._place, close, self.post_per_layer_input_norm)
            )
        return None if None in parts else (*parts, Multiply(self.layer_scalar, self._width))

    def feeds(self) -> FeedForwardParts | MixtureParts | None:
        """What `feed_forward` adds."""
        return self.mlp.parts(self.pre_feedforward_layernorm, self.post_feedforward_layernorm)


class MixtureBlock(Block):
    """The experts run beside the MLP; both read the raw stream through norms of their own, as does the
    router.
    """

    def __init__(self, config: Config, layer: Layer, rope: Rope, place: int, mixture: Mixture) -> None:
        super().__init__(config, layer, rope, place)
        hidden, eps = config.hidden_size, config.norm_eps
        self.router = Router(config, mixture)
        self.switch_mlp = Experts(
            hidden, mixture.intermediate_size, mixture.experts, activation=config.activation
        )
        self.post_feedforward_layernorm_1 = RMSNorm(hidden, eps=eps)
        self.pre_feedforward_layernorm_2 = RMSNorm(hidden, eps=eps)
        self.post_feedforward_layernorm_2 = RMSNorm(hidden, eps=eps)

    def feed_forward(self, x: mx.array, step: Step) -> mx.array:
        answers = self.switch_mlp(self.pre_feedforward_layernorm_2(x), self.router(x, step), step)
        dense = self.post_feedforward_layernorm_1(self.mlp(self.pre_feedforward_layernorm(x), step))
        both = dense + self.post_feedforward_layernorm_2(answers)
        return added_normed(x, self.post_feedforward_layernorm, both)

    def feeds(self) -> MixtureParts | None:
        norm, after, answered = (
            self.pre_feedforward_layernorm_2,
            self.post_feedforward_layernorm,
            self.post_feedforward_layernorm_2,
        )
        dense = Always(self.mlp, norms=(self.pre_feedforward_layernorm, self.post_feedforward_layernorm_1))
        said = mixture_parts(norm, self.router, None, self.switch_mlp, after, dense)
        if said is None or not norms_fit(None, answered):
            return None
        return said._replace(answered=answered, reading=self.router.reading())


def make_blocks(config: Config, rope: type[Rope] = Rope) -> list[Block]:
    ropes = {layer.rope: rope(layer.rope) for layer in config.layers}
    mixture = config.mixture
    return [
        Block(config, layer, ropes[layer.rope], place)
        if mixture is None
        else MixtureBlock(config, layer, ropes[layer.rope], place, mixture)
        for place, layer in enumerate(config.layers)
    ]


class Trunk(PerLayerTrunk, Taps):
    def __init__(self, config: Config) -> None:
        super().__init__(
            config.hidden_size,
            len(config.layers),
            config.per_layer_size,
            config.per_layer_vocab,
            config.norm_eps,
        )
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = make_blocks(config)
        self.norm = RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.embed_scale = math.sqrt(config.hidden_size)

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        x = step.embedded(self.embed)
        owns, last = self.layer_inputs(step, x), len(self.layers) - 1
        if not self._wanted:
            return self.norm(ops.table.layers(self.layers, x, step, by_layout(caches), owns))
        for place, (layer, cache) in enumerate(zip(self.layers, by_layout(caches), strict=True)):
            x = layer(x, step, cache) if owns is None else layer(x, step, cache, owns[:, :, place])
            if place in self._wanted and place != last:
                self.note(place, x, step)
        x = self.norm(x)
        if last in self._wanted:
            self.note(last, x, step)
        return x

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.embed_tokens, ids, step) * self.embed_scale


class Gemma4(Headed):
    def __init__(self, config: Config) -> None:
        super().__init__(Trunk(config), untied_head(config), cap=config.logit_softcap)

    def decoder_parts(self) -> DecoderParts | None:
        """None where layers are given more than the stream."""
        return None if self.trunk.for_layers else self.decodes(embed_scale=self.trunk.embed_scale)


def build(config: Config) -> Gemma4:
    return Gemma4(config)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Text only, experts stacked, without the keys and values that published files keep for layers that
    share.
    """
    tower = {_expert_name(name): array for name, array in text_tower(weights).items()}
    if config.mixture is not None:
        tower = to_switch(tower, config.mixture.experts)
    spare = (*unused_projections(config.layers), *(("lm_head.",) if config.tied else ()))
    return {name: array for name, array in tower.items() if not name.startswith(spare)}


_EXPERT_NAMES = (
    (".moe.per_expert_scale", ".router.per_expert_scale"),
    (".moe.switch_mlp.", ".switch_mlp."),
    (".experts.switch_glu.", ".switch_mlp."),
    (".moe.experts.", ".experts."),
    (".moe.", ".experts."),
)


def _expert_name(name: str) -> str:
    """Files have called the experts' parts by several names."""
    for theirs, ours in _EXPERT_NAMES:
        if theirs in name:
            return name.replace(theirs, ours)
    return name


_ROWS: tuple[Row, ...] = (
    Row(lambda t, _: t.ends("embed_tokens.weight"), EIGHT_ELSE, "token embedding, also the head"),
    Row(
        lambda t, r: r.promotes and r.experts == 8 and t.has(".k_proj", ".v_proj"),
        EIGHT_ELSE,
        "sensitive matrix",
    ),
    Row(
        lambda t, r: r.promotes and t.has(".v_proj", "down_proj") and in_cadence(t, r),
        EIGHT_ELSE,
        "sensitive matrix, sensitive layer",
    ),
    Row(lambda t, r: r.promotes and sensitive(t), REQUESTED, "as requested"),
)

CHECKPOINT = Checkpoint(rows=_ROWS, experts="experts.switch_glu", towers=USUAL)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(CHECKPOINT),
)
