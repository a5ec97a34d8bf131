"""RWKV-4 (Dove, Raven): no attention; every layer mixes each token with the one before it, and sums values by
weights that fall with every token, channel by channel (`runtime.nn.scans.wkv4`).

The stream is halved behind every few layers (`rescale_every`), and so is what is added to it. That changes
nothing but what norms add to the spread.

Sources: arXiv 2305.13048; transformers modeling_rwkv.py.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec, Recurrent, State
from runtime.cache.protocol import ScanningCache
from runtime.config.decoder import layer_count
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.activation import relu2, sigmoid
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import LayerNorm
from runtime.nn.operations import ops
from runtime.nn.scans.wkv4 import wkv4
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.experts import Weights
from runtime.trunks.headed import untied_head
from runtime.trunks.rwkv import Memories, RwkvLM, RwkvTrunk, one_earlier, rwkv_layout


@dataclass(frozen=True, slots=True)
class Shape:
    """What generations 4 to 6 have in common."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    norm_eps: float
    halved_every: int
    """Behind so many layers the stream is halved; 0: never."""
    tied: bool
    context_length: int


Config = Shape


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("rwkv",))
    hidden = fields.count("hidden_size", 4096, high=1 << 20)
    refuse_wide_folds(fields, hidden)
    return Config(
        vocab_size=fields.count("vocab_size", 50277, high=1 << 24),
        hidden_size=hidden,
        intermediate_size=fields.count("intermediate_size", 4 * hidden, high=1 << 22),
        layers=layer_count(fields, 32),
        norm_eps=fields.number("layer_norm_epsilon", 1e-5, low=1e-30),
        halved_every=read_halving(fields),
        tied=fields.flag("tie_word_embeddings"),
        context_length=fields.count("context_length", 1024),
    )


def refuse_wide_folds(fields: Fields, hidden: int) -> None:
    if fields.count("attention_hidden_size", hidden, high=1 << 20) != hidden:
        fields.refuse("attention_hidden_size", f"hidden_size, {hidden}: no class computes another")


def read_halving(fields: Fields) -> int:
    every = fields.raw.get("rescale_every", 6)
    if type(every) is not int or every > 4096:
        fields.refuse("rescale_every", "a number of layers")
    return max(every, 0)


def layout(config: Config) -> list[LayerSpec]:
    sums = Recurrent({name: State((config.hidden_size,), "float32") for name in ("top", "sum", "weight")})
    return rwkv_layout(config.hidden_size, config.layers, sums)


Mixes = Callable[[mx.array, Step, ScanningCache, ScanningCache], mx.array]
"""x [B, L, D], the memory of the last token, and that of the fold -> [B, L, D]."""


class Shares(Module):
    """How much of each token is mixed with what is left of the one before it, in each channel."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = mx.zeros((hidden,))

    def __call__(self, x: mx.array, before: mx.array) -> mx.array:
        share = self.weight.astype(x.dtype)
        return x * share + before * (1 - share)


class Sums(Module):
    """[B, L, D] -> [B, L, D]"""

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.time_decay, self.time_first = mx.zeros((hidden,)), mx.zeros((hidden,))
        self.mix_key, self.mix_value, self.mix_receptance = (Shares(hidden) for _ in range(3))
        self.key, self.value, self.receptance, self.output = (
            nn.Linear(hidden, hidden, bias=False) for _ in range(4)
        )

    def __call__(self, x: mx.array, step: Step, shift: ScanningCache, sums: ScanningCache) -> mx.array:
        before = shift.scan(step, one_earlier, x)
        keys = linear(self.key, self.mix_key(x, before), step)
        values = linear(self.value, self.mix_value(x, before), step)
        opened = sigmoid(linear(self.receptance, self.mix_receptance(x, before), step))
        summed = sums.scan(step, self._scan, keys, values).astype(x.dtype)
        return linear(self.output, opened * summed, step)

    def _scan(
        self, states: dict[str, mx.array], keys: mx.array, values: mx.array, *, counts: mx.array | None
    ) -> tuple[mx.array, dict[str, mx.array]]:
        decay, first = -mx.exp(self.time_decay.astype(mx.float32)), self.time_first.astype(mx.float32)
        state = states["top"], states["sum"], states["weight"]
        y, (top, total, weight) = wkv4(
            decay, first, keys, values, state, counts=counts, one_by_one=ops.table.steady
        )
        return y, {"top": top, "sum": total, "weight": weight}


class FeedForward(Module):
    """[B, L, D] -> [B, L, D]. shares: makes how tokens are mixed."""

    mixes: ClassVar[str] = "channels"
    """See `runtime.ranks.rules`."""

    def __init__(self, config: Shape, shares: Callable[[int], Module] = Shares) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.mix_key, self.mix_receptance = shares(hidden), shares(hidden)
        self.key, self.value = nn.Linear(hidden, inner, bias=False), nn.Linear(inner, hidden, bias=False)
        self.receptance = nn.Linear(hidden, hidden, bias=False)

    def __call__(self, x: mx.array, step: Step, shift: ScanningCache) -> mx.array:
        before = shift.scan(step, one_earlier, x)
        inner = relu2(linear(self.key, self.mix_key(x, before), step))
        opened = sigmoid(linear(self.receptance, self.mix_receptance(x, before), step))
        return opened * linear(self.value, inner, step)


class Block(Module):
    def __init__(self, config: Shape, place: int, attention: Mixes, feed_forward: FeedForward) -> None:
        super().__init__()

        def norm() -> LayerNorm:
            return LayerNorm(config.hidden_size, eps=config.norm_eps)

        if place == 0:
            self.pre_ln = norm()
        self.ln1, self.ln2 = norm(), norm()
        self.attention, self.feed_forward = attention, feed_forward
        every = config.halved_every
        self._share = 0.5 ** (place // every) if every else 1.0
        self._halves = every > 0 and (place + 1) % every == 0

    def __call__(self, x: mx.array, step: Step, caches: Memories) -> mx.array:
        shift, sums, shift_behind = caches
        x = self.pre_ln(x) if "pre_ln" in self else x
        x = x + self.attention(self.ln1(x), step, shift, sums) * self._share
        x = x + self.feed_forward(self.ln2(x), step, shift_behind) * self._share
        return x * 0.5 if self._halves else x


_LAST_EPS = 1e-5
"""Of the last norm, whatever a file says of the others."""


def build(config: Config) -> RwkvLM:
    layers = [Block(config, place, Sums(config), FeedForward(config)) for place in range(config.layers)]
    return with_head(config, layers)


def with_head(config: Shape, layers: Sequence["Block"]) -> RwkvLM:
    norm = LayerNorm(config.hidden_size, eps=_LAST_EPS)
    return RwkvLM(RwkvTrunk(config.vocab_size, config.hidden_size, layers, norm), untied_head(config))


def own_name(name: str) -> str:
    """Of a tensor, by its name in files."""
    name = name.removeprefix("rwkv.")
    if name.startswith("head."):
        return f"lm_head.{name.removeprefix('head.')}"
    return "model." + name.replace("blocks.", "layers.", 1).replace("ln_out.", "norm.")


def adapt(config: Config, weights: Weights) -> Weights:
    """Shares of tokens flat, and under a module of their own."""
    adapted: Weights = {}
    for name, array in weights.items():
        name = own_name(name)
        if config.tied and name.startswith("lm_head."):
            continue
        stem, mixed, part = name.partition(".time_mix_")
        adapted[f"{stem}.mix_{part}.weight" if mixed else name] = array.flatten() if mixed else array
    return adapted


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt, wide=(".time_decay", ".time_first"))
