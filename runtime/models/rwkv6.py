"""RWKV-5 "Eagle" and RWKV-6 "Finch": RWKV-4 whose sums are states of heads (`runtime.nn.scans.wkv6`), each
normed by itself and closed by a gate. In RWKV-6 each token says by how much states fade, and how it is mixed
with the one before it.

Names and fields are those of the authors' files for transformers. Shares are of the token itself in RWKV-5,
of the one before it in RWKV-6.

Sources: arXiv 2404.05892; llama.cpp's rwkv6.cpp, the authors' modeling_rwkv5.py and modeling_rwkv6.py.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec, Recurrent, State
from runtime.cache.protocol import ScanningCache
from runtime.config.decoder import layer_count
from runtime.config.fields import Fields
from runtime.models import rwkv
from runtime.models.family import Family
from runtime.models.rwkv import Block, FeedForward, Shape, Shares, with_head
from runtime.nn.activation import silu
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import LayerNorm
from runtime.nn.operations import ops
from runtime.nn.scans.wkv6 import wkv6
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.experts import Weights
from runtime.trunks.rwkv import RwkvLM, one_earlier, rwkv_layout

_MIXED = "wkvrg"
"""What a fold makes of mixed tokens: decays, keys, values, queries and gates, in the order of files."""


@dataclass(frozen=True, slots=True)
class Config(Shape):
    head_dim: int
    head_eps: float
    """Added to the variance of what a head has seen."""
    by_token: bool
    """RWKV-6: each token says how states fade and how it is mixed."""
    mix_rank: int
    decay_rank: int

    @property
    def heads(self) -> int:
        return self.hidden_size // self.head_dim


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    sixth = fields.choice("model_type", ("rwkv5", "rwkv6")) == "rwkv6"
    if fields.has("proj_low_rank_dim"):
        fields.refuse("proj_low_rank_dim", "none: flash-linear-attention's form of RWKV-6 is not read")
    hidden = fields.count("hidden_size", 768, high=1 << 20)
    size = fields.count("head_size", 64, high=4096)
    rwkv.refuse_wide_folds(fields, hidden)
    if hidden % size:
        fields.refuse("head_size", f"a divisor of hidden_size, {hidden}")
    large = hidden == 4096
    return Config(
        vocab_size=fields.count("vocab_size", 65536, high=1 << 24),
        hidden_size=hidden,
        intermediate_size=fields.count("intermediate_size", int(hidden * 3.5) // 32 * 32, high=1 << 22),
        layers=layer_count(fields, 24),
        norm_eps=fields.number("layer_norm_epsilon", 1e-5, low=1e-30),
        halved_every=rwkv.read_halving(fields),
        tied=fields.flag("tie_word_embeddings"),
        context_length=fields.count("context_length", 4096),
        head_dim=size,
        head_eps=_HEAD_EPS * fields.number("head_size_divisor", 8, low=1e-3) ** 2,
        by_token=sixth,
        mix_rank=64 if large else 32,
        decay_rank=128 if large else 64,
    )


_HEAD_EPS = 1e-5


def layout(config: Config) -> list[LayerSpec]:
    state = State((config.heads, config.head_dim, config.head_dim), "float32")
    return rwkv_layout(config.hidden_size, config.layers, Recurrent({"state": state}))


class Gaps(Module):
    """How much of the token before is mixed into each, in each channel."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = mx.zeros((hidden,))

    def __call__(self, x: mx.array, before: mx.array) -> mx.array:
        return x + (before - x) * self.weight.astype(x.dtype)


class Folds(Module):
    """[B, L, D] -> [B, L, D]. B rows, L tokens, D hidden size, H heads, K head size, R rank."""

    mixes: ClassVar[str] = "heads"
    """See `runtime.ranks.rules`."""
    memories: ClassVar[int] = 2
    """Of its layer's, those that are its own."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.key, self.value, self.receptance, self.gate, self.output = (
            nn.Linear(hidden, hidden, bias=False) for _ in range(5)
        )
        self.ln_x = LayerNorm(hidden, eps=config.head_eps)
        self.first = mx.zeros((hidden,))
        kind = Gaps if config.by_token else Shares
        for part in "xwkvrg" if config.by_token else "kvrg":
            self[f"mix_{part}"] = kind(hidden)
        if config.by_token:
            self.mix_down = nn.Linear(hidden, len(_MIXED) * config.mix_rank, bias=False)
            self.mix_up = mx.zeros((len(_MIXED), config.mix_rank, hidden))
            self.decay_down = nn.Linear(hidden, config.decay_rank, bias=False)
            self.decay_up = nn.Linear(config.decay_rank, hidden)
        else:
            self.decay = mx.zeros((hidden,))
        self._size = config.head_dim

    @property
    def head_size(self) -> int:
        return self._size

    def of_channels(self, _start: int, _stop: int) -> dict[str, Any]:
        """As in `rwkv7`: all that it has is of its own channels."""
        return {}

    def __call__(self, x: mx.array, step: Step, shift: ScanningCache, fold: ScanningCache) -> mx.array:
        before = shift.scan(step, one_earlier, x)
        mixed = self._mixed(x, before, step)
        queries, keys, values = (
            self._by_head(linear(self[name], mixed[part], step))
            for name, part in (("receptance", "r"), ("key", "k"), ("value", "v"))
        )
        decay = self._decay(mixed, queries.shape, step)
        y = fold.scan(step, self._fold, queries, decay, keys, values)
        wide = ops.table.standardize(self._by_head(y), self.ln_x.eps).flatten(2)
        normed = wide * self.ln_x.weight + self.ln_x.bias
        gate = silu(linear(self.gate, mixed["g"], step))
        return linear(self.output, (normed * gate).astype(x.dtype), step)

    def _mixed(self, x: mx.array, before: mx.array, step: Step) -> dict[str, mx.array]:
        if "mix_down" not in self:
            return {part: self[f"mix_{part}"](x, before) for part in "kvrg"}
        low = mx.tanh(linear(self.mix_down, self["mix_x"](x, before), step))
        low = mx.unflatten(low, -1, (len(_MIXED), -1)).swapaxes(1, 2)  # [B, 5, L, R]
        more = ops.table.matmul(low, self.mix_up.astype(low.dtype)[None])
        gap = before - x
        return {part: self[f"mix_{part}"](x, before) + gap * more[:, i] for i, part in enumerate(_MIXED)}

    def _decay(self, mixed: Mapping[str, mx.array], shape: tuple[int, ...], step: Step) -> mx.array:
        """Logarithms, [B, L, H, K]."""
        if "decay" in self:
            rate = self.decay.astype(mx.float32).reshape(-1, self._size)
            return mx.broadcast_to(-mx.exp(rate), shape)
        rate = linear(self.decay_up, mx.tanh(linear(self.decay_down, mixed["w"], step)), step)
        return -mx.exp(self._by_head(rate).astype(mx.float32))

    def _fold(
        self,
        states: dict[str, mx.array],
        queries: mx.array,
        decay: mx.array,
        keys: mx.array,
        values: mx.array,
        *,
        counts: mx.array | None,
    ) -> tuple[mx.array, dict[str, mx.array]]:
        """All [B, L, H, K] -> y float32 [B, L, D]."""
        first = self.first.reshape(-1, self._size)
        state, steady = states["state"], ops.table.steady
        y, state = wkv6(queries, decay, keys, values, first, state, counts=counts, one_by_one=steady)
        return y.flatten(2), {"state": state}

    def _by_head(self, flat: mx.array) -> mx.array:
        return flat.reshape(*flat.shape[:2], -1, self._size)


def build(config: Config) -> RwkvLM:
    shares = Gaps if config.by_token else Shares
    layers = [
        Block(config, place, Folds(config), FeedForward(config, shares)) for place in range(config.layers)
    ]
    return with_head(config, layers)


_LEAVES = {
    "time_faaaa": "first",
    "time_decay": "decay",
    "time_maa_w1": "mix_down.weight",
    "time_maa_w2": "mix_up",
    "time_decay_w1": "decay_down.weight",
    "time_decay_w2": "decay_up.weight",
}
_TURNED = "time_maa_w1", "time_decay_w1", "time_decay_w2"
"""Stored input first."""


def adapt(config: Config, weights: Weights) -> Weights:
    """Vectors flat; shares under modules of their own."""
    adapted: Weights = {}
    for name, array in weights.items():
        name = rwkv.own_name(name)
        stem, _, leaf = name.rpartition(".")
        if config.tied and name.startswith("lm_head."):
            continue
        if leaf in _LEAVES:
            own = "decay_up.bias" if leaf == "time_decay" and config.by_token else _LEAVES[leaf]
            turned = array.T if leaf in _TURNED else array
            adapted[f"{stem}.{own}"] = turned if leaf in _TURNED or leaf.endswith("w2") else array.flatten()
        elif leaf.startswith(("time_mix_", "time_maa_")):
            part = leaf.rpartition("_")[2]
            part = part[0] if ".attention." in name else _WHOLE.get(part, part)
            adapted[f"{stem}.mix_{part}.weight"] = array.flatten()
        else:
            adapted[name] = array
    return adapted


_WHOLE = {"k": "key", "r": "receptance"}
FAMILY = Family(
    parse=parse, layout=layout, build=build, adapt=adapt, wide=(".decay", ".decay_up.bias", ".first")
)
