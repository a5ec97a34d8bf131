"""Attention with one matrix for queries, keys and values together (`runtime.nn.attention.self_attention`).

B rows, L tokens, H query heads, G key-value heads, D hidden size, K head size.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn

from runtime.nn.attention.self_attention import Attention, HeadShape, Projected
from runtime.nn.linear import linear
from runtime.nn.norm import Normalize
from runtime.nn.positions.rope import Rope
from runtime.step import Step

if TYPE_CHECKING:
    from runtime.nn.attention.block_sparse import BlockSparse
    from runtime.nn.positions.alibi import Alibi


class FusedAttention(Attention):
    """With one matrix for all three: the queries' rows, then the keys', then the values'."""

    def __init__(
        self,
        shape: HeadShape,
        rope: Rope | None,
        *,
        bias: bool = False,
        output_bias: bool | None = None,
        scale: float | None = None,
        alibi: "Alibi | None" = None,
    ) -> None:
        """output_bias None: as `bias`."""
        output_bias = bias if output_bias is None else output_bias
        super().__init__(shape, rope, output_bias=output_bias, scale=scale, alibi=alibi)
        inner, shared = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.qkv_proj = nn.Linear(shape.hidden_size, inner + 2 * shared, bias=bias)
        self._cuts = [inner, inner + shared]

    def of_heads(self, heads: int, groups: int) -> dict[str, Any]:
        inner = heads * self._head_dim
        return {**super().of_heads(heads, groups), "_cuts": [inner, inner + groups * self._head_dim]}

    def flat(self, x: mx.array, step: Step) -> Projected:
        queries, keys, values = mx.split(linear(self.qkv_proj, x, step), self._cuts, axis=-1)
        return queries, keys, values

    def opening(self) -> tuple[nn.Module, ...]:
        return (self.qkv_proj,)


class FusedHeadNormAttention(FusedAttention):
    """With a norm on every query and key head before the positions, which kernels know only where each has a
    matrix of its own. norm(heads) makes one for [B, heads, L, K].
    """

    def __init__(
        self,
        shape: HeadShape,
        rope: Rope | None,
        norm: Callable[[int], Normalize],
        *,
        bias: bool = False,
        output_bias: bool | None = None,
    ) -> None:
        super().__init__(shape, rope, bias=bias, output_bias=output_bias)
        self.q_norm: Normalize = norm(shape.heads)
        self.k_norm: Normalize = norm(shape.kv_heads)

    def project(self, x: mx.array, step: Step) -> Projected:
        queries, keys, values = super().project(x, step)
        return self.q_norm(queries), self.k_norm(keys), values


class GroupedAttention(Attention):
    """With one matrix for all three, group by group: the rows of its queries, of its key, of its value."""

    def __init__(
        self,
        shape: HeadShape,
        rope: Rope | None,
        *,
        bias: bool = False,
        scale: float | None = None,
        alibi: "Alibi | BlockSparse | None" = None,
    ) -> None:
        super().__init__(shape, rope, output_bias=bias, scale=scale, alibi=alibi)
        rows = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
        self.query_key_value = nn.Linear(shape.hidden_size, rows, bias=bias)
        self._attends = replace(self._attends, by_head=1 < shape.kv_heads == shape.heads)
        # Operations know one group, or one for each head.
        self._parts_hold = self._parts_hold and shape.kv_heads in (1, shape.heads)

    def project(self, x: mx.array, step: Step) -> Projected:
        batch, width, _ = x.shape
        mixed = linear(self.query_key_value, x, step)
        mixed = mixed.reshape(batch, width, self._kv_heads, -1, self._head_dim)
        queries = mixed[..., :-2, :].reshape(batch, width, self._heads, -1)
        keys, values = mixed[..., -2, :], mixed[..., -1, :]
        return queries.swapaxes(1, 2), keys.swapaxes(1, 2), values.swapaxes(1, 2)

    def opening(self) -> tuple[nn.Module, ...]:
        return (self.query_key_value,)

    def head_norms(self) -> None:
        return None
