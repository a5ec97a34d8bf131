"""ModernBERT: an encoder that looks both ways, with rotations and windows, for embeddings.

Norms stand before the sublayers, but none before the first attention: the embeddings were normed. One layer
in some sees the whole text, the others half of `local_attention` to either side, and the two kinds rotate by
bases of their own. Sources: arXiv 2412.13663; transformers modeling_modernbert.py.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec, Stateless
from runtime.cache.protocol import Caches
from runtime.config.decoder import layer_count
from runtime.config.fields import Fields, whole_heads
from runtime.config.rope_block import only_repeats
from runtime.models.family import Family
from runtime.nn.activation import gated
from runtime.nn.attention.attend import split_heads
from runtime.nn.attention.bidirectional import attend_both_ways
from runtime.nn.feed_forward.mlp import ACTIVATIONS
from runtime.nn.linear import embed, linear
from runtime.nn.module import Module
from runtime.nn.norm import LayerNorm
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.quantizing import EIGHT_ELSE, Row
from runtime.trunks.encoder import Encoder

FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, slots=True)
class Config:
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    heads: int
    norm_eps: float
    """Added to the variance in each norm."""
    activation: str
    """A name of ACTIVATIONS, of the half that gates."""
    norm_bias: bool
    attention_bias: bool
    mlp_bias: bool
    context_length: int
    """Tokens."""
    windows: tuple[int | None, ...]
    """Of each layer: tokens that are seen to either side; None: all."""
    ropes: tuple[RopeSpec, ...]
    """Of each layer."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    hidden = fields.count("hidden_size", 768, high=1 << 20)
    heads = fields.count("num_attention_heads", 12, high=4096)
    if hidden % heads:
        fields.refuse("hidden_size", f"a multiple of num_attention_heads, {heads}")
    refuse_head_dim(fields, hidden // heads)
    context = fields.count("max_position_embeddings", 8192)
    kinds = kinds_of_layers(fields)
    window = half_of_window(fields, kinds)
    specs = ropes_of_kinds(fields, hidden // heads, context)
    return Config(
        vocab_size=fields.count("vocab_size", 50368, high=1 << 24),
        hidden_size=hidden,
        intermediate_size=fields.count("intermediate_size", 1152, high=1 << 22),
        heads=heads,
        norm_eps=fields.number("norm_eps", 1e-5, low=1e-30),
        activation=fields.choice("hidden_activation", tuple(ACTIVATIONS), "gelu"),
        norm_bias=fields.flag("norm_bias"),
        attention_bias=fields.flag("attention_bias"),
        mlp_bias=fields.flag("mlp_bias"),
        context_length=context,
        windows=tuple(window if kind == SLIDING else None for kind in kinds),
        ropes=tuple(specs[kind] for kind in kinds),
    )


def half_of_window(fields: Fields, kinds: tuple[str, ...]) -> int:
    """To either side. transformers takes it under the name of its half, too, and that is what counts."""
    if fields.has("sliding_window"):
        return fields.count("sliding_window")
    if SLIDING in kinds and fields.raw.get("local_attention", 128) is None:
        fields.refuse("local_attention", "a whole number, as some of the layers have a window")
    return fields.count("local_attention", 128) // 2


def kinds_of_layers(fields: Fields) -> tuple[str, ...]:
    layers = layer_count(fields, 22)
    listed = fields.words("layer_types", layers, (FULL, SLIDING))
    if listed is not None:
        return listed
    every = fields.count("global_attn_every_n_layers", 3)
    return tuple(SLIDING if i % every else FULL for i in range(layers))


def ropes_of_kinds(fields: Fields, head_dim: int, context: int) -> dict[str, RopeSpec]:
    """By kind of layer. Files of before transformers 5 say no more than two bases."""
    if fields.has("rope_scaling") and not only_repeats(fields.raw):
        fields.refuse("rope_scaling", "nothing beyond rope_parameters: write it in there")
    found: dict[str, RopeSpec] = {}
    bases = ((FULL, "global_rope_theta", 160000.0), (SLIDING, "local_rope_theta", 10000.0))
    for kind, field, default in bases:
        base = fields.number(field, default, low=2.0)
        parameters = whole_heads(fields.rope_parameters(kind, theta=base))
        found[kind] = read_rope(parameters, head_dim=head_dim, max_positions=context)
    return found


def refuse_head_dim(fields: Fields, size: int) -> None:
    if fields.has("head_dim") and fields.count("head_dim") != size:
        fields.refuse("head_dim", f"{size}, the hidden size over the heads")


def layout(config: Config) -> list[LayerSpec]:
    return [Stateless() for _ in config.windows]


def _norm(config: Config) -> LayerNorm:
    return LayerNorm(config.hidden_size, eps=config.norm_eps, bias=config.norm_bias)


class Embeddings(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.norm = _norm(config)


class Attention(Module):
    def __init__(self, config: Config, rope: Rope, window: int | None) -> None:
        super().__init__()
        self.Wqkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=config.attention_bias)
        self.Wo = nn.Linear(config.hidden_size, config.hidden_size, bias=config.attention_bias)
        self._heads, self._rope, self._window = config.heads, rope, window
        self._scale = (config.hidden_size // config.heads) ** -0.5

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        parts = mx.split(linear(self.Wqkv, x, step), 3, axis=-1)
        queries, keys, values = (split_heads(part, self._heads) for part in parts)
        seen = attend_both_ways(
            self._rope(queries, step),
            self._rope(keys, step),
            values,
            scale=self._scale,
            window=self._window,
            counts=step.counts,
        )
        return linear(self.Wo, seen, step)


class FeedForward(Module):
    """The first half of Wi gates the second."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.Wi = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=config.mlp_bias)
        self.Wo = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)
        self._activation = ACTIVATIONS[config.activation]

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        gate, up = mx.split(linear(self.Wi, x, step), 2, axis=-1)
        return linear(self.Wo, gated(self._activation, gate, up), step)


class Layer(Module):
    def __init__(self, config: Config, layer: int, rope: Rope) -> None:
        super().__init__()
        if layer:
            self.attn_norm = _norm(config)
        self.attn = Attention(config, rope, config.windows[layer])
        self.mlp_norm = _norm(config)
        self.mlp = FeedForward(config)
        self._normed = layer > 0

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        x = x + self.attn(self.attn_norm(x) if self._normed else x, step)
        return x + self.mlp(self.mlp_norm(x), step)


class ModernBert(Encoder):
    shifts: ClassVar[tuple[()]] = ()

    def __init__(self, config: Config) -> None:
        super().__init__()
        ropes = {spec: Rope(spec) for spec in config.ropes}
        self.embeddings = Embeddings(config)
        self.layers = [Layer(config, i, ropes[spec]) for i, spec in enumerate(config.ropes)]
        self.final_norm = _norm(config)

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        x = self.embeddings.norm(step.embedded(self.embed))
        for layer in self.layers:
            x = layer(x, step)
        return self.final_norm(x)

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.embeddings.tok_embeddings, ids, step)


def build(config: Config) -> ModernBert:
    return ModernBert(config)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return {name.removeprefix("model."): array for name, array in weights.items()}


ROWS: tuple[Row, ...] = (Row(lambda t, r: r.promotes and t.has(".mlp.Wo."), EIGHT_ELSE, "sensitive matrix"),)

FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    writes=False,
    checkpoint=always(Checkpoint(rows=ROWS, unread=("head", "decoder", "classifier"))),
)
