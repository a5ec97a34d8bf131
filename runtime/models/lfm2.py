"""LFM2 and LFM2-MoE: short gated convolutions, and attention with normed heads every few layers.

A convolution layer remembers its last k-1 inputs and nothing else. The feed-forward width of LFM2 is not
what the config says: it is cut to two thirds and rounded up. Names differ from other families'
(`operator_norm`, `feed_forward.w1`).
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, LayerSpec, Recurrent, State
from runtime.cache.protocol import ScanningCache, StepCache
from runtime.config.decoder import DecoderConfig, layer_count, listed_layers, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import HeadNormAttention
from runtime.nn.feed_forward.experts import Experts
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.feed_forward.router import choose, corrected
from runtime.nn.layer import Mixer
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize, RMSNorm
from runtime.nn.positions.rope import Rope
from runtime.nn.recurrent.conv import CausalConv, with_filters
from runtime.nn.recurrent.parts import recurrent_parts
from runtime.nn.residual.block import Block as Sublayers
from runtime.nn.residual.block import NormedSublayer
from runtime.nn.residual.sublayer import added, mixture_parts
from runtime.parts.feed_forward import MixtureParts, Routing
from runtime.parts.recurrent import RecurrentParts
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint
from runtime.tensors.experts import Weights, to_switch
from runtime.tensors.names import text_tensors
from runtime.tensors.towers import USUAL
from runtime.trunks.decoder import CausalLM, layer_ropes
from runtime.trunks.mixture import MixtureSpec


@dataclass(frozen=True, slots=True)
class ExpertSpec(MixtureSpec):
    dense: int = 0
    """So many first layers have an ordinary feed-forward block."""
    corrected: bool = True
    """A stored number per expert is added to its score for the choice."""


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    convolved: tuple[bool, ...]
    """Of each layer: it is a convolution; else attention."""
    taps: int
    """Tokens that a convolution spans."""
    conv_bias: bool
    expert: ExpertSpec | None
    """None: no layer has experts."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    layers = layer_count(fields)
    sparse = fields.raw.get("model_type") == "lfm2_moe"
    tied = fields.flag("tie_embedding" if fields.has("tie_embedding") else "tie_word_embeddings", True)
    shape = read_shape(
        fields,
        eps_field="norm_eps",
        eps=1e-5,
        tied=tied,
        intermediate_size=7168 if sparse else _stated_width(fields),
        max_position_embeddings=128_000,
        num_key_value_heads=8,
    )
    shape["tied"] = tied
    if not sparse:
        shape["intermediate_size"] = _width(fields)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape, theta=1_000_000.0),) * layers,
        convolved=_convolved(fields, layers),
        taps=fields.count("conv_L_cache", 3, low=2, high=64),
        conv_bias=fields.flag("conv_bias"),
        expert=_experts(fields) if sparse else None,
    )


def _stated_width(fields: Fields) -> int:
    """The first files say it as block_ff_dim alone. Where both names stand, that one counts."""
    name = "block_ff_dim" if fields.has("block_ff_dim") else "intermediate_size"
    return fields.count(name, 12288, high=1 << 22)


def _width(fields: Fields) -> int:
    """The feed-forward width, derived as LFM2 derives it."""
    width = _stated_width(fields)
    if not fields.flag("block_auto_adjust_ff_dim", True):
        return width
    width = 2 * width // 3
    if "block_ffn_dim_multiplier" in fields.raw and not fields.has("block_ffn_dim_multiplier"):
        return width
    width = int(fields.number("block_ffn_dim_multiplier", 1.0, low=1e-3, high=1e3) * width)
    if width < 1:
        fields.refuse("block_ffn_dim_multiplier", "a number that leaves a width")
    unit = fields.count("block_multiple_of", 256, high=1 << 20)
    return -(-width // unit) * unit


def _convolved(fields: Fields, layers: int) -> tuple[bool, ...]:
    words = "conv", "full_attention"
    kinds = fields.words("layer_types", layers, words)
    if kinds is not None:
        return tuple(kind == "conv" for kind in kinds)
    attention = listed_layers(fields, "full_attn_idxs", layers) or (True,) * layers
    return fields.settle("layer_types", words, (not attends for attends in attention))


def _experts(fields: Fields) -> ExpertSpec:
    experts = fields.count("num_experts", 32, high=1 << 16)
    return ExpertSpec(
        dense=fields.count("num_dense_layers", 2, low=0),
        experts=experts,
        chosen=fields.count("num_experts_per_tok", 4, high=experts),
        inner=fields.count("moe_intermediate_size", 1792, high=1 << 22),
        corrected=fields.flag("use_expert_bias", True),
        normalize=fields.flag("norm_topk_prob", True),
        scale=fields.number("routed_scaling_factor", 1.0),
    )


def layout(config: Config) -> list[LayerSpec]:
    conv, full = conv_memory(config), Full(config.kv_heads, config.head_dim)
    return [conv if convolved else full for convolved in config.convolved]


class Filters(Protocol):
    """What a convolution reads of a config; LFM3's has it too."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def taps(self) -> int: ...
    @property
    def conv_bias(self) -> bool: ...


def conv_memory(config: Filters) -> Recurrent:
    return Recurrent({"conv": State((config.taps - 1, config.hidden_size))})


class ShortConv(Module):
    """out(c * conv(b * x)) with b, c and x from one projection."""

    by_channel: ClassVar[bool] = True

    def __init__(self, config: Filters) -> None:
        super().__init__()
        hidden, bias = config.hidden_size, config.conv_bias
        self.in_proj = nn.Linear(hidden, 3 * hidden, bias=bias)
        self.conv = CausalConv(hidden, config.taps, bias=bias)
        self.out_proj = nn.Linear(hidden, hidden, bias=bias)

    def __call__(self, x: mx.array, step: Step, cache: ScanningCache) -> mx.array:
        return linear(self.out_proj, cache.scan(step, self._scan, linear(self.in_proj, x, step)), step)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> RecurrentParts | None:
        """See `sublayer.added`."""
        return recurrent_parts(
            RecurrentParts(
                norm=norm,
                opening=(self.in_proj,),
                conv=self.conv,
                kind="conv",
                rule=None,
                sizes=None,
                gated_norm=None,
                close=self.out_proj,
                after=after,
                scan=self._scan,
                scanned=list,
            )
        )

    def _scan(
        self, states: dict[str, mx.array], x: mx.array, *, counts: mx.array | None
    ) -> tuple[mx.array, dict[str, mx.array]]:
        out, conv = self.conv.gated(x, states["conv"], counts)
        return out, {"conv": conv}


class SparseMLP(Module):
    adds: ClassVar[tuple[str, ...]] = ("switch_mlp",)

    def __init__(self, config: Config, spec: ExpertSpec) -> None:
        super().__init__()
        self.gate = nn.Linear(config.hidden_size, spec.experts, bias=False)
        if spec.corrected:
            self.expert_bias = mx.zeros((spec.experts,))
        self.switch_mlp = Experts(config.hidden_size, spec.inner, spec.experts)
        self._spec = spec

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        return self.switch_mlp(x, choose(self._routing(), linear(self.gate, x, step)), step)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> MixtureParts | None:
        """See `sublayer.added`."""
        return mixture_parts(norm, self.gate, self._routing(), self.switch_mlp, after)

    def _routing(self) -> Routing:
        routing, correction = self._spec.routing("sigmoid"), self.get("expert_bias")
        return routing if correction is None else corrected(routing, correction)


class Block(Sublayers):
    def __init__(self, config: Config, rope: Rope | None, index: int) -> None:
        super().__init__()
        self._convolved = config.convolved[index]
        if self._convolved:
            self.conv = ShortConv(config)
        else:
            eps, size = config.norm_eps, config.head_dim
            self.self_attn = HeadNormAttention(config, rope, lambda _heads: RMSNorm(size, eps=eps))
        if config.expert and index >= config.expert.dense:
            self.feed_forward = SparseMLP(config, config.expert)
        else:
            self.feed_forward = GatedMLP(config.hidden_size, config.intermediate_size)
        self.operator_norm = RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.ffn_norm = RMSNorm(config.hidden_size, eps=config.norm_eps)

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        x = added(x, self._mixer, step, cache, norm=self.operator_norm)
        return added(x, self.feed_forward, step, norm=self.ffn_norm)

    def sublayers(self) -> tuple[NormedSublayer, ...]:
        return (self._mixer, self.operator_norm, None), (self.feed_forward, self.ffn_norm, None)

    @property
    def _mixer(self) -> Mixer:
        return self.conv if self._convolved else self.self_attn


def build(config: Config) -> CausalLM:
    layers = [Block(config, rope, i) for i, rope in enumerate(layer_ropes(config))]
    return CausalLM(config, layers, RMSNorm(config.hidden_size, eps=config.norm_eps))


_RENAMED = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"\.w1\.", ".gate_proj."),
        (r"\.w2\.", ".down_proj."),
        (r"\.w3\.", ".up_proj."),
        (r"\.self_attn\.out_proj\.", ".self_attn.o_proj."),
        (r"\.self_attn\.gate_proj\.", ".self_attn.g_proj."),
        (r"\.([qk])_layernorm\.", r".\1_norm."),
        (r"^model\.embedding_norm\.", "model.norm."),
    )
)


def adapt(config: Config, weights: Weights) -> Weights:
    named = own_names(config, weights)
    return to_switch(named, config.expert.experts) if config.expert else named


def own_names(config: DecoderConfig, weights: Weights) -> Weights:
    """Names to those used here, which are other families'; filters to MLX's axis order."""
    adapted: Weights = {}
    for name, array in text_tensors(config, weights).items():
        for pattern, replacement in _RENAMED:
            name = pattern.sub(replacement, name)
        adapted[name] = array
    return with_filters(adapted, ".conv.conv.weight")


_SPARSE_NAMES = ((".w1.", ".gate_proj."), (".w2.", ".down_proj."), (".w3.", ".up_proj."))


def _checkpoint(config: Mapping[str, Any]) -> Checkpoint:
    """mlx-lm has the published names in dense models, and its own in those with experts."""
    sparse = config.get("model_type") == "lfm2_moe"
    return Checkpoint(renamed=_SPARSE_NAMES if sparse else (), towers=USUAL)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    wide=(".expert_bias",),
    checkpoint=_checkpoint,
)
