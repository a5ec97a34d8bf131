"""nanochat: a Llama whose norms have no weights, whose MLPs have no gate and a squared ReLU.

Heads turn the other way than everybody's (a pair's angle falls with its position) and are normed behind that;
what enters the first layer is normed, too.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mlx.core as mx

from runtime.cache.layout import LayerSpec
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape, read_softcap
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.norm import Normalize, PlainRMS
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import turned_back
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.names import respelled, without_spares
from runtime.trunks.decoder import CausalLM, Trunk, attention_layout, layer_ropes, plain_mlp


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    """Of the attention's projections, that of its output too."""
    softcap: float | None
    """Bends logits: cap * tanh(x / cap)."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(fields, activation="relu2")
    layers = layer_count(fields)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(turned_back(one_rope(fields, shape)),) * layers,
        bias=fields.flag("attention_bias"),
        softcap=read_softcap(fields, "final_logit_softcapping", 15.0),
    )


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class Attention(SelfAttention):
    def __init__(self, config: Config, rope: Rope | None) -> None:
        super().__init__(config, rope, qkv_bias=config.bias, output_bias=config.bias)
        self._norm = PlainRMS(config.norm_eps)
        self._attends = replace(self._attends, normed_turned=True)

    def place(self, queries: mx.array, keys: mx.array, step: Step) -> tuple[mx.array, mx.array]:
        queries, keys = super().place(queries, keys, step)
        return self._norm(queries), self._norm(keys)

    def head_norms(self) -> tuple[Normalize, Normalize]:
        return self._norm, self._norm


class NormedTrunk(Trunk):
    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return self.norm(super().embed(ids, step))


def build(config: Config) -> CausalLM:
    def norm() -> PlainRMS:
        return PlainRMS(config.norm_eps)

    layers = [PreNorm(Attention(config, rope), plain_mlp(config), norm) for rope in layer_ropes(config)]
    return CausalLM(config, layers, norm(), logit_softcap=config.softcap, trunk=NormedTrunk)


_RENAMED = (".mlp.fc1.", ".mlp.up_proj."), (".mlp.fc2.", ".mlp.down_proj.")


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return respelled(without_spares(config, weights), _RENAMED)


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=adapt)
