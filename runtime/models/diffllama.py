"""DiffLlama: a Llama whose heads come in pairs of which one is subtracted from the other, some of it
(arXiv 2410.05258).

Each head of a pair sees values twice as wide: those of a head of the first half and of its like in the
second. The difference is normed by pair. Memory holds the wide values, so it is half again as much as a
Llama's.
"""

import math
from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from runtime.cache.layout import Full, LayerSpec
from runtime.cache.protocol import AttentionCache
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.attend import attend
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.norm import rms
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, gated_mlp, layer_ropes, rms_norms


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    bias: bool
    """Of the attention's projections, that of its output too."""


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(fields, eps=1e-5)
    if shape["kv_heads"] % 2:
        fields.refuse("num_key_value_heads", "an even number: heads come in pairs")
    layers = layer_count(fields)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=(one_rope(fields, shape),) * layers,
        bias=fields.flag("attention_bias"),
    )


def layout(config: Config) -> list[LayerSpec]:
    return [Full(config.kv_heads, config.head_dim, 2 * config.head_dim)] * config.layers


class DifferentialAttention(SelfAttention):
    def __init__(self, config: Config, rope: Rope | None, layer: int) -> None:
        super().__init__(config, rope, qkv_bias=config.bias, output_bias=config.bias)
        for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"):
            self[name] = mx.zeros((config.head_dim,))
        self._initial, self._eps = 0.8 - 0.6 * math.exp(-0.3 * layer), config.norm_eps

    def seen(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        queries, keys, values = self.project(x, step)
        first, second = mx.split(values, 2, axis=1)
        wide = mx.concatenate([first, second], axis=-1)
        values = mx.concatenate([wide, wide], axis=1)
        out = attend(step, cache, queries, keys, values, scale=self._scale, rope=self._rope)
        one, other = mx.split(out.reshape(*out.shape[:2], self._heads, -1), 2, axis=2)
        apart = rms(one - self._share().astype(out.dtype) * other, self._eps) * (1 - self._initial)
        return apart.reshape(*out.shape[:2], -1)

    def _share(self) -> mx.array:
        """How much of the other head is subtracted; float32 []."""
        one, other = (
            mx.exp((self[f"lambda_q{i}"].astype(mx.float32) * self[f"lambda_k{i}"].astype(mx.float32)).sum())
            for i in (1, 2)
        )
        return one - other + self._initial


def build(config: Config) -> CausalLM:
    norm = rms_norms(config)
    layers = [
        PreNorm(DifferentialAttention(config, rope, layer), gated_mlp(config), norm)
        for layer, rope in enumerate(layer_ropes(config))
    ]
    return CausalLM(config, layers, norm())


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=without_spares,
    # They go through exponentials.
    wide=(".lambda_q1", ".lambda_k1", ".lambda_q2", ".lambda_k2"),
)
