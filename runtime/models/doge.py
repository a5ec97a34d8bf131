"""Doge: a Llama whose keys have a bias of their own, made of their values, and whose stream is weighed.

To the scores of a key is added exp(a softplus(dt)), of which each head has one, whoever asks: it is one more
element of the key, over which that of a query is one. Of more than `keep_window_size` keys only as many are
seen, those with the largest biases; that is not computed, and a context ends there. Nor are mixtures, for
transformers' class routes tokens of a prompt by what stands elsewhere in it.

Source: transformers modeling_doge.py.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full, LayerSpec, Rotating
from runtime.cache.protocol import AttentionCache
from runtime.config.decoder import DecoderConfig, layer_count, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.errors import UnsupportedModel
from runtime.models.family import RATES, Family
from runtime.nn.attention.attend import merge_heads
from runtime.nn.attention.self_attention import HeadNormAttention, Projected
from runtime.nn.feed_forward.mlp import GatedMLP
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.positions.rope import Rope
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.names import without_spares
from runtime.trunks.decoder import CausalLM, gated_mlp, head_norms, layer_ropes, rms_norms


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    attention_bias: bool
    mlp_bias: bool


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    if fields.flag("is_moe"):
        raise UnsupportedModel(
            "config.json: is_moe is true, and Doge's mixtures route tokens of a prompt by what stands "
            "elsewhere in it; only its dense models are run"
        )
    shape = read_shape(
        fields, vocab_size=32768, hidden_size=1024, intermediate_size=2048, num_attention_heads=8
    )
    layers, rope = layer_count(fields, 32), one_rope(fields, shape)
    shape["context_length"] = min(shape["context_length"], fields.count("keep_window_size", 2048))
    window = fields.count("sliding_window") if fields.has("sliding_window") else None
    return Config(
        **shape,
        windows=(window,) * layers,
        ropes=(rope,) * layers,
        attention_bias=fields.flag("attention_bias"),
        mlp_bias=fields.flag("mlp_bias"),
    )


def layout(config: Config) -> list[LayerSpec]:
    heads, size = config.kv_heads, config.head_dim
    return [
        Full(heads, size + 1, size) if window is None else Rotating(heads, size + 1, window, size)
        for window in config.windows
    ]


class BiasedKeys(HeadNormAttention):
    def __init__(self, config: Config, rope: Rope | None) -> None:
        bias = config.attention_bias
        super().__init__(config, rope, head_norms(config), qkv_bias=bias, output_bias=bias)
        self.dt_proj = nn.Linear(config.kv_heads * config.head_dim, config.kv_heads, bias=bias)
        self.A = mx.zeros((config.kv_heads,))
        self._head_dim = config.head_dim + 1

    def project(self, x: mx.array, step: Step) -> Projected:
        """Queries and keys have one element more than values, which does not turn."""
        queries, keys, values = super().project(x, step)
        steps = linear(self.dt_proj, merge_heads(values), step).astype(mx.float32)
        biases = mx.exp(self.A * nn.softplus(steps)).swapaxes(1, 2)[..., None] / self._scale
        ones = mx.ones((*queries.shape[:3], 1), dtype=queries.dtype)
        return (
            mx.concatenate([queries, ones], axis=-1),
            mx.concatenate([keys, biases.astype(keys.dtype)], axis=-1),
            values,
        )


class Block(Module):
    """What enters a sublayer is weighed where its answer is added."""

    def __init__(self, config: Config, rope: Rope | None) -> None:
        super().__init__()
        norm = rms_norms(config)
        self.self_attn = BiasedKeys(config, rope)
        self.mlp: GatedMLP = gated_mlp(config, bias=config.mlp_bias)
        self.input_layernorm, self.post_attention_layernorm = norm(), norm()
        self.input_residual = mx.ones((config.hidden_size,))
        self.post_attention_residual = mx.ones((config.hidden_size,))

    def __call__(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        x = self.input_residual * x + self.self_attn(self.input_layernorm(x), step, cache)
        return self.post_attention_residual * x + self.mlp(self.post_attention_layernorm(x), step)


def build(config: Config) -> CausalLM:
    layers = [Block(config, rope) for rope in layer_ropes(config)]
    return CausalLM(config, layers, rms_norms(config)())


FAMILY = Family(parse=parse, layout=layout, build=build, adapt=without_spares, wide=(*RATES, ".self_attn.A"))
