"""Multi-head latent attention: all heads' keys and values come from one small vector per token.

Dimensions: B rows, L new tokens, K visible ones, H heads; N the part of a head that carries content, P the
part that carries position, V the head size of values, R the latent size. Memory holds [latent R | rotated
key P] per token; values are made of the first R columns of the keys.

A head's key is k_b · latent and its value v_b · latent. Few queries are taken to the latents instead: q ·
(k_b c) is (q k_b) · c, so no key is ever made (`absorbed`). From some width on, making keys and values once
for all queries is the cheaper of the two (`expanded`). Both equal each other to rounding; a column that
promises the same bits for any width takes the first always. Source: DeepSeek-V2 (arXiv 2405.04434).
"""

from typing import Any

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.finite_values import finite_values_of, latents_with_finite_values
from runtime.cache.layout import Full
from runtime.cache.protocol import AttentionCache, Mask
from runtime.nn.attention.attend import attention, merge_heads, split_heads
from runtime.nn.attention.indexer import Indexer, IndexShape, narrowed
from runtime.nn.linear import MATRICES, linear
from runtime.nn.module import Module
from runtime.nn.norm import Normalize, RMSNorm
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.residual.sublayer import norms_fit
from runtime.parts.attention import LatentAttentionParts, Scoring
from runtime.parts.heads import Heads
from runtime.records import dataclass
from runtime.step import Step


@dataclass(frozen=True, slots=True)
class LatentShape:
    """The sizes of multi-head latent attention. Letters are those of the text above."""

    hidden: int
    """Width of its input and output."""
    heads: int
    """H."""
    query_rank: int | None
    """The size of the vector that queries are made of. None: they are made of the input in one step."""
    rank: int
    """R: the size of the latent."""
    content: int
    """N: elements of a query or key that carry content, per head."""
    position: int
    """P: elements that carry position, per head."""
    value: int
    """V: elements of a value, per head."""
    scale: float
    """Multiplies the scores."""
    bias: bool = False
    """The projections of the input to smaller vectors have a bias."""
    norm_eps: float = 1e-6
    """Of the norms behind them."""
    index: IndexShape | None = None
    """The indexer that chooses what a query sees; None: it sees all."""
    own_index: bool = True
    """The layer has that indexer; False: it sees what an earlier layer's has chosen."""

    @property
    def memory(self) -> Full:
        """What a layer remembers."""
        index = self.index.size if self.index and self.own_index else 0
        return Full(1, self.rank + self.position + index, value_dim=0)

    def expands(self, width: int) -> bool:
        """For `width` queries, is it cheaper to make keys and values of every visible token?"""
        saved = 2 * self.rank - self.content - self.value
        return width * saved > self.rank * (self.content + self.value)


class HeadLinear(Module):
    """One matrix [out, in] per head, used in both directions. weight [H, out, in]."""

    def __init__(self, heads: int, outputs: int, inputs: int) -> None:
        super().__init__()
        self.weight = mx.zeros((heads, outputs, inputs))

    def __call__(self, x: mx.array) -> mx.array:
        """[B, H or 1, L, in] -> [B, H, L, out]."""
        return ops.table.by_heads(self, x, False)

    def back(self, x: mx.array) -> mx.array:
        """[B, H, L, out] -> [B, H, L, in]."""
        return ops.table.by_heads(self, x, True)

    def to_quantized(self, group_size: int, bits: int, *, mode: str = "affine") -> "QuantizedHeadLinear":
        return QuantizedHeadLinear(self, group_size, bits, mode)


class QuantizedHeadLinear(Module):
    """The same with packed weights."""

    def __init__(self, plain: HeadLinear, group_size: int, bits: int, mode: str) -> None:
        super().__init__()
        self.group_size, self.bits, self.mode = group_size, bits, mode
        self.weight, self.scales, *biases = mx.quantize(plain.weight, group_size, bits, mode=mode)
        if biases:
            self.biases = biases[0]
        self.freeze()

    def __call__(self, x: mx.array) -> mx.array:
        return ops.table.by_heads(self, x, False)

    def back(self, x: mx.array) -> mx.array:
        return ops.table.by_heads(self, x, True)

    def to_plain(self) -> HeadLinear:
        heads, outputs, packed = self.weight.shape
        return HeadLinear(heads, outputs, packed * 32 // self.bits)


HEADS = frozenset({HeadLinear, QuantizedHeadLinear})


def by_heads(module: Any, x: mx.array, step: Step | None) -> mx.array:
    """[B, H or 1, L, in] -> [B, H, L, out], with what the step adds."""
    y = module(x)
    return y if step is None or step.adapters is None else step.adapters.by_heads(module, x, y)


def by_heads_back(module: Any, x: mx.array, step: Step | None) -> mx.array:
    """[B, H, L, out] -> [B, H, L, in], with what the step adds."""
    y = module.back(x)
    return y if step is None or step.adapters is None else step.adapters.by_heads_back(module, x, y)


class LatentAttention(Module):
    """[B, L, D] -> [B, L, D]. With parameters `sinks` [H], heads have one more logit each."""

    def __init__(
        self, shape: LatentShape, rope: Rope | None, index_rope: Rope | None = None, chooser: int = 0
    ) -> None:
        """rope None: positions are left out. chooser: the layer whose indexer chooses, itself or another."""
        super().__init__()
        whole = shape.heads * (shape.content + shape.position)
        if shape.query_rank is None:
            self.q_proj = nn.Linear(shape.hidden, whole, bias=False)
        else:
            self.q_a_proj = nn.Linear(shape.hidden, shape.query_rank, bias=shape.bias)
            self.q_a_layernorm = RMSNorm(shape.query_rank, eps=shape.norm_eps)
            self.q_b_proj = nn.Linear(shape.query_rank, whole, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(shape.hidden, shape.rank + shape.position, bias=shape.bias)
        self.kv_a_layernorm = RMSNorm(shape.rank, eps=shape.norm_eps)
        self.k_b_proj = HeadLinear(shape.heads, shape.content, shape.rank)
        self.v_b_proj = HeadLinear(shape.heads, shape.value, shape.rank)
        self.o_proj = nn.Linear(shape.heads * shape.value, shape.hidden, bias=shape.bias)
        if shape.index is not None and shape.own_index:
            assert shape.query_rank is not None
            assert index_rope is not None
            self.indexer = Indexer(shape.index, shape.hidden, shape.query_rank, index_rope)
        self._shape, self._rope, self._chooser = shape, rope, chooser
        kind = type(self)
        self._parts_hold = (
            kind.__call__ is LatentAttention.__call__
            and kind.seen is LatentAttention.seen
            and kind.queries is LatentAttention.queries
        )

    @property
    def takes_from(self) -> int | None:
        """The earlier layer of which it takes more than the stream: what that one has chosen, which is in the
        step. Layers of other kinds that do the like say it in the same way (`runtime.ranks.parts`).
        """
        return None if self._shape.index is None or self._shape.own_index else self._chooser

    def parts(self, norm: Normalize | None, after: Normalize | None) -> LatentAttentionParts | None:
        """See `sublayer.added`."""
        shape = self._shape
        if shape.index is not None or "sinks" in self or not self._parts_hold or not norms_fit(norm, after):
            return None
        first, widen = ("q_proj", None) if shape.query_rank is None else ("q_a_proj", self.q_b_proj)
        opening = self[first], self.kv_a_proj_with_mqa
        heads = self.k_b_proj, self.v_b_proj
        matrices = {*map(type, opening), type(self.o_proj), *([] if widen is None else [type(widen)])}
        if not MATRICES.issuperset(matrices) or not HEADS.issuperset(map(type, heads)):
            return None
        return LatentAttentionParts(
            Heads(shape.heads, 1, shape.rank + shape.position, shape.scale, self._rope),
            norm,
            opening,
            None if widen is None else self.q_a_layernorm,
            widen,
            self.kv_a_layernorm,
            *heads,
            self.o_proj,
            after,
            None if type(self).factors is LatentAttention.factors else self.factors,
        )

    def factors(self, step: Step) -> mx.array | None:
        """What queries are multiplied by, [B or 1, L]; None: by nothing. Families that scale them by position
        override this.
        """
        del step
        return None

    def __call__(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        return linear(self.o_proj, self.seen(x, step, cache), step)

    def seen(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        """What the heads read, side by side, [B, L, H * V]: all but the last projection."""
        shape = self._shape
        low = x if shape.query_rank is None else self.q_a_layernorm(linear(self.q_a_proj, x, step))
        content, position = mx.split(self.queries(low, step), [shape.content], axis=-1)
        position = self._turned(position, step)
        key = self._key(x, step)
        if shape.index is None and (ops.table.steady or not shape.expands(step.width)):
            return self._in_place(content, position, key, step, cache)
        if shape.index is None:
            seen, _, mask = cache.append(step, self._remembered(key), None)
        else:
            seen, mask = self._chosen(x, low, key, step, cache)
        return merge_heads(self._attend(content, position, seen, mask, step))

    def _chosen(
        self, x: mx.array, low: mx.array, key: mx.array, step: Step, cache: AttentionCache
    ) -> tuple[mx.array, Mask]:
        """Keys and mask of what the queries may look at, once `key` is remembered."""
        if "indexer" not in self:
            seen, _, mask = cache.append(step, self._remembered(key), None)
            return narrowed(seen, mask, step.memo(("chosen", self._chooser), missing_choice))
        kept = mx.concatenate([self._remembered(key), self.indexer.key(x, step)], axis=-1)
        seen, _, mask = cache.append(step, kept, None)
        seen, index = mx.split(seen, [key.shape[-1]], axis=-1)
        best = step.memo(("chosen", self._chooser), lambda: self.indexer.choose(x, low, index, mask, step))
        return narrowed(seen, mask, best)

    def _in_place(
        self, content: mx.array, position: mx.array, key: mx.array, step: Step, cache: AttentionCache
    ) -> mx.array:
        """As `absorbed`, over the latents where they lie. Returns [B, L, H * V]."""
        shape = self._shape
        queries = mx.concatenate([by_heads_back(self.k_b_proj, content, step), position], axis=-1)
        size, sinks = shape.rank + shape.position, self.get("sinks")
        by = Scoring(size, shape.scale, sinks=sinks, value_size=shape.rank)
        read = ops.table.remember(step, cache, queries, key, None, by)
        return merge_heads(by_heads(self.v_b_proj, split_heads(read, shape.heads), step))

    def queries(self, low: mx.array, step: Step) -> mx.array:
        """[B, H, L, N + P], not rotated yet, of what they are made of."""
        project = self.q_proj if self._shape.query_rank is None else self.q_b_proj
        queries, factors = split_heads(linear(project, low, step), self._shape.heads), self.factors(step)
        return queries if factors is None else queries * factors[:, None, :, None].astype(queries.dtype)

    def _turned(self, position: mx.array, step: Step) -> mx.array:
        return position if self._rope is None else self._rope(position, step)

    def _remembered(self, key: mx.array) -> mx.array:
        """A key as memory that is read as an array has it."""
        return latents_with_finite_values(key, self._shape.rank)

    def _key(self, x: mx.array, step: Step) -> mx.array:
        """What is remembered of the new tokens, [B, 1, L, R + P]."""
        latent, position = mx.split(
            linear(self.kv_a_proj_with_mqa, x, step)[:, None], [self._shape.rank], axis=-1
        )
        return mx.concatenate([self.kv_a_layernorm(latent), self._turned(position, step)], axis=-1)

    def _attend(
        self, content: mx.array, position: mx.array, seen: mx.array, mask: Mask, step: Step
    ) -> mx.array:
        """Queries in two parts [B, H, L, N] and [B, H, L, P] over what is remembered -> [B, H, L, V]."""
        expands = self._shape.expands(content.shape[2]) and not ops.table.steady
        form = self.expanded if expands else self.absorbed
        return form(content, position, seen, mask, step)

    def absorbed(
        self, content: mx.array, position: mx.array, seen: mx.array, mask: Mask, step: Step | None = None
    ) -> mx.array:
        """With queries taken to the latents: all heads share the one key there is."""
        queries = mx.concatenate([by_heads_back(self.k_b_proj, content, step), position], axis=-1)
        latents = finite_values_of(seen, self._shape.rank)
        read = attention(queries, seen, latents, mask, scale=self._shape.scale, sinks=self.get("sinks"))
        return by_heads(self.v_b_proj, read, step)

    def expanded(
        self, content: mx.array, position: mx.array, seen: mx.array, mask: Mask, step: Step | None = None
    ) -> mx.array:
        """With keys and values made for every visible token."""
        latents, turned = mx.split(seen, [self._shape.rank], axis=-1)
        keys = by_heads(self.k_b_proj, latents, step)
        turned = mx.broadcast_to(turned, (*keys.shape[:3], turned.shape[-1]))
        queries = mx.concatenate([content, position], axis=-1)
        keys = mx.concatenate([keys, turned], axis=-1)
        values = by_heads(self.v_b_proj, finite_values_of(seen, self._shape.rank), step)
        return attention(queries, keys, values, mask, scale=self._shape.scale, sinks=self.get("sinks"))


def missing_choice() -> mx.array | None:
    """What makes the choice of a step's keys where none was made: an error in a network's order of layers."""
    raise AssertionError("the layer that chooses comes before those that look at what it chose")
