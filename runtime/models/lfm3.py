"""LFM3: LFM2's short convolutions beside sliding and full attention, with norms behind all of them.

Sliding and full layers rotate by rules of their own; the answer of each head is multiplied by sigmoid of a
gate. The feed-forward width is what the config says.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import StepCache
from runtime.config.decoder import DecoderConfig, layer_count, read_shape, rope_of_kind
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.models.lfm2 import ShortConv, conv_memory, own_names
from runtime.nn.activation import sigmoid
from runtime.nn.attention.gated_attention import OpenedAttention
from runtime.nn.attention.self_attention import HeadNormAttention
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.norm import Normalize
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import Block as Sublayers
from runtime.nn.residual.block import NormedSublayer
from runtime.nn.residual.sublayer import added
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.towers import USUAL
from runtime.trunks.decoder import CausalLM, attention_layout, head_norms, layer_ropes, rms_norms

_ROPES: dict[str, dict[str, Any]] = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.5},
}


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    convolved: tuple[bool, ...]
    """Of each layer: it is a convolution; else attention."""
    taps: int
    """Tokens that a convolution spans."""
    conv_bias: bool
    attention_bias: bool
    gated: bool
    """Heads have gates."""
    sandwich: bool
    """What sublayers add is normed."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(
        fields,
        eps_field="norm_eps",
        eps=1e-5,
        tied=True,
        vocab_size=128_000,
        hidden_size=2048,
        intermediate_size=7680,
        num_attention_heads=16,
        num_key_value_heads=4,
        head_dim=128,
        max_position_embeddings=128_000,
    )
    kinds = _kinds(fields)
    sizes = {"head_dim": shape["head_dim"], "max_positions": shape["context_length"]}
    ropes = {kind: rope_of_kind(fields, kind, _ROPES, **sizes) for kind in set(kinds) - {"conv"}}
    window = fields.count("sliding_window", 256)
    return Config(
        **shape,
        windows=tuple(window if kind == "sliding_attention" else None for kind in kinds),
        ropes=tuple(ropes.get(kind) for kind in kinds),
        convolved=tuple(kind == "conv" for kind in kinds),
        taps=fields.count("conv_L_cache", 7, low=2, high=64),
        conv_bias=fields.flag("conv_bias"),
        attention_bias=fields.flag("attention_bias"),
        gated=fields.flag("use_attention_gate", True),
        sandwich=fields.flag("use_sandwich_norm", True),
    )


def _kinds(fields: Fields) -> tuple[str, ...]:
    """Without layer_types a convolution stands between any two layers with attention, which come in turn."""
    layers = layer_count(fields, 24)
    kinds = fields.words("layer_types", layers, ("conv", "full_attention", "sliding_attention"))
    period = "sliding_attention", "conv", "full_attention", "conv"
    return kinds or tuple("conv" if i == 0 else period[i % 4] for i in range(layers))


def layout(config: Config) -> list[LayerSpec]:
    conv, attention = conv_memory(config), attention_layout(config)
    return [conv if convolved else seen for convolved, seen in zip(config.convolved, attention, strict=True)]


class Block(Sublayers):
    def __init__(self, config: Config, rope: Rope | None, convolved: bool) -> None:
        super().__init__()
        norm, heads, bias = rms_norms(config), head_norms(config), config.attention_bias
        self._sandwich, self._convolved = config.sandwich, convolved
        if convolved:
            self.conv = ShortConv(config)
        elif config.gated:
            self.self_attn = OpenedAttention(config, rope, heads, config.heads, sigmoid, bias=bias)
        else:
            self.self_attn = HeadNormAttention(config, rope, heads, qkv_bias=bias, output_bias=bias)
        self.feed_forward = GatedMLP(config.hidden_size, config.intermediate_size)
        self.operator_norm = norm()
        self.ffn_norm = norm()
        if config.sandwich:
            self.post_operator_norm = norm()
            self.post_ffn_norm = norm()

    def __call__(self, x: mx.array, step: Step, cache: StepCache) -> mx.array:
        (mixer, before, after), (feed_forward, second, last) = self.sublayers()
        x = added(x, mixer, step, cache, norm=before, after=after)
        return added(x, feed_forward, step, norm=second, after=last)

    def sublayers(self) -> tuple[NormedSublayer, NormedSublayer]:
        after: tuple[Normalize | None, Normalize | None] = None, None
        if self._sandwich:
            after = self.post_operator_norm, self.post_ffn_norm
        mixer = self.conv if self._convolved else self.self_attn
        return (mixer, self.operator_norm, after[0]), (self.feed_forward, self.ffn_norm, after[1])


def build(config: Config) -> CausalLM:
    kinds = zip(layer_ropes(config), config.convolved, strict=True)
    return CausalLM(config, [Block(config, rope, conv) for rope, conv in kinds], rms_norms(config)())


CHECKPOINT = Checkpoint(modules=((".self_attn.gate_proj.", ".self_attn.g_proj."),), towers=USUAL)

FAMILY = Family(parse=parse, layout=layout, build=build, adapt=own_names, checkpoint=always(CHECKPOINT))
