"""The draft model of Muse Glimmer: block diffusion (DFlash), which fills in a block of tokens at once.

It remembers keys and values made of the target's hidden states after `target_layers`, one position per
token that the target has read (`read`). A draft begins at the next position: the embeddings of the last
token and of as many mask tokens as are wanted, the target's and not normed, see all that is remembered and
each other, in both directions, and come out as the hidden states for the target's head. Its layers look
back `window` tokens further than their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.errors import UnsupportedModel
from runtime.models.config import Fields
from runtime.models.decoder import (
    DecoderConfig,
    attention_layout,
    gated_mlp,
    head_norms,
    layer_count,
    layer_ropes,
    one_rope,
    read_shape,
    rms_norms,
)
from runtime.nn.attend import attention, merge_heads, split_heads
from runtime.nn.rope import Rope
from runtime.nn.self_attention import HeadNormAttention
from runtime.step import Step


@dataclass(frozen=True, slots=True)
class Config(DecoderConfig):
    """vocab_size is 0: embedding and head are the target's. block: its tokens, the last known one first."""

    block: int
    mask_token: int
    target_layers: tuple[int, ...]


def parse(raw: Mapping[str, Any]) -> Config:
    fields = Fields({**raw, "vocab_size": 1, "tie_word_embeddings": True})
    shape = read_shape(
        fields,
        eps=1e-5,
        hidden_size=6656,
        intermediate_size=19968,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=131072,
    )
    shape["vocab_size"] = 0
    layers = layer_count(fields, 5)
    window = fields.count("sliding_window", 2048)
    kinds = fields.words("layer_types", layers, ("full_attention", "sliding_attention"))
    kinds = kinds or ("sliding_attention",) * layers
    return Config(
        **shape,
        windows=tuple(window if kind == "sliding_attention" else None for kind in kinds),
        ropes=(one_rope(fields, shape, theta=500000.0),) * layers,
        block=fields.count("block_size", 16, low=2, high=min(window, 1 << 10)),
        mask_token=fields.count("mask_token_id", 201818, low=0),
        target_layers=_target_layers(fields),
    )


def _target_layers(fields: Fields) -> tuple[int, ...]:
    listed = fields.raw.get("target_layer_ids", [1, 13, 25, 37, 49])
    good = isinstance(listed, list) and 0 < len(listed) <= 256
    if not good or any(type(i) is not int or not 0 <= i < 4096 for i in listed):
        raise UnsupportedModel(
            f"config.json: target_layer_ids should list layers of the target; it is {listed!r:.200}"
        )
    return tuple(listed)


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class Attention(HeadNormAttention):
    def __init__(self, config: Config, rope: Rope | None, window: int | None) -> None:
        super().__init__(config, rope, head_norms(config))
        self._window = window

    def read(self, context: mx.array, step: Step, cache: Any) -> None:
        """Remember what the target said of the step's tokens, [B, L, D]."""
        assert self._rope is not None
        keys = self.k_norm(split_heads(self.k_proj(context), self._kv_heads))
        cache.append(step, self._rope(keys, step), split_heads(self.v_proj(context), self._kv_heads))

    def __call__(self, x: mx.array, step: Step, cache: Any) -> mx.array:
        """x [B, L, D], the block that begins where the rows end -> [B, L, D]."""
        queries, keys, values = self.project(x)
        queries, keys = self.place(queries, keys, step)
        last = Step(tuple(start - 1 for start in step.starts), (1,) * len(step.starts), step.first)
        seen_keys, seen_values, mask = cache.view(last)
        mask = self._mask(mask, x.shape[1], seen_keys.shape[2])
        keys = mx.concatenate([seen_keys, keys], axis=2)
        values = mx.concatenate([seen_values, values], axis=2)
        return self.o_proj(merge_heads(attention(queries, keys, values, mask, scale=self._scale)))

    def _mask(self, seen: Any, width: int, count: int) -> mx.array | None:
        """bool [B or 1, 1, L, K + L]: which of K remembered tokens are near enough, and all of the block.

        seen: what the last remembered token may see, which is what the first of the block may.
        """
        if self._window is None and seen is None:
            return None
        open_keys = mx.ones((1, 1, 1, count), mx.bool_) if seen is None else seen
        if self._window is not None:
            later = mx.cumsum(open_keys.astype(mx.int32), axis=-1, reverse=True)
            open_keys = open_keys & (later + mx.arange(width)[:, None] <= self._window)
        open_keys = mx.broadcast_to(open_keys, (open_keys.shape[0], 1, width, count))
        own = mx.ones((*open_keys.shape[:3], width), mx.bool_)
        return mx.concatenate([open_keys, own], axis=-1)


class Block(nn.Module):
    def __init__(self, config: Config, rope: Rope | None, window: int | None) -> None:
        super().__init__()
        norm = rms_norms(config)
        self.self_attn = Attention(config, rope, window)
        self.mlp = gated_mlp(config)
        self.input_layernorm: Any = norm()
        self.post_attention_layernorm: Any = norm()

    def __call__(self, x: mx.array, step: Step, cache: Any) -> mx.array:
        x = x + self.self_attn(self.input_layernorm(x), step, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Encoder(nn.Module):
    """The target's hidden states of several layers, side by side, as one."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.fc = nn.Linear(len(config.target_layers) * config.hidden_size, config.hidden_size, bias=False)
        self.output_norm_enc: Any = rms_norms(config)()

    def __call__(self, states: mx.array) -> mx.array:
        return self.output_norm_enc(self.fc(states))


class BlockDraft(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        kinds = zip(layer_ropes(config), config.windows, strict=True)
        self.layers = [Block(config, rope, window) for rope, window in kinds]
        self.norm: Any = rms_norms(config)()

    def read(self, states: mx.array, step: Step, caches: Sequence[Any]) -> None:
        """Remember the tokens of a target's step; the caller commits. states [B, L, target layers * D]."""
        context = self.encoder(states)
        for layer, cache in zip(self.layers, caches, strict=True):
            layer.self_attn.read(context, step, cache)

    def __call__(self, embedded: mx.array, step: Step, caches: Sequence[Any]) -> mx.array:
        """embedded [B, L, D]: last token, then masks -> normed hidden states [B, L, D]. Writes nothing."""
        x = embedded
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, step, cache)
        return self.norm(x)


def build(config: Config) -> BlockDraft:
    return BlockDraft(config)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    return dict(weights)
