"""Falcon-H1: attention and a Mamba-2 mixer side by side in every layer, with fixed multipliers everywhere
(muP).

Each layer has two memories; the layout lists the mixer's, then the attention's, layer by layer. Peers
leave the key multiplier out; mlx-lm's converter folds the multipliers it knows into the weights, which
`adapt` takes back out.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, LayerSpec
from runtime.cache.protocol import AttentionCache, Caches, ScanningCache, by_layer
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models.family import RATES, Family
from runtime.nn.activation import gated
from runtime.nn.attention.self_attention import Projected, SelfAttention
from runtime.nn.feed_forward.mlp import ACTIVATIONS
from runtime.nn.linear import embed, linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize, RMSNorm
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.recurrent.conv import with_filters
from runtime.nn.recurrent.mamba2 import Mamba2, Mamba2Spec, step_bounds
from runtime.nn.residual.block import Block as Sublayers
from runtime.nn.residual.block import NormedSublayer
from runtime.nn.residual.sublayer import added, feed_forward_parts, projections, sublayer_parts_of
from runtime.parts.attention import AttentionParts
from runtime.parts.decoder import DecoderParts
from runtime.parts.feed_forward import FeedForwardParts
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.experts import Weights
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import layer_ropes
from runtime.trunks.headed import Headed, untied_head


@dataclass(frozen=True, slots=True)
class Multipliers:
    """What activations are multiplied by, each at its place."""

    embedding: float
    head: float
    """Of logits."""
    key: float
    """Of attention's keys."""
    attention_in: float
    """Of what attention reads."""
    attention_out: float
    """Of its answer."""
    mixer_in: float
    """Of what the mixer reads."""
    mixer_out: float
    """Of its answer."""
    gate: float
    """Of the MLP's gate, before the activation."""
    down: float
    """Of the MLP's answer."""
    projected: tuple[float, ...]
    """Of the mixer's gate, x, B, C and step size."""


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    attention_bias: bool
    mlp_bias: bool
    mixer: Mamba2Spec
    times: Multipliers


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    layers = layer_count(fields)
    shape = read_shape(fields, eps=1e-5, max_position_embeddings=8192, num_key_value_heads=8)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape),) * layers,
        attention_bias=fields.flag("attention_bias"),
        mlp_bias=fields.flag("mlp_bias"),
        mixer=_mixer(fields, shape),
        times=_multipliers(fields),
    )


def _mixer(fields: Fields, shape: dict[str, Any]) -> Mamba2Spec:
    fields.choice("hidden_act", ("silu",), "silu")
    hidden = shape["hidden_size"]
    heads = fields.count("mamba_n_heads", 128, high=1 << 16)
    default = None if "mamba_d_ssm" in fields.raw and not fields.has("mamba_d_ssm") else 1024
    inner = fields.count(
        "mamba_d_ssm", default or fields.count("mamba_expand", 2, high=64) * hidden, high=1 << 22
    )
    groups = fields.count("mamba_n_groups", 1, high=4096)
    head_dim = fields.raw.get("mamba_d_head")
    if inner % heads or head_dim not in (None, "auto", inner // heads):
        raise UnsupportedModel(
            f"config.json: mamba_n_heads {heads} of mamba_d_head {quoted(head_dim)} are not mamba_d_ssm, "
            f"{inner}"
        )
    first = fields.flag("mamba_norm_before_gate", True)
    normed = "norm first" if first else "gate first"
    return Mamba2Spec(
        hidden=hidden,
        heads=heads,
        head_dim=inner // heads,
        groups=groups,
        state=fields.count("mamba_d_state", 256, high=4096),
        taps=fields.count("mamba_d_conv", 4, low=2, high=64),
        eps=shape["norm_eps"],
        conv_bias=fields.flag("mamba_conv_bias", True),
        in_bias=fields.flag("mamba_proj_bias"),
        out_bias=fields.flag("projectors_bias"),
        norm=normed if fields.flag("mamba_rms_norm") else None,
        norm_groups=groups,
        steps=step_bounds(fields.raw),
    )


def _multipliers(fields: Fields) -> Multipliers:
    gate, down = _factors(fields, "mlp_multipliers", 2)
    return Multipliers(
        embedding=fields.number("embedding_multiplier", 1.0, low=-1e3, high=1e3),
        head=fields.number("lm_head_multiplier", 1.0, low=-1e3, high=1e3),
        key=fields.number("key_multiplier", 1.0, low=-1e3, high=1e3),
        attention_in=fields.number("attention_in_multiplier", 1.0, low=-1e3, high=1e3),
        attention_out=fields.number("attention_out_multiplier", 1.0, low=-1e3, high=1e3),
        mixer_in=fields.number("ssm_in_multiplier", 1.0, low=-1e3, high=1e3),
        mixer_out=fields.number("ssm_out_multiplier", 1.0, low=-1e3, high=1e3),
        gate=gate,
        down=down,
        projected=_factors(fields, "ssm_multipliers", 5),
    )


def _factors(fields: Fields, name: str, count: int) -> tuple[float, ...]:
    value = fields.raw.get(name)
    if value is None:
        return (1.0,) * count
    if not isinstance(value, list | tuple) or len(value) != count:
        raise UnsupportedModel(f"config.json: {name} is {quoted(value)}, expected {count} numbers")
    return tuple(Fields({name: item}).number(name, low=-1e3, high=1e3) for item in value)


def layout(config: Config) -> list[LayerSpec]:
    return [config.mixer.memory, Full(config.kv_heads, config.head_dim)] * config.layers


class Attention(SelfAttention):
    def __init__(self, config: Config, rope: Rope | None) -> None:
        super().__init__(config, rope, qkv_bias=config.attention_bias, output_bias=config.attention_bias)
        self._times = config.times.key

    def flat(self, x: mx.array, step: Step) -> Projected:
        queries, keys, values = super().flat(x, step)
        return queries, keys * self._times, values

    def opening(self) -> tuple[nn.Module, ...]:
        """As before: `parts` says what else `flat` does with it (`defined_together`)."""
        return super().opening()

    def parts(self, norm: Normalize | None, after: Normalize | None) -> AttentionParts | None:
        said = super().parts(norm, after)
        return None if said is None else said._replace(key_scale=self._times)


class MLP(Module):
    by_inner: ClassVar[bool] = True

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = nn.Linear(hidden, inner, bias=bias)
        self.up_proj = nn.Linear(hidden, inner, bias=bias)
        self.down_proj = nn.Linear(inner, hidden, bias=bias)
        self._activation = ACTIVATIONS[config.activation]
        self._times = config.times

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        gate, up = projections((self.gate_proj, self.up_proj), x, step)
        inner = gated(self._activation, gate * self._times.gate, up)
        return linear(self.down_proj, inner, step) * self._times.down

    def parts(self, norm: Normalize | None, after: Normalize | None) -> FeedForwardParts | None:
        """See `sublayer.added`."""
        said = feed_forward_parts(
            norm, (self.gate_proj, self.up_proj), self._activation, self.down_proj, after
        )
        times = self._times
        return None if said is None else said._replace(gate_scale=times.gate, share=times.down)


class Block(Sublayers):
    def __init__(self, config: Config, rope: Rope | None) -> None:
        super().__init__()
        self.mamba = Mamba2(config.mixer, _projected(config))
        self.self_attn = Attention(config, rope)
        self.feed_forward = MLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.pre_ff_layernorm = RMSNorm(config.hidden_size, eps=config.norm_eps)
        self._times = config.times

    def __call__(self, x: mx.array, step: Step, caches: tuple[ScanningCache, AttentionCache]) -> mx.array:
        memory, cache = caches
        times, normed = self._times, self.input_layernorm(x)
        mixed = self.mamba(normed * times.mixer_in, step, memory) * times.mixer_out
        seen = self.self_attn(normed * times.attention_in, step, cache) * times.attention_out
        return added(x + mixed + seen, self.feed_forward, step, norm=self.pre_ff_layernorm)

    def sublayers(self) -> tuple[NormedSublayer, NormedSublayer, NormedSublayer]:
        return (
            (self.mamba, self.input_layernorm, None),
            (self.self_attn, self.input_layernorm, None),
            (self.feed_forward, self.pre_ff_layernorm, None),
        )

    def sublayer_parts(self) -> tuple[Any, Any, Any] | None:
        said, times = sublayer_parts_of(self), self._times
        if said is None:
            return None
        mixer, attention, mlp = said
        return (
            mixer._replace(norm_scale=times.mixer_in, share=times.mixer_out),
            attention._replace(norm_scale=times.attention_in, share=times.attention_out, beside=True),
            mlp,
        )


def _projected(config: Config) -> mx.array:
    """One factor per output of in_proj: gate, x, B, C, step size."""
    mixer = config.mixer
    shared = mixer.groups * mixer.state
    sizes = (mixer.inner, mixer.inner, shared, shared, mixer.heads)
    factors = mx.concatenate([mx.full((n,), by) for n, by in zip(sizes, config.times.projected, strict=True)])
    mx.eval(factors)  # now: whoever computes with them may be another thread, without the streams of this one
    return factors


class Trunk(Module):
    in_turn: ClassVar[str] = "layers"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = [Block(config, rope) for rope in layer_ropes(config)]
        self.final_layernorm = RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.embed_scale = config.times.embedding

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        pairs = by_layer(caches, 2)
        return self.final_layernorm(ops.table.layers(self.layers, step.embedded(self.embed), step, pairs))

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.embed_tokens, ids, step) * self.embed_scale


class FalconH1(Headed):
    norm_name = "final_layernorm"

    def __init__(self, config: Config) -> None:
        super().__init__(Trunk(config), untied_head(config), scale=config.times.head)

    def decoder_parts(self) -> DecoderParts:
        return self.decodes(embed_scale=self.trunk.embed_scale, memories=2)


def build(config: Config) -> FalconH1:
    return FalconH1(config)


def adapt(config: Config, weights: Weights) -> Weights:
    """Filters to MLX's axis order. A file whose filters are in it already is mlx-lm's, with multipliers
    folded in.
    """
    filters = [array for name, array in weights.items() if name.endswith("conv1d.weight")]
    folded = folded_by_mlx(config) if filters and filters[0].shape[-1] == 1 else {}
    adapted: Weights = {}
    for name, array in without_spares(config, weights).items():
        module, _, leaf = name.rpartition(".")
        by = folded.get(module.rpartition(".")[2])
        if by is not None and leaf in ("scales", "biases", "weight") and array.dtype != mx.uint32:
            array = _unfolded(name, array, by)
        adapted[name] = array
    return with_filters(adapted)


def folded_by_mlx(config: Config) -> dict[str, float | mx.array]:
    """What mlx-lm multiplies the rows of each module by when it converts."""
    times = config.times
    return {
        "embed_tokens": times.embedding,
        "lm_head": times.head,
        "q_proj": times.attention_in,
        "k_proj": times.attention_in,
        "o_proj": times.attention_out,
        "out_proj": times.mixer_out,
        "gate_proj": times.gate,
        "down_proj": times.down,
        "in_proj": times.mixer_in * _projected(config)[:, None],
    }


def _unfolded(name: str, array: mx.array, by: float | mx.array) -> mx.array:
    """Rows of floats, or the scales and biases of packed rows, without their factor; float32."""
    if array.dtype == mx.uint8:
        raise UnsupportedModel(
            f"{name} has muP multipliers folded into a microscaling format; create from the original"
        )
    return array.astype(mx.float32) / by


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt, wide=RATES)
