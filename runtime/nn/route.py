"""Routing: which experts a token asks, and how much each answer counts.

Dimensions: E experts, k of them chosen per token. Scores are float32 here: two experts whose scores differ
in the eighth bit would be confused otherwise.
"""

from collections.abc import Callable
from typing import ClassVar

import mlx.core as mx

from runtime.nn import ops
from runtime.nn.linear import added
from runtime.nn.module import Module
from runtime.step import Step

Choice = tuple[mx.array, mx.array]
"""(experts int [..., k], their weights float32 [..., k])"""

Router = Callable[[mx.array, Step], Choice]
"""Chooses the experts of each token, by its hidden state [..., D]: a module with that call."""


def softmax_then_top(scores: mx.array, k: int, *, normalize: bool = True) -> Choice:
    """Probabilities over all experts [..., E], of which the k best count. normalize: scaled to sum to one."""
    scores = scores.astype(mx.float32)
    if (at_once := ops.table.route("softmax", scores, k, normalize=normalize)) is not None:
        return at_once
    probabilities = mx.softmax(scores, axis=-1)
    chosen = best(probabilities, k)
    weights = mx.take_along_axis(probabilities, chosen, axis=-1)
    return chosen, weights / weights.sum(axis=-1, keepdims=True) if normalize else weights


def top_then_softmax(scores: mx.array, k: int) -> Choice:
    """The k best experts, with a softmax over those alone."""
    scores = scores.astype(mx.float32)
    if (at_once := ops.table.route("best", scores, k)) is not None:
        return at_once
    chosen = best(scores, k)
    return chosen, mx.softmax(mx.take_along_axis(scores, chosen, axis=-1), axis=-1)


def sigmoid_top(
    scores: mx.array,
    k: int,
    *,
    correction: mx.array | None = None,
    groups: int = 1,
    top_groups: int = 1,
    normalize: bool = True,
    scale: float = 1.0,
) -> Choice:
    """Independent gates. correction [E] moves the choice and not the weights (DeepSeek-V3, arXiv 2412.19437).

    groups: experts come in equal groups, and only the top_groups whose two best experts sum highest are open.
    """
    scores = scores.astype(mx.float32)
    correction = None if correction is None else correction.astype(mx.float32)
    at_once = ops.table.route(
        "sigmoid",
        scores,
        k,
        correction=correction,
        groups=groups,
        top_groups=top_groups,
        normalize=normalize,
        scale=scale,
    )
    if at_once is not None:
        return at_once
    gates = mx.sigmoid(scores)
    ranked = gates if correction is None else gates + correction
    chosen = best(open_groups(ranked, groups, top_groups), k)
    weights = mx.take_along_axis(gates, chosen, axis=-1)
    if normalize:
        weights = weights / (weights.sum(axis=-1, keepdims=True) + 1e-20)
    return chosen, weights * scale


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


class CorrectedRouter(Module):
    """Independent gates with a stored correction of the choice, in groups (DeepSeek-V3, its followers)."""

    takes_pairs: ClassVar[bool] = True

    def __init__(
        self,
        hidden: int,
        experts: int,
        chosen: int,
        *,
        groups: int = 1,
        top_groups: int = 1,
        normalize: bool = True,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.weight = mx.zeros((experts, hidden))
        self.e_score_correction_bias = mx.zeros((experts,))
        self._chosen = chosen
        self._groups, self._top_groups = groups, top_groups
        self._normalize, self._scale = normalize, scale

    def __call__(self, x: mx.array, step: Step) -> Choice:
        """x [B, ..., D] -> experts and weights [B, ..., k]."""
        x = x.astype(mx.float32)
        return sigmoid_top(
            added(self, x, ops.table.matmul(x, self.weight.astype(mx.float32), transposed=True), step),
            self._chosen,
            correction=self.e_score_correction_bias,
            groups=self._groups,
            top_groups=self._top_groups,
            normalize=self._normalize,
            scale=self._scale,
        )
