"""Which blocks of the past a query looks at: the indexers of Qwen4 and GLM-5.3, small attentions that only
rank.

Dimensions: B rows, L new tokens, K visible ones, J index heads, I the index head size. Blocks are counted
from a row's first token, r tokens each, and have a key that is made of their tokens'. A query sees the `best`
whole blocks up to its own token, and the tokens behind the last of them. While no more blocks than that are
visible nothing is ranked.

Of blocks that score alike the earlier ones are seen. What is seen does not depend on how many tokens are
visible besides, or how they came.
"""

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.protocol import AttentionCache, Mask
from runtime.cpu.query_parts import after
from runtime.nn.attention.attend import split_heads
from runtime.nn.attention.indexer import array_of
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import LayerNorm, RMSNorm
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.records import dataclass
from runtime.step import Inputs, Step


@dataclass(frozen=True, slots=True)
class BlockShape:
    """The sizes of such an indexer. Letters are those of the text above."""

    heads: int
    """J."""
    size: int
    """I."""
    block: int
    """r."""
    best: int
    """Whole blocks that a query sees at most."""


class MeanIndexer(Module):
    """Qwen4's: a block's key is the mean of its tokens', as they were projected, normed and turned as its
    first token is.
    """

    def __init__(self, shape: BlockShape, hidden: int, rope: Rope, eps: float) -> None:
        super().__init__()
        self.index_qk_proj = nn.Linear(hidden, (shape.heads + 1) * shape.size, bias=False)
        self.q_layernorm = RMSNorm(shape.size, eps=eps)
        self.k_layernorm = RMSNorm(shape.size, eps=eps)
        self._shape, self._rope = shape, rope

    def narrowed(self, x: mx.array, step: Step, cache: AttentionCache, mask: Mask) -> Mask:
        """What is left of the mask of visible tokens, once the new tokens' keys are remembered."""
        shape = self._shape
        both = linear(self.index_qk_proj, x, step)
        queries, keys = mx.split(both, [shape.heads * shape.size], axis=-1)
        seen, _, _ = cache.append(step, keys[:, None], None)
        if seen.shape[2] // shape.block <= shape.best:
            return mask
        queries = self._rope(self.q_layernorm(split_heads(queries, shape.heads)), step)
        scores = rectified(queries, self._of_blocks(seen, step))
        return best_blocks(scores, shape, seen.shape[2], step, array_of(mask, x.shape[1], seen.shape[2]))

    def _of_blocks(self, keys: mx.array, step: Step) -> mx.array:
        """[B, 1, K, I] -> one key for each whole block, [B, 1, K // r, I]."""
        apart = in_blocks(keys, self._shape.block).astype(mx.float32)
        rows, _, count, _, _ = apart.shape
        # One after the other, so that a mean does not depend on how many blocks there are.
        means = mx.cumsum(apart, axis=3)[:, :, :, -1] / self._shape.block
        firsts = mx.broadcast_to(mx.arange(count, dtype=mx.int32) * self._shape.block, (rows, count))
        there = Step((0,) * rows, (count,) * rows, long=step.long, inputs=Inputs(positions=firsts))
        return self._rope(self.k_layernorm(means.astype(keys.dtype)), there)


class PoolIndexer(Module):
    """GLM-5.3's: a block's key is a mixture of its tokens' by a softmax for each of its numbers; heads have
    shares; positions are left out. The keys are normed before they are remembered, beside what is mixed by.
    """

    def __init__(self, shape: BlockShape, hidden: int, query_rank: int) -> None:
        super().__init__()
        self.wq_b = nn.Linear(query_rank, shape.heads * shape.size, bias=False)
        self.wk = nn.Linear(hidden, shape.size, bias=False)
        self.k_norm = LayerNorm(shape.size, eps=1e-6)
        self.weights_proj = nn.Linear(hidden, shape.heads, bias=False)
        self.index_kpool_compress_gate = mx.zeros((shape.size, hidden))
        self.index_kpool_compress_ape = mx.zeros((shape.block, shape.size))
        self._shape = shape

    def remembered(self, x: mx.array, step: Step) -> mx.array:
        """[B, L, D] -> [B, 1, L, 2 I]."""
        gate = ops.table.matmul(x, self.index_kpool_compress_gate.astype(x.dtype), transposed=True)
        return mx.concatenate([self.k_norm(linear(self.wk, x, step)), gate], axis=-1)[:, None]

    def narrowed(self, x: mx.array, low: mx.array, seen: mx.array, step: Step, mask: Mask) -> Mask:
        """What is left of the mask. low [B, L, query rank]: what the layer's queries are made of. seen
        [B, 1, K, 2 I]: what is remembered of visible tokens.
        """
        shape, visible = self._shape, seen.shape[2]
        if visible // shape.block <= shape.best:
            return mask
        queries = split_heads(linear(self.wq_b, low, step), shape.heads)
        shares = linear(self.weights_proj, x, step).astype(mx.float32).swapaxes(1, 2)[..., None]
        scores = rectified(queries, self._of_blocks(seen), shares)
        return best_blocks(scores, shape, visible, step, array_of(mask, x.shape[1], visible))

    def _of_blocks(self, seen: mx.array) -> mx.array:
        """[B, 1, K, 2 I] -> one key for each whole block, [B, 1, K // r, I]."""
        apart = in_blocks(seen, self._shape.block).swapaxes(-1, -2)
        keys, gates = mx.split(apart, 2, axis=-2)
        gates = gates.astype(mx.float32) + self.index_kpool_compress_ape.T.astype(mx.float32)
        return (ops.table.softmax(gates).astype(keys.dtype) * keys).sum(axis=-1)


def in_blocks(keys: mx.array, block: int) -> mx.array:
    """[B, 1, K, I] -> the whole blocks, [B, 1, K // r, r, I]."""
    count = keys.shape[2] // block
    return mx.unflatten(keys[:, :, : count * block], 2, (count, block))


def rectified(queries: mx.array, keys: mx.array, shares: mx.array | None = None) -> mx.array:
    """How well keys [B, 1, K, I] answer queries [B, J, L, I]: the sum over heads of what is positive of their
    products, float32 [B, 1, L, K], one head after the other. shares [B, J, L, 1]: what each is multiplied by.
    """
    turned, scores = keys.astype(mx.float32).swapaxes(-1, -2), mx.zeros((1,))
    for head in range(queries.shape[1]):
        part = slice(head, head + 1)
        terms = mx.maximum(ops.table.matmul(queries[:, part].astype(mx.float32), turned), 0)
        scores = scores + (terms if shares is None else terms * shares[:, part])
        if queries.shape[2] > 1:
            turned = after(turned, scores)
    return scores


def best_blocks(
    scores: mx.array, shape: BlockShape, visible: int, step: Step, mask: mx.array | None
) -> mx.array:
    """What is left of a mask of K = visible tokens where queries see the best whole blocks, by scores
    [B, 1, L, K // r], and what is behind the last of them: bool [B, 1, L, K].
    """
    block, best, count = shape.block, shape.best, scores.shape[-1]
    whole = ((step.indices + 1) // block)[:, None, :, None]
    scores = mx.where(mx.arange(count) < whole, ops.table.settled(scores), -mx.inf)
    edge = mx.sort(scores, axis=-1)[..., count - best, None]
    above, level = scores > edge, scores == edge
    room = best - above.sum(axis=-1, keepdims=True)
    chosen = mx.repeat(above | (level & (mx.cumsum(level, axis=-1) <= room)), block, axis=-1)
    chosen = mx.pad(chosen, [(0, 0)] * 3 + [(0, visible - count * block)])
    chosen = chosen | (mx.arange(visible) >= whole * block)
    return chosen if mask is None else chosen & mask
