"""Positions as a bias on attention scores: one number per head and bucket of distances (T5); or, for each
query, one number per head and distance (`by_distance`, Inkling).

Near distances have a bucket each, far ones share buckets that grow by a logarithm, and beyond `max_distance`
all share the last. So a table over the distances [0, max_distance], or to both sides of 0 where a query looks
both ways, says all there is to say, whatever the length of a text. Source: arXiv 1910.10683, section 2.1.
"""

from collections.abc import Hashable

import mlx.core as mx
import numpy as np

from runtime.cpu.query_parts import of_tokens
from runtime.parts.attention import Bias
from runtime.step import Step


class RelativeBias:
    """Which bucket each distance falls into; the numbers themselves are a module's weight [buckets, H]."""

    def __init__(self, buckets: int, max_distance: int, *, both_ways: bool) -> None:
        self._least, self._most = -max_distance, max_distance if both_ways else 0
        distances = np.arange(max_distance + 1, dtype=np.int32)
        half = buckets // 2 if both_ways else buckets
        behind = _buckets(distances, half, max_distance)[::-1]
        ahead = half + _buckets(distances[1:], half, max_distance) if both_ways else behind[:0]
        self._buckets = mx.array(np.concatenate([behind, ahead]))

    def between(self, weight: mx.array, queries: mx.array, keys: mx.array) -> mx.array:
        """[B, H, L, K] for places int32 of queries [B, L] and of K keys [K]; B is 1 where rows agree."""
        apart = mx.clip(keys - queries[..., None], self._least, self._most) - self._least
        by_distance = mx.take(weight, self._buckets, axis=0)
        return mx.take(by_distance, apart, axis=0).transpose(0, 3, 1, 2)

    def of_step(self, weight: mx.array, step: Step, of: Hashable) -> Bias:
        """Of layers that see the whole past. Made once per step for each `of`."""
        rows = 1 if len(set(step.starts)) == 1 else len(step.starts)

        def bias(places: mx.array, asking: range) -> mx.array:
            def build() -> mx.array:
                return self.between(weight, step.indices[:rows, asking.start : asking.stop], places[0])

            return step.shared(("relative", of, places.shape[1]), asking, build)

        return bias


def by_distance(scores: mx.array, step: Step, places: mx.array, asking: range) -> mx.array:
    """[B, H, n, K] of what the queries of a step say of distances, [B, H, L, E], n of them: for keys at these
    places, which are 0 to E - 1 tokens behind. What is further is 0.
    """
    extent = scores.shape[3]

    def build() -> tuple[mx.array, mx.array]:
        apart = step.indices[:, asking.start : asking.stop, None] - places[:, None]
        near = (apart >= 0) & (apart < extent)
        return places, mx.where(near, apart, extent)[:, None]

    _, at = step.shared(("apart", id(places), extent), asking, build)
    wider = mx.pad(of_tokens(scores, asking), [(0, 0), (0, 0), (0, 0), (0, 1)])
    return mx.take_along_axis(wider, mx.broadcast_to(at, (*wider.shape[:3], at.shape[3])), axis=3)


def _buckets(distances: np.ndarray, buckets: int, max_distance: int) -> np.ndarray:
    """int32, for distances from 0 on. In float32, as the reference rounds at the borders of buckets."""
    exact = buckets // 2
    far = np.maximum(distances, 1).astype(np.float32)
    logs = np.log(far / np.float32(exact)) / np.float32(np.log(max_distance / exact))
    grown = exact + (logs * np.float32(buckets - exact)).astype(np.int32)
    return np.where(distances < exact, distances, np.minimum(grown, buckets - 1)).astype(np.int32)
