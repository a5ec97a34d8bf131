"""Gear: Gemma 3 in which some layers have, in place of attention, a gate of what short convolutions make of
keys and values.

Source: mlx-lm's gear.py.
"""

import math
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, LayerSpec, Recurrent, Rotating, State
from runtime.cache.protocol import ScanningCache
from runtime.config.decoder import DecoderConfig, layer_count, read_shape, read_softcap, two_ropes
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.activation import sigmoid
from runtime.nn.attention.self_attention import HeadNormAttention
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import RMSNorm, one_added
from runtime.nn.recurrent.conv import CausalConv, with_filters
from runtime.nn.residual.block import Sandwich
from runtime.nn.residual.sublayer import projections
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, gated_mlp, head_norms, layer_ropes, rms_norms

_KINDS = ("full_attention", "sliding_attention", "conv_mixer")


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    mixes: tuple[bool, ...]
    """Of each layer: it has convolutions, and no attention."""
    taps: int
    bias: bool
    scale: float
    """Attention scores are multiplied by it."""
    logit_softcap: float | None


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("gear",))
    fields.only({"use_bidirectional_attention": False})
    if fields.has("attn_logit_softcapping"):
        fields.refuse("attn_logit_softcapping", "none: no published model has it")
    shape = read_shape(
        fields,
        activation_field="hidden_activation",
        activation="gelu_pytorch_tanh",
        tied=True,
        max_position_embeddings=131072,
    )
    scaled = fields.rope_parameters("full_attention", theta=1e6)
    if scaled["rope_type"] == "yarn" and "original_max_position_embeddings" not in scaled:
        fields.refuse("rope_scaling", "original_max_position_embeddings in it, beside yarn")
    layers = layer_count(fields)
    kinds = fields.words("layer_types", layers, _KINDS) or ("full_attention",) * layers
    window = fields.count("sliding_window", 512)
    windows = tuple(window if kind == "sliding_attention" else None for kind in kinds)
    ropes = two_ropes(fields, shape, windows, theta=1e6, local_theta=1e4)
    return Config(
        **shape,
        windows=windows,
        ropes=tuple(None if kind == "conv_mixer" else rope for kind, rope in zip(kinds, ropes, strict=True)),
        mixes=tuple(kind == "conv_mixer" for kind in kinds),
        taps=fields.count("conv_L_cache", 3, low=2, high=64),
        bias=fields.flag("attention_bias"),
        scale=fields.number("query_pre_attn_scalar", float(shape["head_dim"]), low=1e-6) ** -0.5,
        logit_softcap=read_softcap(fields, "final_logit_softcapping", None),
    )


def layout(config: Config) -> list[LayerSpec]:
    heads, size = config.kv_heads, config.head_dim
    before = State((config.taps - 1, heads * size))
    mixer = Recurrent({"keys": before, "values": before})
    return [
        mixer if mixes else Full(heads, size) if window is None else Rotating(heads, size, window)
        for mixes, window in zip(config.mixes, config.windows, strict=True)
    ]


class Mixer(Module):
    """out(sigmoid(queries * conv(keys)) * conv(values))"""

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, size, bias = config.hidden_size, config.head_dim, config.bias
        inner, shared = config.heads * size, config.kv_heads * size
        self.q_proj = nn.Linear(hidden, inner, bias=bias)
        self.k_proj = nn.Linear(hidden, shared, bias=bias)
        self.v_proj = nn.Linear(hidden, shared, bias=bias)
        self.o_proj = nn.Linear(inner, hidden, bias=bias)
        self.q_norm = RMSNorm(size, eps=config.norm_eps)
        self.k_norm = RMSNorm(size, eps=config.norm_eps)
        self.key_conv = CausalConv(shared, config.taps, bias=bias)
        self.value_conv = CausalConv(shared, config.taps, bias=bias)
        self._kv_heads, self._size = config.kv_heads, size

    def __call__(self, x: mx.array, step: Step, last: ScanningCache) -> mx.array:
        queries, keys, values = projections((self.q_proj, self.k_proj, self.v_proj), x, step)
        queries, keys = (
            norm(mx.unflatten(heads, -1, (-1, self._size)))
            for norm, heads in ((self.q_norm, queries), (self.k_norm, keys))
        )
        keys, values = mx.split(last.scan(step, self._mixed, keys.flatten(-2), values), 2, axis=-1)
        # [B, L, G, 1, K] of each of G groups, K numbers a head, beside [B, L, G, H / G, K] of its queries.
        keys, values = (mx.unflatten(part, -1, (self._kv_heads, 1, -1)) for part in (keys, values))
        queries = mx.unflatten(queries, 2, (self._kv_heads, -1))
        return linear(self.o_proj, (sigmoid(queries * keys) * values).flatten(2), step)

    def _mixed(
        self, states: dict[str, mx.array], keys: mx.array, values: mx.array, *, counts: mx.array | None
    ) -> tuple[mx.array, dict[str, mx.array]]:
        keys, last_keys = self.key_conv(keys, states["keys"], counts)
        values, last_values = self.value_conv(values, states["values"], counts)
        return mx.concatenate([keys, values], axis=-1), {"keys": last_keys, "values": last_values}


def build(config: Config) -> CausalLM:
    norm, biases = rms_norms(config), {"qkv_bias": config.bias, "output_bias": config.bias}
    layers = [
        Sandwich(
            Mixer(config)
            if mixes
            else HeadNormAttention(config, rope, head_norms(config), scale=config.scale, **biases),
            gated_mlp(config),
            norm,
        )
        for mixes, rope in zip(config.mixes, layer_ropes(config), strict=True)
    ]
    scale, cap = math.sqrt(config.hidden_size), config.logit_softcap
    return CausalLM(config, layers, norm(), embed_scale=scale, logit_softcap=cap)


_NAMES = ((".local_mixer.", ".self_attn."),)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    named = one_added(respelled(without_spares(config, weights), _NAMES))
    named = {name: array for name, array in named.items() if not name.endswith("embed_scale")}
    return with_filters(named, "_conv.weight")


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
