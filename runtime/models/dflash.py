"""Block diffusion drafts (DFlash): small decoders that fill in a block of tokens at once.

A draft remembers keys and values made of its target's hidden states after `target_layers`, one position per
token that the target has read (`read`). A block begins at the next position: the embeddings of the last token
and of as many mask tokens as are wanted, the target's own and unscaled, see all that is remembered and each
other, and come out as hidden states for the target's head, each for the token at its own position. Blocks are
written behind what is remembered and never committed, so they leave no trace.

Laguna's drafts gate the answer of attention, and norm what they read once more in every layer.
Source: Chen et al., DFlash (arXiv 2602.06036); z-lab/dflash `model.py`.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import LayerSpec
from runtime.cache.protocol import AttentionCache, Caches, by_layout
from runtime.models import laguna
from runtime.models.dflash_config import Config, parse
from runtime.models.family import Family
from runtime.nn.activation import softplus
from runtime.nn.attention.attend import Mask, attention, merge_heads, split_heads
from runtime.nn.attention.self_attention import HeadNormAttention
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize
from runtime.nn.positions.rope import Rope
from runtime.step import Step
from runtime.tensors.checkpoint import Checkpoint
from runtime.trunks.decoder import attention_layout, gated_mlp, head_norms, layer_ropes, rms_norms


def layout(config: Config) -> list[LayerSpec]:
    return attention_layout(config)


class Attention(HeadNormAttention):
    def __init__(self, config: Config, rope: Rope | None, *, causal: bool) -> None:
        super().__init__(config, rope, head_norms(config), qkv_bias=config.bias, output_bias=config.bias)
        if config.gates:
            self.g_proj = nn.Linear(config.hidden_size, config.gates, bias=False)
        self._gated, self._causal = config.gates > 0, causal

    def read(self, context: mx.array, step: Step, cache: AttentionCache) -> None:
        """Remember what the target said of the step's tokens, [B, L, D]."""
        assert self._rope is not None
        keys = self.k_norm(split_heads(linear(self.k_proj, context, step), self._kv_heads))
        cache.append(
            step, self._rope(keys, step), split_heads(linear(self.v_proj, context, step), self._kv_heads)
        )

    def __call__(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        """x [B, L, D], the block that begins where the rows end -> [B, L, D]."""
        queries, keys, values = self.project(x, step)
        queries, keys = self.place(queries, keys, step)
        seen_keys, seen_values, mask = cache.append(step, keys, values)
        assert seen_values is not None
        mask = mask if self._causal else both_ways(mask)
        out = merge_heads(attention(queries, seen_keys, seen_values, mask, scale=self._scale))
        return linear(self.o_proj, self._scaled(out, x, step) if self._gated else out, step)

    def _scaled(self, out: mx.array, x: mx.array, step: Step) -> mx.array:
        """One gate per head, or one per number."""
        gate = softplus(linear(self.g_proj, x, step).astype(mx.float32)).astype(out.dtype)
        return (out.reshape(*gate.shape, -1) * gate[..., None]).reshape(out.shape)


def both_ways(mask: Mask) -> mx.array | None:
    """A block's mask when its tokens also see those after them.

    The last token of a block sees all of it, and no window is shorter than a block.
    """
    return mask | mask[..., -1:, :] if isinstance(mask, mx.array) else None


class Block(Module):
    def __init__(self, config: Config, rope: Rope | None, *, causal: bool) -> None:
        super().__init__()
        norm = rms_norms(config)
        self.self_attn = Attention(config, rope, causal=causal)
        self.mlp = gated_mlp(config)
        self.input_layernorm: Normalize = norm()
        self.post_attention_layernorm: Normalize = norm()
        self._norms_context = config.norms_context

    def read(self, context: mx.array, step: Step, cache: AttentionCache) -> None:
        own = self.input_layernorm(context) if self._norms_context else context
        self.self_attn.read(own, step, cache)

    def __call__(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        x = x + self.self_attn(self.input_layernorm(x), step, cache)
        return x + self.mlp(self.post_attention_layernorm(x), step)


class BlockDraft(Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        norm, states = rms_norms(config), len(config.target_layers)
        self.fc = nn.Linear(states * config.hidden_size, config.hidden_size, bias=False)
        self.hidden_norm: Normalize = norm()
        if config.norms_context:
            self.aux_hidden_norms = [norm() for _ in range(states)]
        kinds = zip(layer_ropes(config), config.causal, strict=True)
        self.layers = [Block(config, rope, causal=causal) for rope, causal in kinds]
        self.norm: Normalize = norm()
        self._norms_context = config.norms_context

    def read(self, step: Step, caches: Caches) -> None:
        """Remember the tokens of a target's step; the caller commits. `step` brings what the target made of
        them, [B, L, target layers * D].
        """
        states = step.vectors
        if self._norms_context:
            parts = mx.split(states, len(self.aux_hidden_norms), axis=-1)
            pairs = zip(self.aux_hidden_norms, parts, strict=True)
            states = mx.concatenate([norm(part) for norm, part in pairs], axis=-1)
        context = self.hidden_norm(linear(self.fc, states, step))
        for layer, cache in zip(self.layers, by_layout(caches), strict=True):
            layer.read(context, step, cache)

    def __call__(self, step: Step, caches: Caches) -> mx.array:
        """Normed hidden states [B, L, D] of the vectors that the step brings: the last token's, then masks.
        Do not commit.
        """
        x = step.vectors
        for layer, cache in zip(self.layers, by_layout(caches), strict=True):
            x = layer(x, step, cache)
        return self.norm(x)


def build(config: Config) -> BlockDraft:
    return BlockDraft(config)


def adapt(config: Config, weights: dict[str, mx.array]) -> dict[str, mx.array]:
    """Some files put everything under `model.`, and some keep queries, keys and values in one matrix."""
    plain = {name.removeprefix("model."): array for name, array in weights.items()}
    queries, shared = config.heads * config.head_dim, config.kv_heads * config.head_dim
    adapted: dict[str, mx.array] = {}
    for name, array in plain.items():
        if ".qkv_proj." in name and array.shape[0] == queries + 2 * shared:
            parts = mx.split(array, [queries, queries + shared])
            for letter, part in zip("qkv", parts, strict=True):
                adapted[name.replace(".qkv_proj.", f".{letter}_proj.")] = part
        else:
            adapted[name] = array
    return adapted


def _checkpoint(config: Mapping[str, Any]) -> Checkpoint:
    """Laguna's drafts are quantized as Laguna is."""
    return laguna.CHECKPOINT if config.get("model_type") == "laguna" else Checkpoint()


FAMILY = Family(
    parse=parse,
    layout=layout,
    build=build,
    adapt=adapt,
    checkpoint=_checkpoint,
    drafts_as="block",
)
