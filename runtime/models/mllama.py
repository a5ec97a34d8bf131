"""Llama 3.2 Vision (mllama), the language model: Llama with some layers that attend to an encoded image.

A cross-attention layer remembers the image's keys and values, not the text's; its gates open by tanh. Rows
without an image pass it by. Whoever has run the vision tower and its projector calls `Mllama.encode` in the
step whose first token the image belongs to; text from that token on sees it. Nothing here runs a tower yet,
so outside of tests every row is one without an image.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Encoder, Full, LayerSpec
from runtime.cache.protocol import AttentionCache, Caches, EncodedCache, by_layout
from runtime.config.decoder import DecoderConfig, layer_count, listed_layers, one_rope, read_shape
from runtime.config.fields import Fields
from runtime.models.family import Family
from runtime.nn.attention.attend import attend_over, split_heads
from runtime.nn.attention.self_attention import SelfAttention
from runtime.nn.linear import embed, linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize
from runtime.nn.residual.block import PreNorm
from runtime.records import dataclass
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint, always
from runtime.tensors.names import text_tensors
from runtime.tensors.towers import USUAL
from runtime.trunks.decoder import gated_mlp, head_norms, layer_ropes, rms_norms
from runtime.trunks.headed import Headed, untied_head

_SPARE_IDS = 8  # rows that the embedding has beyond the vocabulary: the image token and its like


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    """crossing[i]: does layer i attend to the image instead of the text?"""

    crossing: tuple[bool, ...]


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields(raw)
    shape = read_shape(
        fields,
        eps=1e-5,
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=131072,
    )
    layers = layer_count(fields, 40)
    crossing = listed_layers(fields, "cross_attention_layers", layers)
    crossing = tuple(i % 5 == 3 for i in range(layers)) if crossing is None else crossing
    rope = one_rope(fields, shape, theta=500000.0)
    return Config(
        **shape,
        windows=(None,) * layers,
        ropes=tuple(None if crosses else rope for crosses in crossing),
        crossing=crossing,
    )


def layout(config: Config) -> list[LayerSpec]:
    kind = {True: Encoder, False: Full}
    return [kind[crosses](config.kv_heads, config.head_dim) for crosses in config.crossing]


class CrossAttention(Module):
    crosses: ClassVar[bool] = True

    def __init__(self, config: Config) -> None:
        super().__init__()
        inner, shared = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, inner, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, shared, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, shared, bias=False)
        self.o_proj = nn.Linear(inner, config.hidden_size, bias=False)
        norm = head_norms(config)
        self.q_norm: Normalize = norm(config.heads)
        self.k_norm: Normalize = norm(config.kv_heads)
        self._heads, self._kv_heads, self._scale = config.heads, config.kv_heads, config.head_dim**-0.5

    @property
    def head_counts(self) -> tuple[int, int]:
        """Of queries, and of keys and values."""
        return self._heads, self._kv_heads

    def of_heads(self, heads: int, groups: int) -> dict[str, Any]:
        """Its attributes where it has so many of its heads (`runtime.ranks`)."""
        return {"_heads": heads, "_kv_heads": groups}

    def __call__(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        queries = self.q_norm(split_heads(linear(self.q_proj, x, step), self._heads))
        return linear(self.o_proj, attend_over(step, cache, queries, scale=self._scale), step)

    def encode(self, features: mx.array, step: Step, cache: AttentionCache) -> None:
        keys = self.k_norm(split_heads(linear(self.k_proj, features, step), self._kv_heads))
        cache.append(step, keys, split_heads(linear(self.v_proj, features, step), self._kv_heads))


class CrossBlock(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        norm = rms_norms(config)
        self.cross_attn = CrossAttention(config)
        self.mlp = gated_mlp(config)
        self.input_layernorm: Normalize = norm()
        self.post_attention_layernorm: Normalize = norm()
        self.cross_attn_attn_gate = mx.zeros((1,))
        self.cross_attn_mlp_gate = mx.zeros((1,))

    def __call__(self, x: mx.array, step: Step, cache: EncodedCache) -> mx.array:
        filled = cache.filled(step)
        if not any(filled):
            return x
        seen = self.cross_attn(self.input_layernorm(x), step, cache)
        y = x + mx.tanh(self.cross_attn_attn_gate) * seen
        y = y + mx.tanh(self.cross_attn_mlp_gate) * self.mlp(self.post_attention_layernorm(y), step)
        return y if all(filled) else mx.where(mx.array(filled)[:, None, None], y, x)


class Trunk(Module):
    in_turn: ClassVar[str] = "layers"

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size + _SPARE_IDS, config.hidden_size)
        norm = rms_norms(config)
        self.layers: list[CrossBlock | PreNorm] = [
            CrossBlock(config) if crosses else PreNorm(SelfAttention(config, rope), gated_mlp(config), norm)
            for crosses, rope in zip(config.crossing, layer_ropes(config), strict=True)
        ]
        self.norm: Normalize = norm()

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        x = step.embedded(self.embed)
        for layer, cache in zip(self.layers, by_layout(caches), strict=True):
            x = layer(x, step, cache)
        return self.norm(x)

    def embed(self, ids: mx.array, step: Step | None = None) -> mx.array:
        return embed(self.embed_tokens, ids, step)


class Mllama(Headed):
    def __init__(self, config: Config) -> None:
        super().__init__(Trunk(config), untied_head(config))
        self._vocab = config.vocab_size

    def encode(self, features: mx.array, step: Step, caches: Caches) -> None:
        """Give the rows of `step` an image: projected features [B, T, D]. To be called before the step
        itself.
        """
        for layer, cache in zip(self.trunk.layers, by_layout(caches), strict=True):
            if isinstance(layer, CrossBlock):
                layer.cross_attn.encode(features, step, cache)

    def logits(self, hidden: mx.array, step: Step | None = None) -> mx.array:
        """Without the table's spare ids, where it is the head."""
        return super().logits(hidden, step)[..., : self._vocab]


def build(config: Config) -> Mllama:
    return Mllama(config)


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=text_tensors,
    checkpoint=always(Checkpoint(towers=USUAL)),
)
