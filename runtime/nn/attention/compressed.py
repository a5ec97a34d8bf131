"""Attention to a window of tokens and, behind it, to vectors that many tokens were made into (DeepSeek V4).

Dimensions: B rows, L new tokens, H heads, D head size, W window, m tokens to a group, C of how many groups
tokens a vector is made (1: its own; 2: the group before, too), K vectors there are, I the index head size.

All heads share one key, which is the value, too; its last part turns with position, so what heads see is
turned back. A vector is the sum of its tokens' values by a softmax over them of stored places and of what
tokens say, element by element, then normed and turned to where its group begins. Where vectors are many, an
indexer with vectors of its own ranks them, and each query sees the best. Tokens of a group that has not ended
are kept as they are.

Queries are computed each with its own keys, in the order of positions: so nothing depends on how many there
are. Source: transformers modeling_deepseek_v4.py.
"""

from typing import NamedTuple

import mlx.core as mx
import mlx.nn as nn

from runtime.cache.finite_values import finite_values_of
from runtime.cache.layout import LayerSpec, Pooled, Recurrent, State, Stateless
from runtime.cache.protocol import PoolingCache, ScanFunction, Scanned, ScanningCache
from runtime.cache.snapshot import detached
from runtime.cpu.query_parts import HELD, after
from runtime.nn.attention.attend import attention, merge_heads, split_heads
from runtime.nn.attention.indexer import IndexShape, best_places
from runtime.nn.attention.mla import HeadLinear, by_heads
from runtime.nn.linear import linear
from runtime.nn.module import Module
from runtime.nn.norm import RMSNorm
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.scans.causal_conv import last_inputs
from runtime.records import dataclass
from runtime.step import Inputs, Step


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of one layer's attention. Letters are those of the text above."""

    hidden: int
    heads: int
    head_dim: int
    turned: int
    """Elements at the end of a head that turn."""
    query_rank: int
    window: int
    every: int
    """m; 0: a layer with a window alone."""
    index: IndexShape | None
    """Of layers whose vectors are ranked, each of which is made of two groups."""
    out_groups: int
    out_rank: int
    """Of what each group of heads makes of what it sees."""
    norm_eps: float

    @property
    def spans(self) -> int:
        """C."""
        return 1 if self.index is None else 2

    @property
    def memory(self) -> tuple[LayerSpec, LayerSpec, LayerSpec]:
        """The last keys; what tokens say that vectors are made of; vectors."""
        keys = Recurrent({"past": State((self.window, self.head_dim))})
        if not self.every:
            return keys, Stateless(), Stateless()
        size = self.head_dim + (self.index.size if self.index else 0)
        said = State((self.spans * self.every, 2 * self.spans * size))
        return keys, Recurrent({"past": said}), Pooled(size, self.every)


Caches = tuple[ScanningCache, ScanningCache, PoolingCache]


class Groups(NamedTuple):
    """The groups that a step ends."""

    most: int
    """n: of the row that ends most."""
    tokens: mx.array
    """int32 [n, C * m], or [B, n, C * m]: where their tokens are among those of the past and the step."""
    first: mx.array
    """bool [1 or B, n, 1, 1]: none is before it."""
    begin: Step
    """Where they begin."""


def groups_of(step: Step, every: int, spans: int) -> Groups:
    def build() -> Groups:
        behind = [start % every for start in step.starts]
        count = max(over + step.width for over in behind) // every
        alike = len(set(behind)) == 1
        bases = mx.array([every - over for over in behind[: 1 if alike else None]])
        places = bases[:, None, None] + (mx.arange(count) * every)[:, None] + mx.arange(spans * every)
        # Of rows that end fewer groups, too.
        places = mx.minimum(places, spans * every + step.width - 1)
        groups = mx.array([start // every for start in step.starts])[:, None] + mx.arange(count)
        rows = len(step.starts)
        begin = Step((0,) * rows, (max(count, 1),) * rows, inputs=Inputs(positions=groups * every))
        return Groups(count, places[0] if alike else places, (groups == 0)[..., None, None], begin)

    return step.memo(("groups", every, spans), build)


def remembered(size: int) -> ScanFunction:
    """Answers the last `size` of all tokens before the step, and those of the step, [B, size + L, ...]."""

    def fold(states: dict[str, mx.array], new: mx.array, *, counts: mx.array | None) -> Scanned:
        joined = mx.concatenate([states["past"], new.astype(states["past"].dtype)], axis=1)
        return joined, {"past": detached(last_inputs(joined, size, counts))}

    return fold


class Compressor(Module):
    """From tokens of a group to its vector."""

    def __init__(self, shape: Shape, size: int, rope: Rope) -> None:
        super().__init__()
        wide = shape.spans * size
        self.kv_proj = nn.Linear(shape.hidden, wide, bias=False)
        self.gate_proj = nn.Linear(shape.hidden, wide, bias=False)
        self.position_bias = mx.zeros((shape.every, wide))
        self.kv_norm = RMSNorm(size, eps=shape.norm_eps)
        self._shape, self._size, self._rope = shape, size, rope

    def say(self, x: mx.array, step: Step) -> mx.array:
        """[B, L, D] -> [B, L, 2 * C * size]: values, and what they count."""
        return mx.concatenate([linear(self.kv_proj, x, step), linear(self.gate_proj, x, step)], axis=-1)

    def vectors(self, said: mx.array, groups: Groups) -> mx.array:
        """said [B, n, C * m, 2 * C * size], of each group's tokens -> [B, n, size]."""
        said = said.astype(mx.float32)
        values, gates = (self._own(part) for part in mx.split(said, 2, axis=-1))
        gates = gates + self._own(mx.tile(self.position_bias.astype(mx.float32), (self._shape.spans, 1)))
        if self._shape.spans > 1:
            before = mx.arange(gates.shape[-2])[:, None] < self._shape.every
            gates = mx.where(groups.first & before, -mx.inf, gates)
        weights = ops.table.softmax(gates.swapaxes(-1, -2))
        return (values.swapaxes(-1, -2) * weights).sum(axis=-1)

    def finished(self, vectors: mx.array, groups: Groups) -> mx.array:
        """Normed and turned, [B, 1, n, size]."""
        return turned(self._rope, self.kv_norm(vectors)[:, None], groups.begin, self._shape.turned)

    def _own(self, x: mx.array) -> mx.array:
        """[..., C * m, C * size] -> [..., C * m, size]: tokens of the group before have the first part for
        this group, its own tokens the last.
        """
        if self._shape.spans == 1:
            return x
        every, size = self._shape.every, self._size
        return mx.concatenate([x[..., :every, :size], x[..., every:, size:]], axis=-2)


class Ranker(Compressor):
    """The indexer: which vectors a query sees."""

    def __init__(self, shape: Shape, index: IndexShape, rope: Rope) -> None:
        super().__init__(shape, index.size, rope)
        self.q_b_proj = nn.Linear(shape.query_rank, index.heads * index.size, bias=False)
        self.scorer = Scorer(shape.hidden, index.heads)
        self._index = index

    def choose(
        self, x: mx.array, low: mx.array, keys: mx.array, seen: mx.array, step: Step
    ) -> mx.array | None:
        """Places of the T vectors that each query sees, ascending, [B, L, T]; None: all that there are.

        keys [B, 1, K, I]; seen: bool [B or 1, 1, L, K].
        """
        if keys.shape[2] <= self._index.chosen:
            return None
        queries = split_heads(linear(self.q_b_proj, low, step), self._index.heads)
        queries = turned(self._rope, queries, step, self._shape.turned).astype(mx.float32)
        shares = linear(self.scorer.weights_proj, x, step).astype(mx.float32).swapaxes(1, 2)[..., None]
        return best_places(queries, shares, keys, seen, self._index.chosen)[:, 0]


class Scorer(Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.weights_proj = nn.Linear(hidden, heads, bias=False)


class RankedCompressor(Compressor):
    def __init__(self, shape: Shape, index: IndexShape, rope: Rope) -> None:
        super().__init__(shape, shape.head_dim, rope)
        self.indexer = Ranker(shape, index, rope)


class CompressedAttention(Module):
    """[B, L, hidden] -> the same."""

    def __init__(self, shape: Shape, rope: Rope) -> None:
        super().__init__()
        heads, size = shape.heads, shape.head_dim
        self.q_a_proj = nn.Linear(shape.hidden, shape.query_rank, bias=False)
        self.q_a_norm = RMSNorm(shape.query_rank, eps=shape.norm_eps)
        self.q_b_proj = nn.Linear(shape.query_rank, heads * size, bias=False)
        self.kv_proj = nn.Linear(shape.hidden, size, bias=False)
        self.kv_norm = RMSNorm(size, eps=shape.norm_eps)
        self.o_a_proj = HeadLinear(shape.out_groups, shape.out_rank, heads * size // shape.out_groups)
        self.o_b_proj = nn.Linear(shape.out_groups * shape.out_rank, shape.hidden, bias=False)
        self.sinks = mx.zeros((heads,))
        if shape.index is not None:
            self.compressor: Compressor = RankedCompressor(shape, shape.index, rope)
        elif shape.every:
            self.compressor = Compressor(shape, size, rope)
        self._shape, self._rope = shape, rope
        # The turning of pairs the other way is this before and behind it.
        self._mirror = mx.array([1.0, -1.0] * (shape.turned // 2))
        mx.eval(self._mirror)

    def __call__(self, x: mx.array, step: Step, caches: Caches) -> mx.array:
        shape = self._shape
        low = self.q_a_norm(linear(self.q_a_proj, x, step))
        queries = ops.table.rms(split_heads(linear(self.q_b_proj, low, step), shape.heads), shape.norm_eps)
        queries = turned(self._rope, queries, step, shape.turned)
        key = turned(self._rope, self.kv_norm(linear(self.kv_proj, x, step))[:, None], step, shape.turned)
        past = caches[0].scan(step, remembered(shape.window), key[:, 0])
        vectors, chosen = self._vectors(x, low, step, caches) if shape.every else (None, None)
        seen = self._see(queries, past, vectors, chosen, step)
        apart = mx.unflatten(self._turned_back(seen, step), 1, (shape.out_groups, -1))
        grouped = apart.swapaxes(2, 3).flatten(-2)
        return linear(self.o_b_proj, merge_heads(by_heads(self.o_a_proj, grouped, step)), step)

    def _vectors(
        self, x: mx.array, low: mx.array, step: Step, caches: Caches
    ) -> tuple[mx.array, mx.array | None]:
        """All vectors [B, 1, K, D] once those are made whose groups end here, and which of them queries see,
        [B, L, T]; None: all.
        """
        shape, made_by = self._shape, self.compressor
        makers = [made_by, *([made_by.indexer] if isinstance(made_by, RankedCompressor) else [])]
        said = mx.concatenate([maker.say(x, step) for maker in makers], axis=-1)
        sizes = [2 * shape.spans * shape.head_dim] if len(makers) > 1 else []
        past = caches[1].scan(step, remembered(shape.spans * shape.every), said)
        groups, made = groups_of(step, shape.every, shape.spans), []
        if groups.most:
            parts = mx.split(_taken(past, groups.tokens), sizes, axis=-1)
            made = [
                maker.finished(maker.vectors(part, groups).astype(x.dtype), groups)
                for maker, part in zip(makers, parts, strict=True)
            ]
        width = sum(maker.kv_norm.weight.size for maker in makers)
        none = mx.zeros((x.shape[0], 1, 0, width), x.dtype)
        vectors = caches[2].pool(step, mx.concatenate(made, axis=-1) if made else none)
        if not isinstance(made_by, RankedCompressor):
            return vectors, None
        vectors, keys = mx.split(vectors, [shape.head_dim], axis=-1)
        return vectors, made_by.indexer.choose(x, low, keys, self._ended(step, keys.shape[2]), step)

    def _ended(self, step: Step, count: int) -> mx.array:
        """bool [B, 1, L, K]: which groups have ended where a query stands."""

        def build() -> mx.array:
            ended = (step.indices + 1) // self._shape.every
            return (mx.arange(count) < ended[..., None])[:, None]

        return step.memo(("ended", self._shape.every, count), build)

    def _see(
        self, queries: mx.array, past: mx.array, vectors: mx.array | None, chosen: mx.array | None, step: Step
    ) -> mx.array:
        """[B, H, L, D], a part of the queries at a time."""
        batch, _, width, size = queries.shape
        window = self._shape.window
        more = 0 if vectors is None else vectors.shape[2] if chosen is None else chosen.shape[2]
        at_once = max(1, HELD // (batch * (window + more) * size))
        near = (step.indices[..., None] >= mx.arange(window)[::-1])[:, None]
        parts: list[mx.array] = []
        for start in range(0, width, at_once):
            part = slice(start, min(start + at_once, width))
            places = mx.arange(part.start, part.stop)[:, None] + mx.arange(1, window + 1)
            keys, mask = _taken(past, places), near[:, :, part]
            if vectors is not None and more:
                ended = self._ended(step, vectors.shape[2])[:, :, part]
                if chosen is None:
                    shape = batch, part.stop - part.start, more, size
                    beyond = mx.broadcast_to(vectors, shape)
                else:
                    beyond = _taken(vectors[:, 0], chosen[:, part])
                    ended = mx.take_along_axis(ended, chosen[:, None, part], axis=-1)
                keys = mx.concatenate([keys, beyond.astype(keys.dtype)], axis=2)
                mask = mx.concatenate([mask, ended], axis=-1)
            parts.append(self._attend(queries[:, :, part], keys, mask))
            if part.stop < width:
                past = after(past, parts[-1])
                vectors = None if vectors is None else after(vectors, parts[-1])
        return parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=2)

    def _attend(self, queries: mx.array, keys: mx.array, mask: mx.array) -> mx.array:
        """queries [B, H, L, D], each of which has keys [B, L, K, D] of its own; mask [B, 1, L, K]."""
        batch, heads, width, size = queries.shape
        keys = keys.reshape(batch * width, 1, -1, size)
        alone = queries.swapaxes(1, 2).reshape(batch * width, heads, 1, size)
        mask = mask.reshape(batch * width, 1, 1, -1)
        scale = self._shape.head_dim**-0.5
        values = finite_values_of(keys, size)
        seen = attention(alone, keys, values, mask, scale=scale, sinks=self.sinks.astype(queries.dtype))
        return seen.reshape(batch, width, heads, size).swapaxes(1, 2)

    def _turned_back(self, x: mx.array, step: Step) -> mx.array:
        """[B, H, L, D] as if turned by as much the other way."""
        still, tail = mx.split(x, [x.shape[-1] - self._shape.turned], axis=-1)
        mirror = self._mirror.astype(x.dtype)
        return mx.concatenate([still, self._rope(tail * mirror, step) * mirror], axis=-1)


def turned(rope: Rope, x: mx.array, step: Step, count: int) -> mx.array:
    """The last `count` elements of heads [B, heads, L, D] turn."""
    still, tail = mx.split(x, [x.shape[-1] - count], axis=-1)
    return mx.concatenate([still, rope(tail, step)], axis=-1)


def _taken(x: mx.array, places: mx.array) -> mx.array:
    """x [B, T, C] at places [n, k], or [B, n, k] -> [B, n, k, C]."""
    if places.ndim == 2:
        return mx.take(x, places, axis=1)
    return x[mx.arange(x.shape[0])[:, None, None], places]
