"""GPT-2: learned positions, LayerNorms, one matrix for q, k and v.

transformers stores its matrices the other way round (`Conv1D`, [in, out]); MLX conversions do not. Which it
is shows in the shape of c_attn.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, LayerSpec
from runtime.cache.protocol import AttentionCache, Caches, StepCache, by_layout
from runtime.cpu.stated import Attends, Feeds
from runtime.errors import UnsupportedModel
from runtime.models.checkpoint import Checkpoint, always
from runtime.models.config import Fields
from runtime.models.family import Family
from runtime.models.headed import Headed, untied_head
from runtime.nn import ops
from runtime.nn.attend import attend, split_heads
from runtime.nn.block import Block as Sublayers
from runtime.nn.block import Place
from runtime.nn.heads import Heads
from runtime.nn.linear import embed, linear
from runtime.nn.mlp import ACTIVATIONS
from runtime.nn.module import Module
from runtime.nn.norm import LayerNorm, Normalize
from runtime.nn.sublayer import added, attends, feeds
from runtime.records import dataclass
from runtime.step import Step


@dataclass(frozen=True, slots=True)
class Config:
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    """Of the MLP."""
    heads: int
    norm_eps: float
    """Added to the variance in each norm."""
    activation: str
    """A name of ACTIVATIONS, in the MLP."""
    tied: bool
    """The output head is the embedding table."""
    context_length: int
    """Tokens."""
    scales: tuple[float, ...]
    """Of each layer: what its attention scores are multiplied by."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    if fields.flag("add_cross_attention"):
        raise UnsupportedModel(
            "config.json: add_cross_attention is true, and only the decoder alone is computed"
        )
    hidden = fields.count("n_embd", 768, high=1 << 20)
    heads = fields.count("n_head", 12, high=4096)
    if hidden % heads:
        fields.refuse("n_embd", f"a multiple of n_head, {heads}")
    return Config(
        vocab_size=fields.count("vocab_size", 50257, high=1 << 24),
        hidden_size=hidden,
        intermediate_size=fields.count("n_inner", 4 * hidden, high=1 << 22),
        heads=heads,
        norm_eps=fields.number("layer_norm_epsilon", 1e-5, low=1e-30),
        activation=fields.choice("activation_function", tuple(ACTIVATIONS), "gelu_new"),
        tied=fields.flag("tie_word_embeddings", True),
        context_length=fields.count("n_positions", 1024, high=1 << 24),
        scales=_scales(fields, hidden // heads),
    )


def _scales(fields: Fields, head_dim: int) -> tuple[float, ...]:
    layers = fields.count("n_layer", 12, high=4096)
    scale = head_dim**-0.5 if fields.flag("scale_attn_weights", True) else 1.0
    shrinks = fields.flag("scale_attn_by_inverse_layer_idx")
    return tuple(scale / (i + 1) if shrinks else scale for i in range(layers))


def layout(config: Config) -> list[LayerSpec]:
    return [Full(config.heads, config.hidden_size // config.heads) for _ in config.scales]


class Attention(Module):
    def __init__(self, config: Config, scale: float) -> None:
        super().__init__()
        self.c_attn = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.c_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self._heads, self._scale = config.heads, scale
        self._attends = Heads(config.heads, config.heads, config.hidden_size // config.heads, scale)

    def __call__(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        queries, keys, values = (
            split_heads(part, self._heads) for part in mx.split(linear(self.c_attn, x, step), 3, axis=-1)
        )
        return linear(self.c_proj, attend(step, cache, queries, keys, values, scale=self._scale), step)

    def states(self, norm: Normalize | None, after: Normalize | None) -> Attends | None:
        """See `sublayer.added`."""
        return attends(self._attends, norm, (self.c_attn,), None, self.c_proj, after)


class MLP(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.hidden_size, config.intermediate_size)
        self.c_proj = nn.Linear(config.intermediate_size, config.hidden_size)
        self._activation = ACTIVATIONS[config.activation]

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        return linear(self.c_proj, self._activation(linear(self.c_fc, x, step)), step)

    def states(self, norm: Normalize | None, after: Normalize | None) -> Feeds | None:
        """See `sublayer.added`."""
        return feeds(norm, (self.c_fc,), self._activation, self.c_proj, after)


class Block(Sublayers):
    def __init__(self, config: Config, scale: float) -> None:
        super().__init__()
        self.ln_1 = LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.attn = Attention(config, scale)
        self.ln_2 = LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = MLP(config)

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        x = added(x, self.attn, step, cache, norm=self.ln_1)
        return added(x, self.mlp, step, norm=self.ln_2)

    def sublayers(self) -> tuple[Place, Place]:
        return (self.attn, self.ln_1, None), (self.mlp, self.ln_2, None)


class Trunk(Module):
    in_turn: ClassVar[str] = "h"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.hidden_size)
        self.wpe = nn.Embedding(config.context_length, config.hidden_size)
        self.h = [Block(config, scale) for scale in config.scales]
        self.ln_f = LayerNorm(config.hidden_size, eps=config.norm_eps)
        self._last = config.context_length - 1

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        # Padding columns count on past a row's tokens, and so past the table where a row is nearly full.
        x = step.embedded(self.embed) + embed(self.wpe, mx.minimum(step.positions, self._last), step)
        return self.ln_f(ops.table.layers(self.h, x, step, by_layout(caches)))

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.wte, ids, step)


class GPT2(Headed):
    trunk_name, table_name = "transformer", "wte"

    def __init__(self, config: Config) -> None:
        super().__init__(Trunk(config), untied_head(config))


def build(config: Config) -> GPT2:
    return GPT2(config)


_MASKS = (".attn.bias", ".attn.masked_bias")
_MATRIX = re.compile(r".*\.(attn\.c_attn|attn\.c_proj|mlp\.c_fc|mlp\.c_proj)\.weight")


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """One prefix for all published ones, no stored masks, matrices as [out, in]."""
    named = {_named(name): array for name, array in weights.items() if not name.endswith(_MASKS)}
    if config.tied:
        named.pop("lm_head.weight", None)
    first = named.get("transformer.h.0.attn.c_attn.weight")
    if first is None or first.shape[0] != config.hidden_size:
        return named
    return {name: array.T if _MATRIX.fullmatch(name) else array for name, array in named.items()}


def _named(name: str) -> str:
    if name.startswith("lm_head."):
        return name
    return "transformer." + name.removeprefix("model.").removeprefix("transformer.")


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(
        Checkpoint(
            input_first=(".c_attn.weight", ".c_proj.weight", ".c_fc.weight"),
            prefix="model.",
            modules=(("model.", "transformer."),),
            spare=(".attn.bias", ".attn.masked_bias"),
        )
    ),
)
