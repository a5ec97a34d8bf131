"""Attention to blocks of keys that a small attention beside it has chosen, for each group of heads its own
(MiniMax M3's sparse attention).

Dimensions: B rows, L new tokens, K visible ones, H query heads, G groups of them, each with a key and a value
head, I the index head size. One index key of I numbers per token is remembered: cut into G parts, each behind
the columns of a key. Of an index query for each group, the products with index keys are the scores of tokens,
and the best of a block is the block's. While there are no more blocks than are chosen nothing is ranked.

Source: transformers modeling_minimax_m3_vl.py.
"""

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.layout import Full
from runtime.cache.protocol import AttentionCache, Mask
from runtime.cpu.query_parts import after
from runtime.nn.attention.attend import attention, merge_heads, split_heads
from runtime.nn.attention.indexer import HELD, array_of
from runtime.nn.attention.self_attention import HeadNormAttention, HeadShape
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import RMSNorm
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.records import dataclass
from runtime.step import Step


@dataclass(frozen=True, slots=True)
class BlockIndex:
    """How blocks are chosen."""

    size: int
    """I: elements of an index key, and of an index query per group."""
    block: int
    """Tokens of a block; the first begins where the text does."""
    chosen: int
    """How many blocks a query sees at most."""
    local: int
    """The last blocks up to a query's own, which are chosen before others; no more than `chosen`."""

    def memory(self, groups: int, head_dim: int) -> Full:
        """What a layer remembers."""
        return Full(groups, head_dim + -(-self.size // groups), head_dim)


class BlockIndexer(Module):
    def __init__(self, index: BlockIndex, hidden: int, groups: int, rope: Rope, eps: float) -> None:
        super().__init__()
        self.q_proj = nn.Linear(hidden, groups * index.size, bias=False)
        self.k_proj = nn.Linear(hidden, index.size, bias=False)
        self.q_norm = RMSNorm(index.size, eps=eps)
        self.k_norm = RMSNorm(index.size, eps=eps)
        self._index, self._rope = index, rope

    def key(self, x: mx.array, step: Step) -> mx.array:
        """[B, L, D] -> [B, 1, L, I], rotated."""
        return self._rope(self.k_norm(linear(self.k_proj, x, step)[:, None]), step)

    def choose(self, x: mx.array, keys: mx.array, mask: Mask, step: Step) -> mx.array | None:
        """Which tokens are seen, bool [B, G, L, K]; None: no block is left out. keys [B, 1, K, I]."""
        seen = keys.shape[2]
        if seen <= self._index.block * self._index.chosen:
            return None
        queries = linear(self.q_proj, x, step)
        groups = queries.shape[-1] // self._index.size
        queries = self._rope(self.q_norm(split_heads(queries, groups)), step).astype(mx.float32)
        turned, visible = keys.astype(mx.float32).swapaxes(-1, -2), array_of(mask, x.shape[1], seen)
        at_once = max(1, HELD // (x.shape[0] * x.shape[1] * seen))
        best: list[mx.array] = []
        for group in range(0, groups, at_once):
            best.append(self._best(queries[:, group : group + at_once], turned, visible))
            if group + at_once < groups:
                turned = after(turned, best[-1])
        kept = mx.repeat(self._kept(mx.concatenate(best, axis=1), step), self._index.block, axis=-1)
        return kept[..., :seen] if visible is None else kept[..., :seen] & visible

    def _best(self, queries: mx.array, turned: mx.array, visible: mx.array | None) -> mx.array:
        """The best score of each block, [B, groups, L, blocks]."""
        scores = ops.table.matmul(queries, turned)
        if visible is not None:
            scores = mx.where(visible, scores, -mx.inf)
        spare = -scores.shape[-1] % self._index.block
        scores = mx.pad(scores, [(0, 0)] * 3 + [(0, spare)], constant_values=-mx.inf)
        return mx.unflatten(scores, -1, (-1, self._index.block)).max(axis=-1)

    def _kept(self, best: mx.array, step: Step) -> mx.array:
        """Which blocks are chosen, by their best scores."""
        own = (step.indices // self._index.block)[:, None, :, None]
        ahead = own - mx.arange(best.shape[-1], dtype=mx.int32)
        ranked = mx.where((ahead >= 0) & (ahead < self._index.local), mx.inf, best)
        chosen = mx.argpartition(-ranked, self._index.chosen - 1, axis=-1)[..., : self._index.chosen]
        chosen = ops.table.settled(chosen)
        return mx.put_along_axis(mx.zeros(best.shape, mx.bool_), chosen, mx.array(True), axis=-1)


class ChoosingAttention(HeadNormAttention):
    """Norms of heads are RMS norms."""

    def __init__(self, shape: HeadShape, rope: Rope, index: BlockIndex, eps: float) -> None:
        super().__init__(shape, rope, lambda _heads: RMSNorm(shape.head_dim, eps=eps))
        self._index = index
        self.indexer = BlockIndexer(index, shape.hidden_size, shape.kv_heads, rope, eps)

    def seen(self, x: mx.array, step: Step, cache: AttentionCache) -> mx.array:
        queries, keys, values = self.project(x, step)
        queries, keys = self.place(queries, keys, step)
        index, size, groups = self.indexer.key(x, step), self._head_dim, keys.shape[1]
        width = index.shape[-1]
        parts = mx.pad(index, [(0, 0)] * 3 + [(0, -width % groups)])
        parts = mx.unflatten(parts[:, 0], -1, (groups, -1)).swapaxes(1, 2)
        keys, values, mask = cache.append(step, mx.concatenate([keys, parts], axis=-1), values)
        assert values is not None
        keys, parts = keys[..., :size], keys[..., size:]
        index = parts.swapaxes(1, 2).flatten(2)[:, None, :, :width]
        chosen = self.indexer.choose(x, index, mask, step)
        if chosen is None:
            return merge_heads(attention(queries, keys, values, mask, scale=self._scale))
        # One mask serves all heads of a group, so that groups stand where rows do.
        batch = queries.shape[0]
        queries = mx.unflatten(queries, 1, (groups, -1)).flatten(0, 1)
        keys, values, chosen = (each.flatten(0, 1)[:, None] for each in (keys, values, chosen))
        read = attention(queries, keys, values, chosen, scale=self._scale)
        return merge_heads(mx.unflatten(read, 0, (batch, groups)).flatten(1, 2))

    @property
    def shift(self) -> None:
        """Blocks begin where the text does."""
        return None
