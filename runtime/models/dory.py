"""Dory 2: states of length 1 that sublayers turn by a learned share (nGPT), and layers in the middle that are
passed several times.

Norms have no weights and make lengths 1. A sublayer's normed answer is approached, channel by channel.
Queries are scaled by channel once they have turned, so that it matters where a text stands; gates close what
heads see, before a norm of all of them. Each pass of the middle layers begins with what the one before came
to, normed, and what entered the first; it has memories of its own.

What entered the first pass lies behind the stream. Published files count attention and MLP as layers of their
own.

Sources: arXiv 2410.01131; transformers modeling_dory.py.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import AttentionCache, Caches, by_layout
from runtime.config.decoder import DecoderConfig, layer_count, read_shape, read_windows, rope_of_kind
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.activation import gated, sigmoid
from runtime.nn.attention.self_attention import Projected, SelfAttention
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.linear import embed, linear
from runtime.nn.module import Module
from runtime.nn.norm import UnitNorm
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.sublayer import projections
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import attention_layout, layer_ropes
from runtime.trunks.headed import Headed, untied_head

_ROPES: dict[str, dict[str, Any]] = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "default", "rope_theta": 1e7},
}


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    """Of the attention's projections, but for that of gates."""
    mlp_bias: bool
    scale_unit: float
    """What stored scales are counted in."""
    share: float
    """How far a sublayer's answer is approached where the stored scale is the unit."""
    first: int
    """Layers before those in the middle."""
    middle: int
    """Layers that are passed several times."""
    passes: int

    def turns(self, place: int) -> range:
        """In which of the passes this layer is passed."""
        if place < self.first:
            return range(1)
        return range(self.passes) if place < self.first + self.middle else range(self.passes - 1, self.passes)


def parse(raw: Mapping[str, Any]) -> Config:
    fields = _joined(Fields(raw))
    fields.choice("model_type", ("dory",))
    fields.choice("recurrent_kv_cache_mode", ("per_loop",), "per_loop")
    layers = layer_count(fields, 36)
    shape = read_shape(
        fields,
        vocab_size=131072,
        hidden_size=2560,
        intermediate_size=7168,
        num_attention_heads=16,
        num_key_value_heads=4,
        head_dim=256,
        max_position_embeddings=8192,
    )
    windows = read_windows(fields, layers, full_every=4, window=fields.count("sliding_window", 1024))
    kinds = ["full_attention" if window is None else "sliding_attention" for window in windows]
    sizes = {"head_dim": shape["head_dim"], "max_positions": shape["context_length"]}
    ropes = {kind: rope_of_kind(fields, kind, _ROPES, **sizes) for kind in sorted(set(kinds))}
    first, middle = _parts(fields, layers)
    return Config(
        **shape,
        windows=windows,
        ropes=tuple(ropes[kind] for kind in kinds),
        bias=fields.flag("attention_bias"),
        mlp_bias=fields.flag("mlp_bias"),
        scale_unit=fields.number("initializer_range", 0.0177, low=1e-9),
        share=fields.number("ngpt_alpha_init", 0.05),
        first=first,
        middle=middle,
        passes=fields.count("n_recurrent_loops", 2, high=64),
    )


def _joined(fields: Fields) -> Fields:
    """Attention and MLP counted as one layer, where the file counts them apart."""
    kinds = fields.raw.get("layer_types")
    if not isinstance(kinds, list | tuple) or "mlp" not in kinds:
        return fields
    if len(kinds) % 2 or any(kind != "mlp" for kind in kinds[1::2]) or "mlp" in kinds[::2]:
        fields.refuse("layer_types", "a kind of attention and mlp in turn")
    counts = ("num_hidden_layers", "n_input_layers", "n_recurrent_layers", "n_output_layers")
    halves: dict[str, int] = {}
    for name, default in zip(counts, (36, 8, None, 8), strict=True):
        if default is None and not fields.has(name):
            continue
        count = fields.count(name, default, low=0, high=8192)
        if count % 2:
            fields.refuse(name, "an even number, as attention and MLP are counted apart")
        halves[name] = count // 2
    return Fields({**fields.raw, **halves, "layer_types": list(kinds[::2])})


def _parts(fields: Fields, layers: int) -> tuple[int, int]:
    """How many layers come first, and how many are in the middle."""
    first = fields.count("n_input_layers", 8, low=0, high=layers)
    last = fields.count("n_output_layers", 8, low=0, high=layers)
    middle = fields.count("n_recurrent_layers", max(layers - first - last, 0), low=0, high=layers)
    if middle < 1 or first + middle + last != layers:
        fields.refuse("n_recurrent_layers", f"one or more, {layers} with n_input_layers and n_output_layers")
    return first, middle


def layout(config: Config) -> list[LayerSpec]:
    """Of each layer, one memory for each pass."""
    specs = attention_layout(config)
    return [spec for place, spec in enumerate(specs) for _ in config.turns(place)]


unit = UnitNorm()
"""Wherever nobody has to know which norm it is."""


def _scaled(stored: mx.array, times: float, dtype: mx.Dtype) -> mx.array:
    return (stored.astype(mx.float32) * times).astype(dtype)


class Attention(SelfAttention):
    norms_together: ClassVar[str] = "attn_sub_norm"
    """Of all that its last projection reads."""

    def __init__(self, config: Config, rope: Rope | None, memories: int) -> None:
        super().__init__(config, rope, qkv_bias=config.bias, output_bias=config.bias)
        self.memories = memories
        inner = config.heads * config.head_dim
        self.gate_proj = nn.Linear(config.hidden_size, inner, bias=False)
        self.sqk = mx.zeros((inner,))
        self.s_gate = mx.zeros((inner,))
        self.attn_sub_norm = UnitNorm()
        self._query_unit = config.head_dim**0.5 / config.scale_unit
        self._gate_unit = config.hidden_size**0.25 / config.scale_unit

    def project(self, x: mx.array, step: Step) -> Projected:
        queries, keys, values = super().project(x, step)
        return unit(queries), unit(keys), values

    def place(self, queries: mx.array, keys: mx.array, step: Step) -> tuple[mx.array, mx.array]:
        queries, keys = super().place(queries, keys, step)
        scale = _scaled(self.sqk, self._query_unit, mx.float32).square().astype(queries.dtype)
        return queries * scale.reshape(self._heads, 1, -1), keys

    def seen(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        out = super().seen(x, step, cache)
        scale = _scaled(self.s_gate, self._gate_unit, mx.float32).square().astype(out.dtype)
        return self.attn_sub_norm(gated(sigmoid, linear(self.gate_proj, x, step) * scale, out))


class MLP(GatedMLP):
    by_inner: ClassVar[bool] = True
    norms_together: ClassVar[str] = "ffn_sub_norm"
    """As above."""

    def __init__(self, config: Config) -> None:
        hidden, inner = config.hidden_size, config.intermediate_size
        super().__init__(hidden, inner, activation=config.activation, bias=config.mlp_bias)
        self.suv_gate = mx.ones((inner,))
        self.suv_up = mx.ones((inner,))
        self.ffn_sub_norm = UnitNorm()
        self._unit = hidden**0.5

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        gate, up = projections((self.gate_proj, self.up_proj), x, step)
        gate = gate * _scaled(self.suv_gate, self._unit, gate.dtype)
        up = up * _scaled(self.suv_up, self._unit, up.dtype)
        return linear(self.down_proj, self.ffn_sub_norm(gated(self._activation, gate, up)), step)


class Block(Module):
    def __init__(self, config: Config, rope: Rope | None, place: int) -> None:
        super().__init__()
        self.self_attn = Attention(config, rope, len(config.turns(place)))
        self.mlp = MLP(config)
        self.lambda_1 = mx.zeros((config.hidden_size,))
        self.lambda_2 = mx.zeros((config.hidden_size,))
        self._unit, self._turns = config.share / config.scale_unit, config.turns(place)
        self._begins = place == config.first

    def __call__(self, x: mx.array, step: Step, memories: Sequence[Any], turn: int) -> mx.array:
        """x [B, L, 2 D]: the stream, and what entered the first pass. turn: which of the passes it is."""
        if turn not in self._turns:
            return x
        state, entered = mx.split(x, 2, axis=-1)
        if self._begins:
            state = unit(state)
            entered = entered if turn else state
            state = state + entered
        state = unit(state)
        answer = self.self_attn(state, step, memories[turn - self._turns.start])
        state = unit(self._approached(state, answer, self.lambda_1))
        state = self._approached(state, self.mlp(state, step), self.lambda_2)
        return mx.concatenate([state, entered], axis=-1)

    def _approached(self, state: mx.array, answer: mx.array, stored: mx.array) -> mx.array:
        return state + mx.abs(_scaled(stored, self._unit, state.dtype)) * (unit(answer) - state)


class Trunk(Module):
    in_turn: ClassVar[str] = "layers"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = [Block(config, rope, place) for place, rope in enumerate(layer_ropes(config))]
        self._passes = config.passes
        self._each = tuple(len(config.turns(place)) for place in range(config.layers))

    @property
    def memories(self) -> tuple[int, ...]:
        """Of each layer; see `runtime.ranks.trunk`."""
        return self._each

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        flat = by_layout(caches)
        x = step.embedded(self.embed)
        hidden = x.shape[-1]
        x = mx.pad(x, [(0, 0), (0, 0), (0, hidden)])
        for turn in range(self._passes):
            start = 0
            for layer, count in zip(self.layers, self._each, strict=True):
                x = layer(x, step, flat[start : start + count], turn)
                start += count
        return unit(x[..., :hidden])

    def goes_round(self, given: Sequence[Any]) -> bool:
        """See `runtime.ranks.stream`."""
        return given[2] + 1 < self._passes

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.embed_tokens, ids, step)


class Scales(Module):
    """Of logits, one for each id."""

    def __init__(self, count: int, unit: float) -> None:
        super().__init__()
        self.weight = mx.zeros((count,))
        self._unit = unit

    def __call__(self, logits: mx.array) -> mx.array:
        return logits * _scaled(self.weight, 1 / self._unit, logits.dtype)


class Dory(Headed):
    def __init__(self, config: Config) -> None:
        super().__init__(Trunk(config), untied_head(config))
        self.logit_scale = Scales(config.vocab_size, config.scale_unit)

    def logits(self, hidden: mx.array, step: Step | None = None) -> mx.array:
        return self.logit_scale(super().logits(hidden, step))


def build(config: Config) -> Dory:
    return Dory(config)


_APART = re.compile(r"(.*\.layers\.)(\d{1,6})\.(mixer|attn_alpha|mlp_alpha)(.*)", re.ASCII)
_SHARES = {"attn_alpha": "lambda_1", "mlp_alpha": "lambda_2"}
_NAMES = (
    ("backbone.", "model."),
    (".embeddings.", ".embed_tokens."),
    (".self_attn.g_proj.", ".self_attn.gate_proj."),
    ("lm_head.logit_scale", "logit_scale.weight"),
)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Published files count attention and MLP apart."""
    named = {_together(name): array for name, array in weights.items()}
    return without_spares(config, respelled(named, _NAMES))


def _together(name: str) -> str:
    found = _APART.fullmatch(name)
    if found is None:
        return name
    layer, own = divmod(int(found[2]), 2)
    part = _SHARES.get(found[3], ("self_attn", "mlp")[own])
    return f"{found[1]}{layer}.{part}{found[4]}"


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
