"""Routing: which experts a token asks, and how much each answer counts.

Dimensions: E experts, k of them chosen per token. Scores are float32 here: two experts whose scores differ
in the eighth bit would be confused otherwise.
"""

from collections.abc import Callable
from typing import ClassVar

import mlx.core as mx
import mlx.nn as nn

from runtime.nn.linear import Takes, added
from runtime.nn.module import Module
from runtime.nn.operations import ops
from runtime.parts.feed_forward import Routing
from runtime.step import Step

Choice = tuple[mx.array, mx.array]
"""(experts int [..., k], their weights float32 [..., k])"""

Router = Callable[[mx.array, Step], Choice]
"""Chooses the experts of each token, by its hidden state [..., D]: a module with that call."""


def choose(by: Routing, scores: mx.array) -> Choice:
    """scores [..., E]"""
    scores = scores.astype(mx.float32)
    if (at_once := ops.table.route(by, scores)) is not None:
        return at_once
    if by.gates == "near":
        return _one_by_one(by, scores)
    gates = GATES[by.gates](scores)
    ranked = gates if by.correction is None else gates + by.correction
    chosen = best(open_groups(ranked, by.groups, by.top_groups, judges=by.judges), by.each)
    return chosen, weighed(by, gates, chosen)


def weighed(by: Routing, gates: mx.array, chosen: mx.array) -> mx.array:
    """How much the answers of the chosen [..., k] count, by the gates of all [..., E]."""
    weights = mx.take_along_axis(gates, chosen, axis=-1)
    if by.gates == "best":
        weights = mx.softmax(weights, axis=-1)
    if by.gates == "late":
        weights = mx.sigmoid(weights)
    if by.normalize:
        total = weights.sum(axis=-1, keepdims=True)
        total = total + 1e-20 if by.gates in ("sigmoid", "root") else total
        weights = weights / (mx.maximum(total, by.least) if by.least else total)
    weights = weights if by.scale == 1 else weights * by.scale
    return weights if by.shares is None else weights * by.shares[chosen]


def _one_by_one(by: Routing, scores: mx.array) -> Choice:
    """Near gates."""
    left, chosen, weights = scores, [], []
    for _ in range(by.each):
        best = ops.table.settled(mx.argmax(left, axis=-1, keepdims=True))
        top = mx.take_along_axis(left, best, axis=-1)
        far = (top - scores) / mx.maximum(mx.abs(scores), top) > by.nearness
        shares = mx.softmax(mx.where(far, -mx.inf, left), axis=-1)
        chosen.append(best)
        weights.append(mx.take_along_axis(shares, best, axis=-1))
        left = mx.put_along_axis(left, best, mx.array(-mx.inf), axis=-1)
    return mx.concatenate(chosen, axis=-1), mx.concatenate(weights, axis=-1)


GATES: dict[str, Callable[[mx.array], mx.array]] = {
    "softmax": lambda scores: mx.softmax(scores, axis=-1),
    "best": lambda scores: scores,
    "sigmoid": mx.sigmoid,
    "late": lambda scores: scores,
    "root": lambda scores: mx.sqrt(ops.table.softplus(scores)),
}


def top_then_softmax(scores: mx.array, k: int) -> Choice:
    """The k best experts, with a softmax over those alone."""
    return choose(Routing("best", k), scores)


def open_groups(ranked: mx.array, groups: int, top_groups: int, *, judges: int = 2) -> mx.array:
    """Scores [..., E], minus infinity in all groups but those whose `judges` best experts sum highest."""
    if groups == top_groups:
        return ranked
    parts = ranked.reshape(*ranked.shape[:-1], groups, -1)
    strength = mx.topk(parts, min(judges, parts.shape[-1]), axis=-1).sum(axis=-1)
    closed = mx.argpartition(strength, groups - top_groups, axis=-1)[..., : groups - top_groups]
    closed = ops.table.settled(closed)
    parts = mx.put_along_axis(parts, closed[..., None], mx.array(-mx.inf, parts.dtype), axis=-2)
    return parts.reshape(ranked.shape)


def best(scores: mx.array, k: int) -> mx.array:
    """Indices of the k largest scores, in no particular order."""
    return ops.table.settled(mx.argpartition(-scores, k - 1, axis=-1)[..., :k])


class RuledRouter(Module):
    """Scores by a matrix in float32, and a rule by which they choose; with a stored correction where that
    moves the choice.
    """

    takes_pairs: ClassVar[Takes] = "matrix"

    def __init__(self, hidden: int, experts: int, routing: Routing, *, corrected: bool = False) -> None:
        super().__init__()
        self.weight = mx.zeros((experts, hidden))
        if corrected:
            self.e_score_correction_bias = mx.zeros((experts,))
        self._routing = routing

    def __call__(self, x: mx.array, step: Step) -> Choice:
        """x [B, ..., D] -> experts and weights [B, ..., k]."""
        x = x.astype(mx.float32)
        scores = ops.table.matmul(x, self.weight.astype(mx.float32), transposed=True)
        return choose(self.routing(), added(self, x, scores, step))

    def ruled(self) -> tuple[nn.Module, Routing]:
        """Whose products are scores, and what is done with them."""
        return self, self.routing()

    def routing(self) -> Routing:
        correction = self.get("e_score_correction_bias")
        return self._routing if correction is None else corrected(self._routing, correction)


def corrected(routing: Routing, correction: mx.array) -> Routing:
    return routing._replace(correction=correction.astype(mx.float32))


class CorrectedRouter(RuledRouter):
    """Independent gates with a stored correction of the choice (DeepSeek-V3, arXiv 2412.19437)."""

    def __init__(self, hidden: int, experts: int, chosen: int, *, scale: float = 1.0) -> None:
        routing = Routing("sigmoid", chosen, normalize=True, scale=scale)
        super().__init__(hidden, experts, routing, corrected=True)


def among(choice: Choice, start: int, stop: int) -> Choice:
    """Of experts [start, stop), counted from the first of them; what others would answer counts nothing."""
    chosen, shares = choice
    own = (chosen >= start) & (chosen < stop)
    return mx.where(own, chosen, start) - start, mx.where(own, shares, 0)
