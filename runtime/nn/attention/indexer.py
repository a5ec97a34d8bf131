"""Which of the past a query looks at: DeepSeek's lightning indexer, a small attention that only ranks.

Dimensions: B rows, L new tokens, K visible ones, J index heads, I the index head size, T how many tokens
are chosen. One key of I numbers per token is remembered, behind the columns of the layer's own key. While
no more than T tokens are visible nothing is ranked. Source: DeepSeek-V3.2-Exp (2025), section 2; its
Hadamard rotation of queries and keys leaves their products as they are and is left out.
"""

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.protocol import Mask
from runtime.cpu.query_parts import after, in_parts, of_tokens
from runtime.nn.attention.attend import split_heads
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import LayerNorm
from runtime.nn.operations import ops
from runtime.nn.operations.plain import causal_mask
from runtime.nn.positions.rope import Rope
from runtime.records import dataclass
from runtime.step import Step

HELD = 1 << 22
"""Products made at once, J for each pair of a query and a token: of some heads, else of some queries. MLX
makes those of several parts before it waits for the first.
"""
TOGETHER = 1 << 25
"""So many are made at once if there are no more, as in a step of one token, which parts would slow."""


@dataclass(frozen=True, slots=True)
class IndexShape:
    """The sizes of an indexer."""

    heads: int
    """J in the text above."""
    size: int
    """I: elements of an index key, and of a query per head."""
    chosen: int
    """T: how many tokens a query sees at most."""
    still: int = 0
    """Elements of a key or query that stand before those that turn."""
    norm_eps: float = 1e-6
    """Of the norm of keys."""


class Indexer(Module):
    def __init__(self, shape: IndexShape, hidden: int, query_rank: int, rope: Rope) -> None:
        super().__init__()
        self.wq_b = nn.Linear(query_rank, shape.heads * shape.size, bias=False)
        self.wk = nn.Linear(hidden, shape.size, bias=False)
        self.k_norm = LayerNorm(shape.size, eps=shape.norm_eps)
        self.weights_proj = nn.Linear(hidden, shape.heads, bias=False)
        self._shape, self._rope = shape, rope

    def queries(self, low: mx.array, step: Step) -> mx.array:
        """[B, L, query rank] -> [B, J, L, I], rotated."""
        return self._turned(split_heads(linear(self.wq_b, low, step), self._shape.heads), step)

    def key(self, x: mx.array, step: Step) -> mx.array:
        """[B, L, D] -> [B, 1, L, I], rotated."""
        return self._turned(self.k_norm(linear(self.wk, x, step))[:, None], step)

    def _turned(self, x: mx.array, step: Step) -> mx.array:
        if not self._shape.still:
            return self._rope(x, step)
        still, turns = mx.split(x, [self._shape.still], axis=-1)
        return mx.concatenate([still, self._rope(turns, step)], axis=-1)

    def choose(self, x: mx.array, low: mx.array, index: mx.array, mask: Mask, step: Step) -> mx.array | None:
        """The T best places for each query, ascending, [B, 1, L, T]; None: no more than T are visible.

        low [B, L, query rank]: what the layer's queries are made of. index [B, 1, K, I]: visible index keys.
        """
        if index.shape[2] <= self._shape.chosen:
            return None
        return self._best(x, low, index, array_of(mask, x.shape[1], index.shape[2]), step)

    def _best(
        self, x: mx.array, low: mx.array, index: mx.array, mask: mx.array | None, step: Step
    ) -> mx.array:
        """The T best places for each query, [B, 1, L, T]."""
        queries = self.queries(low, step).astype(mx.float32)
        shares = linear(self.weights_proj, x, step).astype(mx.float32).swapaxes(1, 2)[..., None]
        return best_places(queries, shares, index, mask, self._shape.chosen)


def best_places(
    queries: mx.array, shares: mx.array, index: mx.array, mask: mx.array | None, chosen: int
) -> mx.array:
    """The places of so many of the keys [B, 1, K, I] that score best, ascending, [B, 1, L, chosen].

    queries [B, J, L, I], shares [B, J, L, 1], both float32: a key's score is the sum over index heads of what
    is above zero of their products, times the head's share. mask: True where a query sees a key; None: all.
    """
    batch, heads, width, _ = queries.shape
    seen = index.shape[2]

    def scored(turned: mx.array, asking: range) -> mx.array:
        asked, parts = of_tokens(queries, asking), of_tokens(shares, asking)
        scores = mx.zeros((batch, 1, len(asking), seen))
        at_once = heads if heads * scores.size <= TOGETHER else max(1, HELD // scores.size)
        for head in range(0, heads, at_once):
            part = slice(head, head + at_once)
            products = mx.maximum(ops.table.matmul(asked[:, part], turned), 0)
            # One head after the other, so that a score does not depend on how many of them there is room for.
            terms = mx.concatenate([scores, products * parts[:, part]], axis=1)
            scores = mx.cumsum(terms, axis=1)[:, -1:]
            if head + at_once < heads:
                turned = after(turned, scores)
        return scores

    def best(asking: range, scores: mx.array) -> mx.array:
        # NaN has no order, so that others would be chosen by how many keys there are: it is always, and seen.
        scores = mx.where(mx.isnan(scores), mx.inf, scores)
        if mask is not None:
            scores = mx.where(of_tokens(mask, asking), scores, -mx.inf)
        places = mx.argpartition(-scores, chosen - 1, axis=-1)[..., :chosen]
        return ops.table.settled(mx.sort(places, axis=-1))

    return in_parts(best, scored, index.astype(mx.float32).swapaxes(-1, -2), width, HELD)


def narrowed(keys: mx.array, mask: Mask, best: mx.array | None) -> tuple[mx.array, Mask]:
    """What is left of visible tokens [B, 1, K, columns] where queries look at these places of them alone.

    A single query gets the chosen keys alone, unless its answer is to be the same bits as among others;
    several get a mask over all.
    """
    if best is None:
        return keys, mask
    mask = array_of(mask, best.shape[2], keys.shape[2])
    if best.shape[2] == 1 and not ops.table.steady:
        chosen = mx.take_along_axis(keys, best.swapaxes(-1, -2), axis=2)
        if mask is None:
            return chosen, None
        mask = mx.broadcast_to(mask, (best.shape[0], *mask.shape[1:]))
        return chosen, mx.take_along_axis(mask, best, axis=-1)
    ranked = mx.zeros((*best.shape[:3], keys.shape[2]), mx.bool_)
    ranked = mx.put_along_axis(ranked, best, mx.array(True), axis=-1)
    return keys, ranked if mask is None else ranked & mask


def array_of(mask: Mask, queries: int, visible: int) -> mx.array | None:
    """The mask as an array, [B or 1, 1, L or 1, K]; None: all is seen."""
    return causal_mask(queries, visible)[None, None] if isinstance(mask, str) else mask
