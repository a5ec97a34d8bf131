"""Grouped-query attention as most decoders have it: four projections and rotary positions.

Families that differ override one of three steps: `flat` (what becomes queries, keys and values), `project`
(the same by heads) or `place` (how they get their positions). Where a class says beside `flat` whose products
it gives (`opening`), and beside `project` which norms heads have (`head_norms`), the whole sublayer is one
operation. B rows, L tokens, H query heads, G key-value heads, D hidden size, K head size.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.protocol import AttentionCache, Rotate
from runtime.nn.attention.attend import attend, split_heads
from runtime.nn.attention.attention_sublayer import AttentionSublayer
from runtime.nn.attention.bidirectional import attend_both_ways
from runtime.nn.norm import Normalize, RMSNorm
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.sublayer import attention_parts, defined_together, projections
from runtime.parts.attention import AttentionParts
from runtime.parts.heads import Heads
from runtime.step import Step

if TYPE_CHECKING:
    from runtime.nn.attention.block_sparse import BlockSparse
    from runtime.nn.positions.alibi import Alibi

Projected = tuple[mx.array, mx.array, mx.array]
"""queries [B, H, L, K], keys [B, G, L, K], values [B, G, L, K]; flat ones are [B, L, H * K] and [B, L, G * K]
"""


class HeadShape(Protocol):
    """The part of a config that says how the hidden state is cut into heads."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...


class Attention(AttentionSublayer):
    """[B, L, D] -> [B, L, D], but for `flat`. rope None: positions are left out (NoPE), or scores have a bias
    by them (alibi), whether they turn or not. scale None: 1 / sqrt(K).
    """

    def __init__(
        self,
        shape: HeadShape,
        rope: Rope | None,
        *,
        output_bias: bool = False,
        scale: float | None = None,
        softcap: float | None = None,
        alibi: "Alibi | BlockSparse | None" = None,
    ) -> None:
        super().__init__()
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.hidden_size, bias=output_bias)
        self._heads, self._kv_heads, self._head_dim = shape.heads, shape.kv_heads, shape.head_dim
        self._rope, self._alibi = rope, alibi
        kind = type(self)
        self._by_heads = kind.project is not Attention.project or kind.place is not Attention.place
        self._scale = shape.head_dim**-0.5 if scale is None else scale
        self._softcap = softcap
        self._parts_hold = (
            alibi is None
            and defined_together(kind, "flat", "opening")
            and defined_together(kind, "project", "head_norms")
            and (kind.place is Attention.place or "head_norms" in vars(kind))
            and defined_together(kind, "seen", "heads")
        )
        self._attends = Heads(
            self._heads, self._kv_heads, self._head_dim, self._scale, self._rope, self._softcap
        )
        self._ahead = False
        self._window: int | None = None
        self._behind: int | None = None

    def look_ahead(self, window: int | None = None, behind: int | None = None) -> None:
        """From now on every token of a text, which is read whole, sees those behind it, too. window: how many
        to either side; None: all. behind: how many behind it, where that is another number.
        """
        self._ahead, self._window, self._parts_hold = True, window, False
        self._behind = behind

    def parts(self, norm: Normalize | None, after: Normalize | None) -> AttentionParts | None:
        """See `sublayer.added`."""
        if not self._parts_hold:
            return None
        factors = None if type(self).factors is Attention.factors else self.factors
        parts = self.heads(), norm, self.opening(), self.head_norms(), self.o_proj, after, self.get("sinks")
        return attention_parts(AttentionParts(*parts, factors=factors))

    def seen(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        """What the heads read, side by side, [B, L, H * K]: all but the last projection. With parameters
        `sinks` [H], heads have one more logit each.
        """
        if self._ahead:
            return self._seen_both_ways(x, step)
        heads, rope = self._made(x, step)
        return attend(
            step,
            cache,
            *heads,
            scale=self._scale,
            rope=rope,
            softcap=self._softcap,
            sinks=self.get("sinks"),
            bias=None if self._alibi is None else self._alibi.of_step(step),
            size=self._head_dim,
        )

    def _seen_both_ways(self, x: mx.array, step: Step) -> mx.array:
        """The same of a text that is read whole (`look_ahead`)."""
        queries, keys, values = self.project(x, step)
        queries, keys = self.place(queries, keys, step)
        return attend_both_ways(
            queries,
            keys,
            values,
            scale=self._scale,
            softcap=self._softcap,
            window=self._window,
            ahead=self._behind,
            counts=step.counts,
        )

    def _made(self, x: mx.array, step: Step) -> tuple[Projected, Rope | None]:
        """Queries, keys and values, flat where nobody has to see heads, and what still has to turn them."""
        factors = self.factors(step)
        if not self._by_heads and factors is None:
            return self.flat(x, step), self._rope
        queries, keys, values = self.project(x, step)
        if factors is not None:
            queries = queries * factors[:, None, :, None].astype(queries.dtype)
        if type(self).place is Attention.place:
            return (queries, keys, values), self._rope
        queries, keys = self.place(queries, keys, step)
        return (queries, keys, values), None

    @property
    def looks_ahead(self) -> bool:
        """Does it read texts whole, and remember nothing?"""
        return self._ahead

    @property
    def head_dim(self) -> int:
        """Elements of a key."""
        return self._head_dim

    def heads(self) -> Heads:
        """How `seen` comes from queries, keys and values."""
        return self._attends

    @property
    def head_counts(self) -> tuple[int, int]:
        """Of queries, and of keys and values."""
        return self._heads, self._kv_heads

    def of_heads(self, heads: int, groups: int) -> dict[str, Any]:
        """Its attributes where it has so many of its heads (`runtime.ranks`)."""
        attends = replace(self._attends, count=heads, groups=groups)
        return {"_heads": heads, "_kv_heads": groups, "_attends": attends}

    def flat(self, x: mx.array, step: Step) -> Projected:
        """Heads side by side."""
        raise NotImplementedError

    def opening(self) -> tuple[nn.Module, ...]:
        """Whose products `flat` gives: one module each for queries, keys and values, or one for all."""
        raise NotImplementedError

    def project(self, x: mx.array, step: Step) -> Projected:
        """By heads."""
        queries, keys, values = self.flat(x, step)
        return (
            split_heads(queries, self._heads),
            split_heads(keys, self._kv_heads),
            split_heads(values, self._kv_heads),
        )

    def head_norms(self) -> tuple[Normalize, Normalize] | None:
        """What `project` norms queries and keys by, head by head; or `flat`, all heads together; or `place`,
        behind the turn.
        """
        return None

    def factors(self, step: Step) -> mx.array | None:
        """Of the step's queries, [B or 1, L], before they turn; None where all are 1."""
        return None

    def place(self, queries: mx.array, keys: mx.array, step: Step) -> tuple[mx.array, mx.array]:
        if self._rope is None:
            return queries, keys
        return self._rope(queries, step), self._rope(keys, step)

    @property
    def shift(self) -> Rotate | None:
        """How keys in memory are moved to other positions; None where this layer cannot say."""
        if type(self).place is not Attention.place:
            return None
        if self._rope is None:
            return lambda keys, _by: keys
        return self._rope.shifted if self._rope.shifts else None


def clipped(heads: Projected, limit: float) -> Projected:
    """Queries, keys and values, no number of which is farther from 0 than `limit`."""
    queries, keys, values = (mx.clip(part, -limit, limit) for part in heads)
    return queries, keys, values


class SelfAttention(Attention):
    """With one matrix each for queries, keys and values; with sinks where that is said."""

    def __init__(
        self,
        shape: HeadShape,
        rope: Rope | None,
        *,
        qkv_bias: bool = False,
        output_bias: bool = False,
        scale: float | None = None,
        softcap: float | None = None,
        sinks: bool = False,
    ) -> None:
        super().__init__(shape, rope, output_bias=output_bias, scale=scale, softcap=softcap)
        inner, shared = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, inner, bias=qkv_bias)
        self.k_proj = nn.Linear(shape.hidden_size, shared, bias=qkv_bias)
        self.v_proj = nn.Linear(shape.hidden_size, shared, bias=qkv_bias)
        if sinks:
            self.sinks = mx.zeros((shape.heads,))

    def flat(self, x: mx.array, step: Step) -> Projected:
        queries, keys, values = projections(self.opening(), x, step)
        return queries, keys, values

    def opening(self) -> tuple[nn.Module, ...]:
        return self.q_proj, self.k_proj, self.v_proj


class WideNormAttention(SelfAttention):
    """With norms on queries and keys over all heads together, before they are cut into heads."""

    total: Callable[[mx.array], mx.array] | None = None
    """Where several processes have some heads each, the sum over them."""

    def __init__(
        self,
        shape: HeadShape,
        rope: Rope | None,
        eps: float,
        *,
        qkv_bias: bool = False,
        output_bias: bool = False,
    ) -> None:
        super().__init__(shape, rope, qkv_bias=qkv_bias, output_bias=output_bias)
        self.q_norm = RMSNorm(shape.heads * shape.head_dim, eps=eps)
        self.k_norm = RMSNorm(shape.kv_heads * shape.head_dim, eps=eps)
        self._attends = replace(self._attends, normed_together=True)
        self._widths = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim

    def of_heads_here(self, heads: int, groups: int, ranks: int) -> dict[str, Any]:
        """Beside `of_heads`, where each of so many processes has as many; several may have one group."""
        widths = heads * ranks * self._head_dim, groups * ranks * self._head_dim
        return {"_widths": widths, "_parts_hold": False}

    def flat(self, x: mx.array, step: Step) -> Projected:
        queries, keys, values = projections(self.opening(), x, step)
        if self.total is None:
            return self.q_norm(queries), self.k_norm(keys), values
        return *self._normed((queries, keys), self.total), values

    def _normed(
        self, parts: tuple[mx.array, mx.array], total: Callable[[mx.array], mx.array]
    ) -> tuple[mx.array, mx.array]:
        """By the mean squares of all heads, of which some are here."""
        own = [part.astype(mx.float32).square().sum(axis=-1, keepdims=True) for part in parts]
        means = total(mx.concatenate(own, axis=-1)) / mx.array(self._widths)
        by = mx.split(mx.rsqrt(means + self.q_norm.eps), 2, axis=-1)
        queries, keys = (
            (part.astype(mx.float32) * times * norm.weight).astype(part.dtype)
            for part, times, norm in zip(parts, by, (self.q_norm, self.k_norm), strict=True)
        )
        return queries, keys

    def opening(self) -> tuple[nn.Module, ...]:
        return self.q_proj, self.k_proj, self.v_proj

    def head_norms(self) -> tuple[Normalize, Normalize] | None:
        return self.q_norm, self.k_norm


class HeadNormAttention(SelfAttention):
    """With a norm on every query and key head before the positions. norm(heads) makes one for [B, heads, L,
    K].
    """

    def __init__(
        self,
        shape: HeadShape,
        rope: Rope | None,
        norm: Callable[[int], Normalize],
        *,
        qkv_bias: bool = False,
        output_bias: bool = False,
        scale: float | None = None,
    ) -> None:
        super().__init__(shape, rope, qkv_bias=qkv_bias, output_bias=output_bias, scale=scale)
        self.q_norm: Normalize = norm(shape.heads)
        self.k_norm: Normalize = norm(shape.kv_heads)

    def project(self, x: mx.array, step: Step) -> Projected:
        queries, keys, values = super().project(x, step)
        return self.q_norm(queries), self.k_norm(keys), values

    def head_norms(self) -> tuple[Normalize, Normalize] | None:
        return self.q_norm, self.k_norm
