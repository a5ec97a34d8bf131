"""PLaMo 2: Mamba layers and attention layers in turn, each followed by a feed-forward block, all of them with
norms on both sides.

A Mamba layer makes step sizes, B and C of what left its convolution and norms them, as Jamba's does; there is
one step per head, so the fold is Mamba-2's. Attention is under a window but for the layers that
`full_attention_idx` names, as in the authors' own code; mlx-lm, vLLM and llama.cpp look at all tokens.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec, Recurrent, State
from runtime.cache.protocol import ScanningCache, StepCache
from runtime.config.decoder import (
    DecoderConfig,
    layer_count,
    listed_layers,
    one_rope,
    read_shape,
)
from runtime.config.fields import Fields
from runtime.models.family import RATES, Family
from runtime.nn.activation import gated, silu
from runtime.nn.attention.fused_attention import FusedHeadNormAttention
from runtime.nn.feed_forward.mlp import FusedGatedMLP
from runtime.nn.layer import Mixer
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import RMSNorm, rms
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.nn.recurrent.conv import CausalConv, with_filters
from runtime.nn.residual.block import Block as Sublayers
from runtime.nn.residual.block import NormedSublayer
from runtime.nn.residual.sublayer import added
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.experts import Weights
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, attention_layout, layer_ropes

HEAD_EPS = 1e-6
"""Of the norms of query and key heads, whatever a config says of others."""
_LONGEST = 10 << 20  # tokens that the authors' class allows at least
OFFSETS = {
    "model.norm.weight": 1.0,
    ".pre_mixer_norm.weight": 1.0,
    ".post_mixer_norm.weight": 1 / 5,
    ".pre_mlp_norm.weight": 1.0,
    ".post_mlp_norm.weight": 1 / 5**1.5,
}
"""What files store the weights of norms less."""


@dataclass(frozen=True, slots=True)
class MambaSpec:
    """The sizes of a Mamba layer."""

    hidden: int
    heads: int
    head_dim: int
    state: int
    """Numbers of B and of C, which all heads share."""
    taps: int
    """Of the convolution: tokens that it sees."""
    eps: float
    """Of the norms."""

    groups: int = 1
    """Of heads that share one B and one C: all do."""
    steps: tuple[float, float] = (0.0, float("inf"))
    """Bounds of step sizes: there are none."""

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim

    @property
    def rank(self) -> int:
        """Numbers that step sizes are made of."""
        return max(64, self.hidden // 16)

    @property
    def memory(self) -> Recurrent:
        return Recurrent(
            {
                "conv": State((self.taps - 1, self.inner)),
                "state": State((self.heads, self.state, self.head_dim), "float32"),
            }
        )


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    recurrent: tuple[bool, ...]
    """Of each layer: it is a Mamba layer; else attention."""
    mixer: MambaSpec


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    layers = layer_count(fields, 32)
    shape = _shape(fields)
    recurrent = _recurrent(fields, layers)
    window = fields.count("attention_window_size", 2048)
    full = listed_layers(fields, "full_attention_idx", layers) or (False,) * layers
    rope = _rope(fields, shape)
    _refuse_unknown(fields)
    return Config(
        **shape,
        # Its own token, and as many before it.
        windows=tuple(
            None if folds or wide else window + 1 for folds, wide in zip(recurrent, full, strict=True)
        ),
        ropes=tuple(None if folds else rope for folds in recurrent),
        recurrent=recurrent,
        mixer=MambaSpec(
            hidden=shape["hidden_size"],
            heads=fields.count("mamba_num_heads", 64, high=1 << 16),
            head_dim=shape["head_dim"],
            state=fields.count("mamba_d_state", 64, high=4096),
            taps=fields.count("mamba_d_conv", 4, low=2, high=64),
            eps=shape["norm_eps"],
        ),
    )


def _shape(fields: Fields) -> dict[str, Any]:
    shape = read_shape(
        fields,
        activations=("silu", "swish"),
        tied=True,
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=13312,
        num_attention_heads=32,
        num_key_value_heads=4,
    )
    shape["head_dim"] = fields.count("hidden_size_per_head", 128, high=4096)
    shape["context_length"] = max(shape["context_length"], _LONGEST)
    return shape


def _recurrent(fields: Fields, layers: int) -> tuple[bool, ...]:
    if not fields.flag("mamba_enabled", True):
        return (False,) * layers
    every = fields.count("mamba_step", 2, low=2)
    place = every // 2
    if layers <= place:
        return (*(True,) * (layers - 1), False)
    return tuple(i % every != place for i in range(layers))


def _rope(fields: Fields, shape: dict[str, Any]) -> RopeSpec:
    """The authors' code has one base; vLLM and llama.cpp would take a file's."""
    parameters = fields.rope_parameters()
    if (parameters["rope_type"], parameters["rope_theta"]) != ("default", 10000.0):
        said = next(name for name in ("rope_parameters", "rope_scaling", "rope_theta") if fields.has(name))
        fields.refuse(said, "none: this family rotates by 10000 and not scaled")
    return one_rope(fields, shape)


def _refuse_unknown(fields: Fields) -> None:
    fields.choice("linear_type", ("normal",), "normal")
    for name in ("eval_attention_n_bit", "eval_mlp_n_bit"):
        if fields.has(name):
            fields.refuse(name, "none")


def layout(config: Config) -> list[LayerSpec]:
    attention = attention_layout(config)
    return [
        config.mixer.memory if folds else own for folds, own in zip(config.recurrent, attention, strict=True)
    ]


class Mamba(Module):
    """[B, L, hidden] -> [B, L, hidden]. in_proj gives each head its gate and then its x."""

    reads_all: ClassVar[str] = "bcdt_proj"
    """What reads all channels."""
    total: Callable[[mx.array], mx.array] | None = None
    """Where several processes have some heads each, the sum over them."""

    def __init__(self, spec: MambaSpec) -> None:
        super().__init__()
        self.in_proj = nn.Linear(spec.hidden, 2 * spec.inner, bias=False)
        self.conv1d = CausalConv(spec.inner, spec.taps, bias=False)
        self.bcdt_proj = nn.Linear(spec.inner, 2 * spec.state + spec.rank, bias=False)
        self.dt_proj = nn.Linear(spec.rank, spec.heads, bias=False)
        self.B_norm = RMSNorm(spec.state, eps=spec.eps)
        self.C_norm = RMSNorm(spec.state, eps=spec.eps)
        self.dt_norm = RMSNorm(spec.rank, eps=spec.eps)
        self.dt_bias = mx.zeros((spec.heads,))
        self.A_log = mx.zeros((spec.heads,))
        self.D = mx.zeros((spec.heads,))
        self.out_proj = nn.Linear(spec.inner, spec.hidden, bias=False)
        self._spec = spec

    def __call__(self, x: mx.array, step: Step, cache: ScanningCache) -> mx.array:
        spec = self._spec
        by_head = linear(self.in_proj, x, step).reshape(*x.shape[:2], spec.heads, 2, spec.head_dim)
        gate, mixed = (by_head[..., half, :].flatten(2) for half in range(2))

        given = (mixed,)
        if self.total is not None:
            given = mixed, self.total(linear(self.bcdt_proj, self.conv1d.ahead(mixed, step, cache), step))
        y = gated(silu, gate.astype(mx.float32), cache.scan(step, partial(self._scan, step), *given))
        return linear(self.out_proj, y.astype(x.dtype), step)

    def _scan(
        self,
        step: Step,
        states: dict[str, mx.array],
        mixed: mx.array,
        made: mx.array | None = None,
        *,
        counts: mx.array | None,
    ) -> tuple[mx.array, dict[str, mx.array]]:
        """mixed [B, L, inner], made [B, L, 2 state + rank] -> y float32 [B, L, inner]."""
        spec = self._spec
        x, conv = self.conv1d(mixed, states["conv"], counts, silu=True)
        made = linear(self.bcdt_proj, x, step) if made is None else made
        parts = mx.split(made, (spec.state, 2 * spec.state), axis=-1)
        norms = self.B_norm, self.C_norm, self.dt_norm
        inputs, outputs, ranks = (norm(part) for norm, part in zip(norms, parts, strict=True))
        steps = linear(self.dt_proj, ranks, step)
        folded = mx.concatenate([x, inputs, outputs], axis=-1)
        y, state = ops.table.ssd(self, spec, folded, steps, states["state"], counts)
        return y, {"conv": conv, "state": state}


class HeadRMSNorm(Module):
    """RMSNorm of each head with that head's own weight [heads, D]; x is [B, heads, L, D]."""

    def __init__(self, heads: int, dims: int) -> None:
        super().__init__()
        self.weight = mx.ones((heads, dims))

    def __call__(self, x: mx.array) -> mx.array:
        return rms(x, HEAD_EPS) * self.weight[:, None].astype(x.dtype)


class Block(Sublayers):
    """PLaMo 3's, too."""

    def __init__(self, config: DecoderConfig, mixer: Mixer) -> None:
        super().__init__()
        self.mixer = mixer
        self.mlp = FusedGatedMLP(config.hidden_size, config.intermediate_size, activation=config.activation)
        self.pre_mixer_norm, self.post_mixer_norm, self.pre_mlp_norm, self.post_mlp_norm = (
            RMSNorm(config.hidden_size, eps=config.norm_eps) for _ in range(4)
        )

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        x = added(x, self.mixer, step, cache, norm=self.pre_mixer_norm, after=self.post_mixer_norm)
        return added(x, self.mlp, step, norm=self.pre_mlp_norm, after=self.post_mlp_norm)

    def sublayers(self) -> tuple[NormedSublayer, NormedSublayer]:
        return (
            (self.mixer, self.pre_mixer_norm, self.post_mixer_norm),
            (self.mlp, self.pre_mlp_norm, self.post_mlp_norm),
        )


def _attention(config: Config, rope: Rope | None) -> FusedHeadNormAttention:
    return FusedHeadNormAttention(config, rope, lambda heads: HeadRMSNorm(heads, config.head_dim))


def build(config: Config) -> CausalLM:
    kinds = zip(layer_ropes(config), config.recurrent, strict=True)
    mixers = (Mamba(config.mixer) if recurrent else _attention(config, rope) for rope, recurrent in kinds)
    layers = [Block(config, mixer) for mixer in mixers]
    return CausalLM(config, layers, RMSNorm(config.hidden_size, eps=config.norm_eps))


_RENAMED = (
    ("model.layers.layers.", "model.layers."),
    (".q_weight", ".q_norm.weight"),
    (".k_weight", ".k_norm.weight"),
    ("_norm_weight", "_norm.weight"),
)


def adapt(config: Config, weights: Weights) -> Weights:
    """Norms whole, filters to MLX's axis order, and of a head of its own the rows that ids have: files have a
    multiple of 16.
    """
    named = respelled(without_spares(config, weights), _RENAMED)
    for name in named:
        if name.startswith("lm_head."):
            named[name] = named[name][: config.vocab_size]
    return with_filters(whole_norms(named, OFFSETS))


def whole_norms(weights: Weights, offsets: Mapping[str, float]) -> Weights:
    """With what files store norms less, by the endings of their names."""

    def whole(name: str, array: mx.array) -> mx.array:
        less = next((offset for end, offset in offsets.items() if name.endswith(end)), None)
        return array if less is None else array.astype(mx.float32) + less

    return {name: whole(name, array) for name, array in weights.items()}


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=RATES,
    checkpoint=always(Checkpoint(default_layers=32)),
)
