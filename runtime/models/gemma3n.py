"""Gemma 3n (E2B, E4B; the text tower): four residual streams of which one is computed on.

AltUp predicts all streams from each other, runs the layer on the active one and corrects the others by what
came out (arXiv 2301.13310). Laurel is a low-rank bypass of attention. Some MLPs keep only the gates above a
quantile. Attention is Gemma 4's: unscaled, values normed, the last layers reading earlier layers' keys and
values. A second table feeds every layer.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import AttentionCache, Caches, by_layout
from runtime.config.decoder import layer_count, read_shape, read_softcap, two_ropes
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models.family import Family
from runtime.models.gemma4 import Attention
from runtime.models.gemma4_config import (
    OF_SHAPE,
    Layer,
    TowerConfig,
    donor_of,
    layers_layout,
    unused_projections,
)
from runtime.nn.activation import gated, softcap
from runtime.nn.feed_forward.mlp import ACTIVATIONS, GatedMLP
from runtime.nn.linear import MATRICES, embed, linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize, RMSNorm
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.sublayer import (
    added,
    closing,
    defined_together,
    feed_forward_parts,
    norms_fit,
    parts_of,
    per_layer_gate,
    projections,
)
from runtime.parts.feed_forward import FeedForwardParts
from runtime.parts.streams import AltUpActive, AltUpCorrect, AltUpJoin, AltUpPredict, LaurelParts, Multiply
from runtime.quoting import quoted
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import text_tower
from runtime.tensors.towers import USUAL
from runtime.trunks.headed import Headed, untied_head
from runtime.trunks.per_layer import PerLayerTrunk


@dataclass(frozen=True, slots=True)
class Config(TowerConfig):
    streams: int
    """Residual streams of AltUp."""
    active: int
    """Index of the stream that layers compute on."""
    scale_active: bool
    """The active stream is scaled by stored weights before it feeds the others."""
    laurel_rank: int
    """Inner size of the low-rank branch beside attention."""
    sparsities: tuple[float, ...]
    """Of each layer: the share of the MLP's gates that are cut off, below 1; 0: none."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    fields.choice("model_type", ("gemma3n", "gemma3n_text"))
    count = layer_count(fields, 35)
    widths = _widths(fields, count)
    shape = read_shape(
        Fields({**fields.raw, "intermediate_size": max(widths)}),
        activation_field="hidden_activation",
        activation="gelu_pytorch_tanh",
        tied=True,
        vocab_size=262400,
        hidden_size=2048,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=256,
        max_position_embeddings=32768,
    )
    streams = fields.count("altup_num_inputs", 4, low=2, high=64)
    return Config(
        **{name: shape[name] for name in OF_SHAPE},
        bias=fields.flag("attention_bias"),
        logit_softcap=read_softcap(fields, "final_logit_softcapping", 30.0),
        per_layer_size=fields.count("hidden_size_per_layer_input", 256, high=1 << 16),
        per_layer_vocab=fields.count("vocab_size_per_layer_input", 262144, high=1 << 24),
        streams=streams,
        active=fields.count("altup_active_idx", 0, low=0, high=streams - 1),
        scale_active=fields.flag("altup_correct_scale", True),
        laurel_rank=fields.count("laurel_rank", 64, high=1 << 16),
        sparsities=_sparsities(fields, count),
        layers=_layers(fields, shape, widths),
    )


def _widths(fields: Fields, count: int) -> list[int]:
    """intermediate_size: one number, or one for each layer."""
    listed = fields.raw.get("intermediate_size", 16384)
    widths = listed if isinstance(listed, list) else [listed] * count
    if len(widths) != count:
        raise UnsupportedModel(f"config.json: intermediate_size lists {len(widths)} of {count} layers")
    return [Fields({"intermediate_size": width}).count("intermediate_size", high=1 << 22) for width in widths]


def _sparsities(fields: Fields, count: int) -> tuple[float, ...]:
    listed = fields.raw.get("activation_sparsity_pattern")
    if listed is None:
        sparse = 10 if count > 10 else 0
        return (0.95,) * sparse + (0.0,) * (count - sparse)
    shares = listed if isinstance(listed, list) else [listed] * count
    if len(shares) != count or not all(isinstance(s, int | float) and 0 <= s < 1 for s in shares):
        raise UnsupportedModel(
            f"config.json: activation_sparsity_pattern should list {count} shares below 1; it is "
            f"{quoted(listed)}"
        )
    return tuple(float(share) for share in shares)


def _layers(fields: Fields, shape: dict[str, Any], widths: Sequence[int]) -> tuple[Layer, ...]:
    count = len(widths)
    listed = fields.words("layer_types", count, ("full_attention", "sliding_attention"))
    kinds = listed or ["full_attention" if (i + 1) % 5 == 0 else "sliding_attention" for i in range(count)]
    fields.take("layer_types", kinds)
    window = fields.count("sliding_window", 512)
    windows = [window if kind == "sliding_attention" else None for kind in kinds]
    ropes = two_ropes(fields, shape, windows, theta=1e6, local_theta=1e4)
    first = count - fields.count("num_kv_shared_layers", 15, low=0, high=count - 1)
    return tuple(
        Layer(
            window=windows[i],
            rope=ropes[i],
            head_dim=shape["head_dim"],
            kv_heads=shape["kv_heads"],
            intermediate_size=widths[i],
            donor=donor_of(kinds[:first], kinds[i]) if i >= first else None,
            keys_are_values=False,
        )
        for i in range(count)
    )


def layout(config: Config) -> list[LayerSpec]:
    return layers_layout(config.layers)


_HALVED = 2**-0.5
"""Of the sum of two answers, so that it is as strong as one."""


def stream(streams: mx.array, place: int, width: int) -> mx.array:
    """One of those that lie side by side."""
    return streams[..., place * width : (place + 1) * width]


class AltUp(Module):
    """Streams are [B, L, S D] for S streams; routing weights come from the active one."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, streams = config.hidden_size, config.streams
        self.correct_output_scale = mx.zeros((hidden,))
        self.correction_coefs = nn.Linear(streams, streams, bias=False)
        self.prediction_coefs = nn.Linear(streams, streams**2, bias=False)
        self.modality_router = nn.Linear(hidden, streams, bias=False)
        self.router_norm = RMSNorm(hidden, eps=config.norm_eps)
        self._active, self._hidden, self._streams = config.active, hidden, streams

    def active(self, streams: mx.array) -> mx.array:
        return stream(streams, self._active, self._hidden)

    def predict(self, streams: mx.array, step: Step) -> mx.array:
        mixing = linear(self.prediction_coefs, self._route(self.active(streams), step), step)
        return ops.table.mix_streams(streams, mixing)

    def correct(self, predicted: mx.array, active: mx.array, step: Step) -> mx.array:
        """active: what the layer made of the active stream, [B, L, D]."""
        shares = linear(self.correction_coefs, self._route(active, step), step)
        return ops.table.correct_streams(predicted, active, shares, self._active)

    def _route(self, active: mx.array, step: Step) -> mx.array:
        scores = linear(self.modality_router, self.router_norm(active) * self._hidden**-1, step)
        return softcap(scores.astype(mx.float32), 1.0).astype(active.dtype)  # tanh

    def predict_parts(self) -> AltUpPredict | None:
        """What `predict` does, with a copy of the active stream; None: it is not as kernels have it."""
        router, shares = self.modality_router, self.prediction_coefs
        known = defined_together(type(self), "predict", "predict_parts")
        if not known or not MATRICES.issuperset((type(router), type(shares))):
            return None
        return AltUpPredict(self.router_norm, router, shares, self._streams, self._active, self._hidden**-1)

    def correct_parts(self, *, scaled: bool) -> AltUpCorrect | None:
        """What `correct` does, and what the active stream is then, scaled or not; None as above."""
        router, shares = self.modality_router, self.correction_coefs
        known = defined_together(type(self), "correct", "correct_parts")
        if not known or not MATRICES.issuperset((type(router), type(shares))):
            return None
        scale = self.correct_output_scale if scaled else None
        norm_scale = self._hidden**-1
        return AltUpCorrect(self.router_norm, router, shares, self._streams, self._active, scale, norm_scale)


class Laurel(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.linear_left = nn.Linear(config.hidden_size, config.laurel_rank, bias=False)
        self.linear_right = nn.Linear(config.laurel_rank, config.hidden_size, bias=False)
        self.post_laurel_norm = RMSNorm(config.hidden_size, eps=config.norm_eps)

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        return closing(self.linear_right, linear(self.linear_left, x, step), x, self.post_laurel_norm, step)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> LaurelParts | None:
        """Beside the sublayer that reads norm(x), too."""
        left, right, own = self.linear_left, self.linear_right, self.post_laurel_norm
        known = norm is not None and after is None and norms_fit(norm, own)
        if not known or not MATRICES.issuperset((type(left), type(right))):
            return None
        return LaurelParts(norm, left, right, own, beside=True)


class SparseMLP(GatedMLP):
    """Gates below the `share` quantile of a normal distribution with their mean and spread are zero."""

    by_inner: ClassVar[bool] = True
    total: Callable[[mx.array], mx.array] | None = None
    """Where several processes have some gates each, the sum over them."""

    def __init__(self, hidden: int, intermediate: int, *, activation: str, share: float) -> None:
        super().__init__(hidden, intermediate, activation=activation)
        self._spreads, self._count = NormalDist().inv_cdf(share), intermediate

    def __call__(self, x: mx.array, step: Step) -> mx.array:
        gate, up = projections((self.gate_proj, self.up_proj), x, step)
        cut = ops.table.cut(gate, self._spreads) if self.total is None else self._cut(gate, self.total)
        return linear(self.down_proj, gated(self._activation, cut, up), step)

    def _cut(self, gate: mx.array, total: Callable[[mx.array], mx.array]) -> mx.array:
        """By the mean and the spread of all gates, of which some are here."""
        wide = gate.astype(mx.float32)
        own = [part.sum(axis=-1, keepdims=True) for part in (wide, wide.square())]
        mean, square = mx.split(total(mx.concatenate(own, axis=-1)) / self._count, 2, axis=-1)
        least = mean + mx.sqrt(mx.maximum(square - mean.square(), 0)) * self._spreads
        return mx.maximum(wide - least, 0).astype(gate.dtype)

    def parts(self, norm: Normalize | None, after: Normalize | None) -> FeedForwardParts | None:
        """See `sublayer.added`."""
        if self.total is not None:
            return None
        opening = self.gate_proj, self.up_proj
        return feed_forward_parts(norm, opening, self._activation, self.down_proj, after, cut=self._spreads)


class Block(Module):
    """place: which of the layers it is."""

    def __init__(self, config: Config, layer: Layer, rope: Rope, share: float, place: int) -> None:
        super().__init__()
        hidden, eps, activation = config.hidden_size, config.norm_eps, config.activation
        self.self_attn = Attention(config, layer, rope)
        self.mlp = (
            SparseMLP(hidden, layer.intermediate_size, activation=activation, share=share)
            if share > 0
            else GatedMLP(hidden, layer.intermediate_size, activation=activation)
        )
        self.altup = AltUp(config)
        self.laurel = Laurel(config)
        self.input_layernorm = RMSNorm(hidden, eps=eps)
        self.post_attention_layernorm = RMSNorm(hidden, eps=eps)
        self.pre_feedforward_layernorm = RMSNorm(hidden, eps=eps)
        self.post_feedforward_layernorm = RMSNorm(hidden, eps=eps)
        self.per_layer_input_gate = nn.Linear(hidden, config.per_layer_size, bias=False)
        self.per_layer_projection = nn.Linear(config.per_layer_size, hidden, bias=False)
        self.post_per_layer_input_norm = RMSNorm(hidden, eps=eps)
        self._scale_active, self._place, self._streams = config.scale_active, place, config.streams
        self._activation = ACTIVATIONS[activation]
        self._halved = mx.array([_HALVED])

    def __call__(self, streams: mx.array, step: Step, cache: AttentionCache, own: mx.array) -> mx.array:
        """streams [B, L, S D]; own: the P numbers that the second table has for this layer, [B, L, P]."""
        altup = self.altup
        predicted = altup.predict(streams, step)
        corrected = altup.correct(predicted, self._compute(altup.active(predicted), step, cache), step)
        active = altup.active(corrected)
        if self._scale_active:
            active = active * altup.correct_output_scale
        fed = gated(self._activation, linear(self.per_layer_input_gate, active, step), own)
        fed = self.post_per_layer_input_norm(linear(self.per_layer_projection, fed, step))
        return ops.table.join_streams(corrected, fed)

    def _compute(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        normed = self.input_layernorm(x)
        before, after = self.input_layernorm, self.post_attention_layernorm
        attended = added(x, self.self_attn, step, cache, norm=before, after=after)
        x = (attended + self.laurel(normed, step)) * _HALVED
        before, after = self.pre_feedforward_layernorm, self.post_feedforward_layernorm
        return added(x, self.mlp, step, norm=before, after=after)

    def sublayer_parts(self) -> tuple[Any, ...] | None:
        """See `runtime.nn.residual.sublayer.sublayer_parts_of`."""
        if not all(
            defined_together(type(self), called, "sublayer_parts") for called in ("__call__", "_compute")
        ):
            return None
        before, after = self.input_layernorm, self.post_attention_layernorm
        attended, around = parts_of(self.self_attn, before, after), parts_of(self.laurel, before, None)
        before, after = self.pre_feedforward_layernorm, self.post_feedforward_layernorm
        halved = Multiply(self._halved, self.altup.correct_output_scale.size)
        inner = attended, around, halved, parts_of(self.mlp, before, after)
        first, last = self.altup.predict_parts(), self.altup.correct_parts(scaled=self._scale_active)
        opening, close = self.per_layer_input_gate, self.per_layer_projection
        fed = per_layer_gate(opening, self._activation, self._place, close, self.post_per_layer_input_norm)
        if None in inner or first is None or last is None or fed is None:
            return None
        copied = (AltUpActive(one, self._streams) for one in inner)
        return first, *copied, last, AltUpJoin(fed, self._streams)


class Trunk(PerLayerTrunk):
    def __init__(self, config: Config) -> None:
        super().__init__(
            config.hidden_size,
            len(config.layers),
            config.per_layer_size,
            config.per_layer_vocab,
            config.norm_eps,
        )
        hidden, others = config.hidden_size, config.streams - 1
        ropes = {layer.rope: Rope(layer.rope) for layer in config.layers}
        self.embed_tokens = nn.Embedding(config.vocab_size, hidden)
        self.layers = [
            Block(config, layer, ropes[layer.rope], share, place)
            for place, (layer, share) in enumerate(zip(config.layers, config.sparsities, strict=True))
        ]
        self.altup_projections = [nn.Linear(hidden, hidden, bias=False) for _ in range(others)]
        self.altup_unembed_projections = [nn.Linear(hidden, hidden, bias=False) for _ in range(others)]
        self.norm = RMSNorm(hidden, eps=config.norm_eps)
        self._embed_scale = math.sqrt(hidden)

    @property
    def for_layers(self) -> tuple[str, ...]:
        """Streams are made of one vector and become one again where layers are called."""
        return *super().for_layers, "altup_projections", "altup_unembed_projections"

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        x = step.embedded(self.embed)
        owns = self.layer_inputs(step, x)
        others = [_as_strong_as(x, linear(module, x, step)) for module in self.altup_projections]
        streams = mx.concatenate([x, *others], axis=-1)
        assert owns is not None, "every file of this family has the second table"
        streams = ops.table.layers(self.layers, streams, step, by_layout(caches), owns)
        x, *rest = mx.split(streams, 1 + len(others), axis=-1)
        others = [
            _as_strong_as(x, linear(module, one, step))
            for module, one in zip(self.altup_unembed_projections, rest, strict=True)
        ]
        return self.norm(mx.stack([x, *others]).mean(axis=0))

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.embed_tokens, ids, step) * self._embed_scale


def _as_strong_as(model: mx.array, x: mx.array) -> mx.array:
    """x scaled to the root mean square of `model`, along the last axis."""
    wanted = mx.square(model).mean(axis=-1, keepdims=True).sqrt()
    found = mx.square(x).mean(axis=-1, keepdims=True)
    return x * wanted / mx.maximum(found, 1e-5).sqrt()


class Gemma3n(Headed):
    def __init__(self, config: Config) -> None:
        super().__init__(Trunk(config), untied_head(config), cap=config.logit_softcap)


def build(config: Config) -> Gemma3n:
    return Gemma3n(config)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    spare = (*unused_projections(config.layers), *(("lm_head.",) if config.tied else ()))
    return {name: array for name, array in text_tower(weights).items() if not name.startswith(spare)}


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=always(Checkpoint(towers=USUAL)),
)
