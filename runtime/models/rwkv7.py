"""RWKV-7 "Goose": no attention; every layer mixes each token with the one before it, folds all tokens into a
state (`runtime.nn.scans.wkv7`), and has a feed-forward block that mixes alike.

Names and fields are flash-linear-attention's, in whose form the authors publish the models for transformers.
Layers behind the first blend their values with those of the first, which a step knows by
what the trunk calls `along`.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec, Recurrent, State
from runtime.cache.protocol import ScanningCache
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models.family import Family
from runtime.nn.activation import relu2
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import LayerNorm
from runtime.nn.operations import ops
from runtime.nn.scans.wkv7 import wkv7
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.experts import Weights
from runtime.tensors.names import respelled
from runtime.trunks.headed import untied_head
from runtime.trunks.rwkv import Memories, RwkvLM, RwkvTrunk, one_earlier, rwkv_layout

UNBOUNDED = 1 << 20  # a state has no positions; something must stand where others have a context length
FASTEST = -0.6065306597126334
"""The log of the smallest decay: -exp(-1/2)."""
_TINY = 1e-26
"""Under the root that removal keys are divided by, for keys of zeros."""
_MIXED = "rwkvag"
"""What a fold makes of mixed tokens: queries, decays, keys, values, rates, gates."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Of the pairs of matrices that make decays, gates, rates, and shares of the first layer's values."""

    decay: int
    gate: int
    rate: int
    value: int


@dataclass(frozen=True, slots=True)
class Config:
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    head_dim: int
    norm_eps: float
    norm_bias: bool
    norm_first: bool
    """What enters the first layer is normed."""
    ranks: Ranks
    tied: bool
    context_length: int = UNBOUNDED

    @property
    def heads(self) -> int:
        return self.hidden_size // self.head_dim


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    _refuse_unknown(fields)
    hidden = fields.count("hidden_size", 2048, high=1 << 20)
    layers = fields.count("num_hidden_layers", 24, high=4096)
    heads = fields.count("num_heads", max(hidden // 64, 1), high=1 << 16) if fields.has("num_heads") else None
    head_dim = fields.count("head_dim", 64 if heads is None else max(hidden // heads, 1), high=4096)
    if hidden % head_dim or (heads is not None and heads * head_dim != hidden):
        fields.refuse("head_dim", f"hidden_size {hidden} over the number of heads")
    _refuse_wide_values(fields, hidden, layers)
    wide = int(hidden * fields.number("hidden_ratio", 4, low=0.01, high=1000))
    return Config(
        vocab_size=fields.count("vocab_size", 32000, high=1 << 24),
        hidden_size=hidden,
        intermediate_size=fields.count("intermediate_size", -(-wide // 32) * 32, high=1 << 22),
        layers=layers,
        head_dim=head_dim,
        norm_eps=fields.number("norm_eps", 1e-5, low=1e-30),
        norm_bias=fields.flag("norm_bias", True),
        norm_first=fields.flag("norm_first", True),
        ranks=Ranks(
            decay=fields.count("decay_low_rank_dim", 64, high=1 << 16),
            gate=fields.count("gate_low_rank_dim", 128, high=1 << 16),
            rate=fields.count("a_low_rank_dim", 64, high=1 << 16),
            value=fields.count("v_low_rank_dim", 16, high=1 << 16),
        ),
        tied=fields.flag("tie_word_embeddings"),
    )


def _refuse_unknown(fields: Fields) -> None:
    fields.choice("hidden_act", ("sqrelu",), "sqrelu")
    if fields.has("attn"):
        fields.refuse("attn", "none: layers of attention are not computed here")


def _refuse_wide_values(fields: Fields, hidden: int, layers: int) -> None:
    said = fields.raw.get("value_dim")
    if said not in (None, hidden, [hidden] * layers):
        raise UnsupportedModel(f"config.json: value_dim is not hidden_size, {hidden}, for each layer")


def layout(config: Config) -> list[LayerSpec]:
    state = State((config.heads, config.head_dim, config.head_dim), "float32")
    return rwkv_layout(config.hidden_size, config.layers, Recurrent({"state": state}))


class Bottleneck(Module):
    """up(act(down(x)))"""

    def __init__(
        self,
        hidden: int,
        rank: int,
        activation: Callable[[mx.array], mx.array] | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.down = nn.Linear(hidden, rank, bias=False)
        self.up = nn.Linear(rank, hidden, bias=bias)
        self._activation = activation

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        low = linear(self.down, x, step)
        return linear(self.up, low if self._activation is None else self._activation(low), step)


class TimeMix(Module):
    """[B, L, D] -> [B, L, D]. first: what the first layer's values are known by in a step."""

    mixes: ClassVar[str] = "heads"
    """See `runtime.ranks.rules`."""
    memories: ClassVar[int] = 2
    """Of its layer's, those that are its own."""

    def __init__(self, config: Config, first: str, *, is_first: bool) -> None:
        super().__init__()
        hidden, ranks = config.hidden_size, config.ranks
        for part in _MIXED:
            self[f"x_{part}"] = mx.zeros((hidden,))
        self.k_k, self.k_a, self.r_k = (mx.zeros((hidden,)) for _ in range(3))
        self.r_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(hidden, hidden, bias=False) for _ in range(4)
        )
        self.w_lora = Bottleneck(hidden, ranks.decay, mx.tanh)
        self.a_lora = Bottleneck(hidden, ranks.rate)
        self.g_lora = Bottleneck(hidden, ranks.gate, mx.sigmoid, bias=False)
        if not is_first:
            self.v_lora = Bottleneck(hidden, ranks.value)
        self.g_norm = LayerNorm(hidden, eps=config.head_dim * config.norm_eps)
        self._config, self._first, self._is_first = config, first, is_first
        self._own: tuple[int, int] | None = None

    @property
    def head_size(self) -> int:
        return self._config.head_dim

    def of_channels(self, start: int, stop: int) -> dict[str, Any]:
        """Its attributes where it has these of its channels alone (`runtime.ranks`)."""
        return {"_own": (start, stop)}

    def __call__(self, x: mx.array, step: Step, shift: ScanningCache, fold: ScanningCache) -> mx.array:
        gap = shift.scan(step, one_earlier, x) - x
        mixed = {part: x + gap * self[f"x_{part}"].astype(x.dtype) for part in _MIXED}
        queries, keys = linear(self.r_proj, mixed["r"], step), linear(self.k_proj, mixed["k"], step)
        values = self._values(mixed["v"], step)
        decay = FASTEST * mx.sigmoid(self.w_lora(mixed["w"], step).astype(mx.float32))
        rates = mx.sigmoid(self.a_lora(mixed["a"], step).astype(mx.float32))
        removed = keys.astype(mx.float32) * self.k_k
        keys = keys * (1 + (rates - 1) * self.k_a)
        y = fold.scan(step, self._fold, queries, decay, keys, values, removed, rates)
        y = self._normed(y) + self._echo(queries, keys, values)
        return linear(self.o_proj, (y * self.g_lora(mixed["g"], step)).astype(x.dtype), step)

    def _values(self, x: mx.array, step: Step) -> mx.array:
        """Those of the first layer are made of all channels, also where it has some: other ranks are given
        them.
        """
        made = linear(self.v_proj, x, step)
        first = step.memo(self._first, lambda: made)
        first = first if self._own is None else first[..., slice(*self._own)]
        return first if self._is_first else made + (first - made) * mx.sigmoid(self.v_lora(x, step))

    def _fold(
        self,
        states: dict[str, mx.array],
        queries: mx.array,
        decay: mx.array,
        keys: mx.array,
        values: mx.array,
        removed: mx.array,
        rates: mx.array,
        *,
        counts: mx.array | None,
    ) -> tuple[mx.array, dict[str, mx.array]]:
        """All [B, L, D], removal keys not of length one yet -> y float32 [B, L, D]."""
        size = self._config.head_dim
        parts = (self._by_head(part) for part in (queries, decay, keys, values, removed, rates))
        q, g, k, v, r, a = parts
        r = ops.table.rms(r, _TINY) * size**-0.5
        y, state = wkv7(q, g, k, v, r, a, states["state"], counts=counts, one_by_one=ops.table.steady)
        return y.flatten(2), {"state": state}

    def _normed(self, y: mx.array) -> mx.array:
        """Each head on its own."""
        wide = ops.table.standardize(self._by_head(y), self.g_norm.eps).flatten(2)
        return wide * self.g_norm.weight + self.g_norm.bias

    def _echo(self, queries: mx.array, keys: mx.array, values: mx.array) -> mx.array:
        """What a token says of itself, besides."""
        shares = self._by_head(queries * keys * self.r_k).sum(axis=-1, keepdims=True)
        return (shares * self._by_head(values)).flatten(2)

    def _by_head(self, flat: mx.array) -> mx.array:
        return flat.reshape(*flat.shape[:2], -1, self._config.head_dim)


class ChannelMix(Module):
    """[B, L, D] -> [B, L, D]: the feed-forward block."""

    mixes: ClassVar[str] = "channels"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.x_k = mx.zeros((config.hidden_size,))
        self.key = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.value = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def __call__(self, x: mx.array, step: Step, shift: ScanningCache) -> mx.array:
        mixed = x + (shift.scan(step, one_earlier, x) - x) * self.x_k.astype(x.dtype)
        return linear(self.value, relu2(linear(self.key, mixed, step)), step)


class Block(Module):
    """first: see `TimeMix`."""

    def __init__(self, config: Config, place: int, first: str) -> None:
        super().__init__()

        def norm() -> LayerNorm:
            return LayerNorm(config.hidden_size, eps=config.norm_eps, bias=config.norm_bias)

        if config.norm_first and place == 0:
            self.pre_norm = norm()
        self.attn_norm, self.ffn_norm = norm(), norm()
        self.attn = TimeMix(config, first, is_first=place == 0)
        self.ffn = ChannelMix(config)

    def __call__(self, x: mx.array, step: Step, caches: Memories) -> mx.array:
        shift, fold, shift_behind = caches
        x = self.pre_norm(x) if "pre_norm" in self else x
        x = x + self.attn(self.attn_norm(x), step, shift, fold)
        return x + self.ffn(self.ffn_norm(x), step, shift_behind)


class Trunk(RwkvTrunk):
    along: ClassVar[str] = "values of the first layer"
    """By this a step knows what layers take besides the stream, as wide as that."""


def build(config: Config) -> RwkvLM:
    layers = [Block(config, place, Trunk.along) for place in range(config.layers)]
    norm = LayerNorm(config.hidden_size, eps=config.norm_eps, bias=config.norm_bias)
    return RwkvLM(Trunk(config.vocab_size, config.hidden_size, layers, norm), untied_head(config))


_RENAMED = (("_lora.lora.0.", "_lora.down."), ("_lora.lora.2.", "_lora.up."))
_VECTORS = (*(f".x_{part}" for part in _MIXED), ".k_k", ".k_a", ".r_k", ".g_norm.weight", ".g_norm.bias")


def adapt(config: Config, weights: Weights) -> Weights:
    """Vectors flat, as some have an axis for heads; shares of the token before apart, which the first files
    have in one array.
    """
    adapted: Weights = {}
    for name, array in respelled(weights, _RENAMED).items():
        if config.tied and name.startswith("lm_head."):
            continue
        if name.endswith(".attn.x_x"):
            parts = {f"{name[:-1]}{part}": array[place] for place, part in enumerate(_MIXED)}
            adapted |= {part: own.flatten() for part, own in parts.items()}
            continue
        adapted[name] = array.flatten() if name.endswith(_VECTORS) else array
    return adapted


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
