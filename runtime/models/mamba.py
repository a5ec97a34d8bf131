"""Mamba, Falcon-Mamba and Mamba-2: no attention and no feed-forward; every layer is a norm and a mixer."""

from collections.abc import Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import Caches, ScanningCache, by_layout
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models.family import RATES, Family
from runtime.nn.linear import embed
from runtime.nn.module import Module
from runtime.nn.norm import RMSNorm
from runtime.nn.operations import ops
from runtime.nn.recurrent.conv import with_filters
from runtime.nn.recurrent.mamba1 import Mamba1, Mamba1Spec
from runtime.nn.recurrent.mamba2 import Mamba2, Mamba2Spec, step_bounds
from runtime.nn.residual.block import Block as Sublayers
from runtime.nn.residual.block import NormedSublayer
from runtime.parts.decoder import DecoderParts
from runtime.records import dataclass
from runtime.step import Step
from runtime.trunks.headed import Headed, untied_head

UNBOUNDED = 1 << 20  # a state has no positions; something must stand where others have a context length


@dataclass(frozen=True, slots=True)
class Config:
    vocab_size: int
    hidden_size: int
    layers: int
    norm_eps: float
    mixer: Mamba1Spec | Mamba2Spec
    wide_residual: bool
    """The sum over layers is kept in float32 whatever the weights are."""
    tied: bool
    context_length: int = UNBOUNDED


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    family = str(fields.raw.get("model_type") or "mamba")
    second = family == "mamba2"
    fields.choice("hidden_act", ("silu", "swish"), "silu")
    hidden = fields.count("hidden_size", 4096 if second else 768, high=1 << 20)
    return Config(
        vocab_size=fields.count("vocab_size", high=1 << 24),
        hidden_size=hidden,
        layers=fields.count("num_hidden_layers", 64 if second else 32, high=4096),
        norm_eps=fields.number("layer_norm_epsilon", 1e-5, low=1e-30),
        mixer=_second(fields, hidden) if second else _first(fields, hidden, family),
        wide_residual=fields.flag("residual_in_fp32", True),
        tied=fields.flag("tie_word_embeddings", not second),
    )


def _first(fields: Fields, hidden: int, family: str) -> Mamba1Spec:
    falcon = family == "falcon_mamba"
    rank = -(-hidden // 16) if fields.raw.get("time_step_rank") == "auto" else None
    return Mamba1Spec(
        hidden=hidden,
        inner=fields.count("intermediate_size", fields.count("expand", 2, high=64) * hidden, high=1 << 22),
        state=fields.count("state_size", 16, high=4096),
        taps=fields.count("conv_kernel", 4, low=2, high=64),
        rank=rank or fields.count("time_step_rank", -(-hidden // 16), high=1 << 20),
        eps=fields.number("mixer_rms_eps", 1e-6, low=1e-30),
        conv_bias=fields.flag("use_conv_bias", True),
        bias=fields.flag("use_bias"),
        norms="plain" if falcon else "none",
    )


def _second(fields: Fields, hidden: int) -> Mamba2Spec:
    groups = fields.count("n_groups", 8, high=4096)
    bias = fields.flag("use_bias")
    spec = Mamba2Spec(
        hidden=hidden,
        heads=fields.count("num_heads", 128, high=1 << 16),
        head_dim=fields.count("head_dim", 64, high=4096),
        groups=groups,
        state=fields.count("state_size", 128, high=4096),
        taps=fields.count("conv_kernel", 4, low=2, high=64),
        eps=fields.number("layer_norm_epsilon", 1e-5, low=1e-30),
        conv_bias=fields.flag("use_conv_bias", True),
        in_bias=bias,
        out_bias=bias,
        norm_groups=groups,
        steps=step_bounds(fields.raw),
    )
    if spec.inner != hidden * fields.count("expand", 2, high=64):
        raise UnsupportedModel(
            f"config.json: num_heads x head_dim is {spec.inner}, expected expand x hidden_size"
        )
    return spec


def layout(config: Config) -> list[LayerSpec]:
    return [config.mixer.memory] * config.layers


class Block(Sublayers):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm = RMSNorm(config.hidden_size, eps=config.norm_eps)
        mixer = config.mixer
        self.mixer = Mamba2(mixer) if isinstance(mixer, Mamba2Spec) else Mamba1(mixer)

    def __call__(
        self, x: mx.array, step: Step, cache: ScanningCache, dtype: mx.Dtype | None = None
    ) -> mx.array:
        """dtype: of activations, where the residual stream has another one."""
        return x + self.mixer(self.norm(x if dtype is None else x.astype(dtype)), step, cache)

    def sublayers(self) -> tuple[NormedSublayer, ...]:
        return ((self.mixer, self.norm, None),)


class Backbone(Module):
    in_turn: ClassVar[str] = "layers"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = [Block(config) for _ in range(config.layers)]
        self.norm_f = RMSNorm(config.hidden_size, eps=config.norm_eps)
        self._wide = config.wide_residual

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        step.refuse_positions("no layer of this network goes by positions")
        x = step.embedded(self.embed)
        dtype = x.dtype
        if not self._wide or dtype == mx.float32:
            return self.norm_f(ops.table.layers(self.layers, x, step, by_layout(caches)))
        x = x.astype(mx.float32)
        for layer, cache in zip(self.layers, by_layout(caches), strict=True):
            x = layer(x, step, cache, dtype)
        return self.norm_f(x.astype(dtype))

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.embeddings, ids, step)


class MambaLM(Headed):
    trunk_name, table_name, norm_name = "backbone", "embeddings", "norm_f"

    def __init__(self, config: Config) -> None:
        super().__init__(Backbone(config), untied_head(config))

    def decoder_parts(self) -> DecoderParts:
        return self.decodes()


def build(config: Config) -> MambaLM:
    return MambaLM(config)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Filters to MLX's axis order; the original release's `backbone.embedding`; no head that repeats the
    embedding.
    """
    adapted: dict[str, mx.array] = {}
    for name, array in weights.items():
        if config.tied and name.startswith("lm_head."):
            continue
        name = name.replace("backbone.embedding.", "backbone.embeddings.")
        adapted[name] = array
    return with_filters(adapted)


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt, wide=RATES)
