"""Attention whose heads have gates: that come with the queries (Qwen3-Next), or by a matrix of their own
(Laguna, LFM3, AFMoE, Muse Glimmer, Beam, Spark-X2.5). But for Spark's, queries and keys are normed by head.

B rows, L tokens, H query heads, G key-value heads, K head size.
"""

from collections.abc import Callable
from dataclasses import replace

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.protocol import AttentionCache
from runtime.nn.activation import Activation, gated, sigmoid
from runtime.nn.attention.attend import attend, split_heads
from runtime.nn.attention.fused_attention import FusedAttention
from runtime.nn.attention.self_attention import Attention, HeadNormAttention, HeadShape, Projected
from runtime.nn.linear import linear
from runtime.nn.norm import Normalize
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.sublayer import projections, with_output_gate
from runtime.parts.attention import AttentionParts
from runtime.parts.heads import Heads
from runtime.step import Step


class GatedAttention(HeadNormAttention):
    """q_proj gives each head's query and then its gate, [B, L, H * 2 K]."""

    def __init__(
        self, shape: HeadShape, rope: Rope | None, norm: Callable[[int], Normalize], *, bias: bool = False
    ) -> None:
        super().__init__(shape, rope, norm, qkv_bias=bias, output_bias=bias)
        self.q_proj = nn.Linear(shape.hidden_size, 2 * shape.heads * shape.head_dim, bias=bias)
        self._attends = replace(self._attends, gated=True)

    def seen(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        both, keys, values = projections(self.opening(), x, step)
        queries, gate = mx.split(mx.unflatten(both, 2, (self._heads, -1)), 2, axis=-1)
        queries, keys = self.q_norm(queries.swapaxes(1, 2)), self.k_norm(split_heads(keys, self._kv_heads))
        out = self.heard(step, cache, (queries, keys, split_heads(values, self._kv_heads)), x)
        return gated(sigmoid, gate.reshape(out.shape), out)

    def heard(self, step: Step, cache: AttentionCache, heads: Projected, _x: mx.array) -> mx.array:
        """What queries read that have not turned yet, [B, L, H * K]. _x: what all are made of."""
        sinks = self.get("sinks")
        return attend(step, cache, *heads, scale=self._scale, rope=self._rope, sinks=sinks)

    def heads(self) -> Heads:
        return self._attends


class _Opened(Attention):
    """activation(gate(x)) is multiplied to what heads see: one number a head, or one for each of theirs."""

    _called: str
    _activation: Activation

    def _open(
        self, shape: HeadShape, gates: int, activation: Activation, called: str, *, bias: bool = False
    ) -> None:
        self[called] = nn.Linear(shape.hidden_size, gates, bias=bias)
        self._called, self._activation = called, activation

    def parts(self, norm: Normalize | None, after: Normalize | None) -> AttentionParts | None:
        return with_output_gate(super().parts(norm, after), self[self._called], self._activation)

    def seen(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        out = super().seen(x, step, cache)
        gate = self._activation(linear(self[self._called], x, step).astype(mx.float32)).astype(out.dtype)
        return (out.reshape(*gate.shape, -1) * gate[..., None]).reshape(out.shape)

    def heads(self) -> Heads:
        """As before: `parts` says the gate (`sublayer.defined_together`)."""
        return super().heads()


class OpenedAttention(_Opened, HeadNormAttention):
    """With normed heads, and `gates`: as many as heads, or H * K. called: the name of the gate's matrix."""

    def __init__(
        self,
        shape: HeadShape,
        rope: Rope | None,
        norm: Callable[[int], Normalize],
        gates: int,
        activation: Activation,
        *,
        called: str = "g_proj",
        bias: bool = False,
        gate_bias: bool = False,
        scale: float | None = None,
    ) -> None:
        super().__init__(shape, rope, norm, qkv_bias=bias, output_bias=bias, scale=scale)
        self._open(shape, gates, activation, called, bias=gate_bias)


class OpenedFusedAttention(_Opened, FusedAttention):
    """With one matrix for queries, keys and values, and one gate for each head."""

    def __init__(
        self, shape: HeadShape, rope: Rope | None, activation: Activation, *, bias: bool = False
    ) -> None:
        super().__init__(shape, rope, bias=bias)
        self._open(shape, shape.heads, activation, "g_proj", bias=bias)
