"""Encoders that look both ways and rotate queries and keys: BERT's order of sublayers without its positions.

A LayerNorm behind every sublayer and behind the embeddings. Families (Nomic BERT, GTE, Jina) differ in where
biases are, and in whether feed-forward blocks have a gate.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec, Stateless
from runtime.cache.protocol import Caches
from runtime.config.fields import Fields, whole_heads
from runtime.models.family import Family
from runtime.nn.attention.attend import split_heads
from runtime.nn.attention.bidirectional import attend_both_ways
from runtime.nn.feed_forward.mlp import ACTIVATIONS, MLP, GatedMLP
from runtime.nn.layer import FeedForward
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import LayerNorm
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec, read_rope
from runtime.nn.residual.sublayer import projections
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint
from runtime.tensors.names import renamed
from runtime.tensors.quantizing import EIGHT_ELSE, SOURCE, Row
from runtime.trunks.encoder import Encoder, TypedEmbeddings


@dataclass(frozen=True, slots=True)
class Config:
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    head_dim: int
    norm_eps: float
    """Added to the variance in each norm."""
    activation: str
    """A name of ACTIVATIONS, of the half that gates."""
    types: int
    """Rows of the table of token types, of which the first is every token's; 0 for no table."""
    context_length: int
    """Tokens."""
    rope: RopeSpec
    biased: bool = False
    """Have the matrices biases? Those of a gate and what it gates never do."""
    gated: bool = True
    """Do feed-forward blocks have a gate?"""


def read_sizes(
    fields: Fields,
    *,
    theta: float,
    activation: str,
    layer_norm_eps: float,
    head_dim: int | None = None,
    least_types: int = 1,
    **counts: int,
) -> dict[str, Any]:
    """Config's fields but `biased` and `gated`. What a config need not say: theta, activation, layer_norm_eps
    and counts (all that are read here, by config.json's names). head_dim: where a config cannot say it.
    """
    hidden = fields.count("hidden_size", counts["hidden_size"], high=1 << 20)
    heads = fields.count("num_attention_heads", counts["num_attention_heads"], high=4096)
    size = head_dim or fields.count("head_dim", max(hidden // heads, 1), high=4096)
    context = fields.count("max_position_embeddings", counts["max_position_embeddings"])
    rope = whole_heads(fields.rope_parameters(theta=theta))
    types = fields.count("type_vocab_size", counts["type_vocab_size"], low=least_types, high=1 << 16)
    return {
        "vocab_size": fields.count("vocab_size", counts["vocab_size"], high=1 << 24),
        "hidden_size": hidden,
        "intermediate_size": fields.count("intermediate_size", counts["intermediate_size"], high=1 << 22),
        "layers": fields.count("num_hidden_layers", counts["num_hidden_layers"], high=4096),
        "heads": heads,
        "head_dim": size,
        "norm_eps": fields.number("layer_norm_eps", layer_norm_eps, low=1e-30),
        "activation": fields.choice("hidden_act", tuple(ACTIVATIONS), activation),
        "types": types,
        "context_length": context,
        "rope": read_rope(rope, head_dim=size, max_positions=context),
    }


def layout(config: Config) -> list[LayerSpec]:
    return [Stateless() for _ in range(config.layers)]


def _norm(config: Config) -> LayerNorm:
    return LayerNorm(config.hidden_size, eps=config.norm_eps)


class Attention(Module):
    def __init__(self, config: Config, rope: Rope) -> None:
        super().__init__()
        inner = config.heads * config.head_dim
        self.q_proj, self.k_proj, self.v_proj = (
            nn.Linear(config.hidden_size, inner, bias=config.biased) for _ in range(3)
        )
        self.o_proj = nn.Linear(inner, config.hidden_size, bias=config.biased)
        self._heads, self._rope, self._scale = config.heads, rope, config.head_dim**-0.5

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        parts = projections((self.q_proj, self.k_proj, self.v_proj), x, step)
        queries, keys, values = (split_heads(part, self._heads) for part in parts)
        queries, keys = self._rope(queries, step), self._rope(keys, step)
        seen = attend_both_ways(queries, keys, values, scale=self._scale, counts=step.counts)
        return linear(self.o_proj, seen, step)


def feed_forward(config: Config) -> GatedMLP | MLP:
    hidden, inner = config.hidden_size, config.intermediate_size
    if not config.gated:
        return MLP(hidden, inner, ACTIVATIONS[config.activation], bias=config.biased)
    made = GatedMLP(hidden, inner, activation=config.activation)
    if config.biased:
        made.down_proj = nn.Linear(inner, hidden)
    return made


class Layer(Module):
    def __init__(self, config: Config, rope: Rope, mlp: FeedForward) -> None:
        super().__init__()
        self.self_attn = Attention(config, rope)
        self.post_attention_layernorm = _norm(config)
        self.mlp: FeedForward = mlp
        self.post_mlp_layernorm = _norm(config)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        x = self.post_attention_layernorm(x + self.self_attn(x, step))
        return self.post_mlp_layernorm(x + self.mlp(x, step))


class RotaryEncoder(Encoder):
    shifts: ClassVar[tuple[()]] = ()

    def __init__(self, config: Config, mlps: Iterable[FeedForward] | None = None) -> None:
        """mlps: of each layer; None: what the config says, in all of them."""
        super().__init__()
        rope = Rope(config.rope)
        sizes = config.vocab_size, config.types, config.hidden_size
        self.embeddings = TypedEmbeddings(*sizes, config.norm_eps)
        mlps = (feed_forward(config) for _ in range(config.layers)) if mlps is None else mlps
        self.layers = [Layer(config, rope, mlp) for mlp in mlps]

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        x = self.embeddings(step.embedded(self.embed), step)
        for layer in self.layers:
            x = layer(x, step)
        return x

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return self.embeddings.embed(ids, step)


_UNREAD = ("pooler", "cls", "lm_head", "classifier", "position_ids", "inv_freq")
"""Heads for other tasks, and buffers."""


def plainly(
    weights: dict[str, mx.array],
    prefixes: Iterable[str],
    rules: Iterable[tuple[re.Pattern[str], str]],
    fused: Iterable[tuple[re.Pattern[str], tuple[str, ...]]],
) -> dict[str, mx.array]:
    """In the names used here, and a matrix for each of those that lie in one. fused: a pattern whose groups
    are what stands before and behind, and the names of the parts, of which each has as many rows. Rows are
    cut, so packed ones can be, too.
    """
    rules, fused, found = tuple(rules), tuple(fused), dict[str, mx.array]()
    for name, array in weights.items():
        name = renamed(name, prefixes, rules)
        hit = next(((match, parts) for one, parts in fused if (match := one.fullmatch(name))), None)
        if hit is None or array.shape[0] % len(hit[1]):
            found[name] = array
            continue
        match, parts = hit
        for part, rows in zip(parts, mx.split(array, len(parts)), strict=True):
            found[f"{match[1]}{part}{match[2]}"] = rows
    return found


QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


def family(
    parse: Callable[[Mapping[str, Any]], Config],
    adapt: Callable[[Any, dict[str, mx.array]], dict[str, mx.array]],
    *sensitive: str,
    build: Callable[[Any], Encoder] = RotaryEncoder,
    experts: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _: {},
    **more: Any,
) -> Family:
    """sensitive: what names of matrices have that get more bits. experts: what is particular to those of
    files, as fields of `Checkpoint`. more: other fields of the family.
    """
    rows = (
        Row(lambda t, _: t.ends("token_type_embeddings.weight"), SOURCE, "table of types"),
        Row(lambda t, r: r.promotes and t.has(*sensitive), EIGHT_ELSE, "sensitive matrix"),
    )
    return Family(
        parse=parse,
        layout=layout,
        build=build,
        adapt=adapt,
        writes=False,
        checkpoint=lambda text: Checkpoint(rows=rows, unread=_UNREAD, **experts(text)),
        **more,
    )
