"""Zamba (1): Mamba layers, and one transformer block that every sixth of them runs, too.

Mixers are Mamba's in several heads: each has step sizes, B and C of its own, made of its own channels. What
in_proj gives are channels and their gates in turn. Attention is over the stream and the embeddings side by
side, without positions, and its scores are those of heads of half the size.

Source: arXiv 2405.16712; transformers modeling_zamba.py.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import AttentionCache, ScanningCache
from runtime.config.decoder import layer_count, read_shape
from runtime.config.fields import Fields
from runtime.config.mamba import read_mamba1
from runtime.errors import UnsupportedModel
from runtime.models.family import RATES, Family
from runtime.models.zamba2 import SharedAttention, read_hybrid, require_tied
from runtime.nn.activation import gated, silu
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import RMSNorm
from runtime.nn.operations import ops
from runtime.nn.recurrent.conv import CausalConv, with_filters
from runtime.nn.recurrent.mamba1 import Mamba1Spec
from runtime.parts.heads import Heads
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.headed import Headed
from runtime.trunks.shared_block import SharingConfig, SharingTrunk, sharing_layout, without_repeats


@dataclass(frozen=True, slots=True)
class Config(SharingConfig):
    mixer: Mamba1Spec
    mixer_heads: int
    """Of a mixer: equal parts of its channels."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    hidden = fields.count("hidden_size", 3712, high=1 << 20)
    heads = fields.count("num_attention_heads", 16, high=4096)
    require_tied(fields)
    if fields.has("attention_hidden_size") and fields.count("attention_hidden_size") != 2 * hidden:
        fields.refuse("attention_hidden_size", f"{2 * hidden}, as the stream and the embeddings have")
    shape = read_shape(
        fields,
        eps=1e-5,
        activation="gelu",
        tied=True,
        num_attention_heads=16,
        num_key_value_heads=16,
        head_dim=max(2 * hidden // heads, 1),
        vocab_size=32000,
        hidden_size=3712,
        intermediate_size=14848,
        max_position_embeddings=4096,
    )
    hybrid = read_hybrid(fields) if fields.has("layers_block_type") else _by_period(fields)
    mixer_heads = fields.count("n_mamba_heads", 2, high=1 << 16)
    mixer = read_mamba1(fields, shape["hidden_size"], shape["norm_eps"], "hidden_mamba_act")
    if mixer.inner % mixer_heads:
        raise UnsupportedModel(
            f"config.json: {mixer.inner} mamba channels do not divide into {mixer_heads} heads"
        )
    return Config(
        **shape,
        windows=(None,) * len(hybrid),
        ropes=(None,) * len(hybrid),
        hybrid=hybrid,
        blocks=1,
        mixer=mixer,
        mixer_heads=mixer_heads,
    )


def _by_period(fields: Fields) -> tuple[bool, ...]:
    layers = layer_count(fields, 76)
    if layers < 3:
        fields.refuse("num_hidden_layers", "3 at least, or layers_block_type")
    period, offset = fields.count("attn_layer_period", 6), fields.count("attn_layer_offset", 4, low=0)
    kinds = (i % period == offset for i in range(layers - 3))
    said = ["hybrid" if hybrid else "linear_attention" for hybrid in (False, False, True, *kinds)]
    fields.take("layers_block_type", said)
    return tuple(kind == "hybrid" for kind in said)


def layout(config: Config) -> list[LayerSpec]:
    return sharing_layout(config, config.mixer.memory)


class ScanHead(Module):
    """A part of the channels, with a state space of its own."""

    def __init__(self, spec: Mamba1Spec, channels: int) -> None:
        super().__init__()
        self.x_proj = nn.Linear(channels, spec.rank + 2 * spec.state, bias=False)
        self.dt_proj = nn.Linear(spec.rank, channels, bias=True)
        self.A_log = mx.zeros((channels, spec.state))
        self.D = mx.zeros((channels,))
        self._cuts = spec.rank, spec.rank + spec.state

    def scan(
        self, x: mx.array, state: mx.array, counts: mx.array | None, step: Step
    ) -> tuple[mx.array, mx.array]:
        """x [B, L, channels], state [B, N, channels] of N numbers each -> y float32 as x, and the state
        behind it.
        """
        ranks, inputs, outputs = mx.split(linear(self.x_proj, x, step), self._cuts, axis=-1)
        steps = linear(self.dt_proj, ranks, step)
        return ops.table.selective_scan(self, x, steps, inputs, outputs, state, counts)


class Mixer(Module):
    def __init__(self, spec: Mamba1Spec, heads: int) -> None:
        super().__init__()
        self.in_proj = nn.Linear(spec.hidden, 2 * spec.inner, bias=spec.bias)
        self.conv1d = CausalConv(spec.inner, spec.taps, bias=spec.conv_bias)
        self.heads = [ScanHead(spec, spec.inner // heads) for _ in range(heads)]
        self.out_proj = nn.Linear(spec.inner, spec.hidden, bias=spec.bias)

    def __call__(self, x: mx.array, step: Step, cache: ScanningCache) -> mx.array:
        pairs = linear(self.in_proj, x, step).reshape(*x.shape[:2], -1, 2)
        y = cache.scan(step, partial(self._scan, step), pairs[..., 0])
        y = gated(silu, pairs[..., 1].astype(mx.float32), y)
        return linear(self.out_proj, y.astype(x.dtype), step)

    def _scan(
        self, step: Step, states: dict[str, mx.array], mixed: mx.array, *, counts: mx.array | None
    ) -> tuple[mx.array, dict[str, mx.array]]:
        """mixed [B, L, inner] -> y float32 [B, L, inner]."""
        x, conv = self.conv1d(mixed, states["conv"], counts, silu=True)
        count = len(self.heads)
        parts = zip(self.heads, x.split(count, axis=-1), states["state"].split(count, axis=-1), strict=True)
        made = [head.scan(channels, state, counts, step) for head, channels, state in parts]
        y, state = [one for one, _ in made], [one for _, one in made]
        return mx.concatenate(y, axis=-1), {"conv": conv, "state": mx.concatenate(state, axis=-1)}


class SharedBlock(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, inner, eps = config.hidden_size, config.intermediate_size, config.norm_eps
        self.self_attn = SharedAttention(config, None, {})
        self.feed_forward = GatedMLP(hidden, inner, activation=config.activation)
        self.input_layernorm = RMSNorm(2 * hidden, eps=eps)
        self.pre_ff_layernorm = RMSNorm(hidden, eps=eps)

    def __call__(
        self, x: mx.array, embedded: mx.array, use: int, step: Step, cache: AttentionCache
    ) -> mx.array:
        joined = self.input_layernorm(mx.concatenate([x, embedded], axis=-1))
        return self.feed_forward(self.pre_ff_layernorm(self.self_attn(joined, use, step, cache)), step)

    def parts_for(self, use: int, heads: Heads) -> None:
        """Kernels have no mixers in heads, and so no layers with these."""


class Zamba(Headed):
    def __init__(self, config: Config) -> None:
        mixer = partial(Mixer, config.mixer, config.mixer_heads)
        super().__init__(SharingTrunk(config, [SharedBlock(config)], mixer), None)


def build(config: Config) -> Zamba:
    return Zamba(config)


_NAMES = ((".shared_transf.", ".shared_transformer."),)
_OF_HEADS = {
    "x_proj_weight": "x_proj.weight",
    "dt_proj_weight": "dt_proj.weight",
    "dt_proj_bias": "dt_proj.bias",
    "A_log": "A_log",
    "D": "D",
}


def adapt(config: Config, weights: Weights) -> Weights:
    """Filters to MLX's axis order; the shared block once; each head's numbers by themselves."""
    named = without_repeats(config, respelled(without_spares(config, weights), _NAMES, trunk="model."))
    adapted: Weights = {}
    for name, array in with_filters(named).items():
        place, _, last = name.rpartition(".")
        if last not in _OF_HEADS:
            adapted[name] = array
            continue
        for head in range(config.mixer_heads):
            adapted[f"{place}.heads.{head}.{_OF_HEADS[last]}"] = array[head]
    return adapted


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=RATES,
    checkpoint=always(Checkpoint(repeated="shared_transf")),
)
