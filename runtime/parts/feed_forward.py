"""Feed-forward sublayers as operations compute them: dense ones, experts, and how experts are chosen."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import mlx.core as mx


class FeedForwardParts(NamedTuple):
    """after(down(inner)): inner is act(gate) · up or, of one part, act(part)."""

    norm: Any
    opening: Sequence[Any]
    """Make gate and up of norm(x), or the one part."""
    halves: bool
    """One module makes both, as halves of what it gives."""
    activation: str
    """Its name in `runtime.nn.activation.NAMES`."""
    down: Any
    after: Any
    gate_scale: float = 1.0
    """Multiplies what is activated, before that."""
    share: float = 1.0
    beside: bool = False
    sums: Any = None
    cut: float | None = None
    """What is activated passes `Operations.cut` with this number before; None: not."""
    bends: Any = None
    """An xIELU module (`Operations.bend`) in place of the activation of one part."""
    low: Sequence[tuple[Any, Any] | None] = ()


class ExpertParts(NamedTuple):
    """Experts: each answers down(inner), with inner as in `FeedForwardParts`, or by `clip`."""

    opening: Sequence[Any]
    """Stacks of matrices: of [gate, up], or one."""
    activation: str
    clip: tuple[float, float] | None
    """Limit and slope of `clipped_gate`, where that takes the gate's place."""
    down: Any


class Routing(NamedTuple):
    """Which experts a row is sent to by its scores, and how much each answer counts
    (`runtime.nn.feed_forward.router.choose`).
    """

    gates: Literal["softmax", "best", "sigmoid", "late", "near", "root"]
    """softmax: over all experts; best: over those that are chosen; sigmoid: each by itself; late: the same,
    of those that are chosen by their scores; near: one after the other, the best that is left, with its share
    in a softmax over those left that are nearly as good (SparseMixer, arXiv 2310.00811), and nothing that
    follows here but `nearness`; root: the root of a softplus, each by itself, which no kernel computes.
    """
    each: int
    """Experts per row: those with the greatest gates."""
    correction: mx.array | None = None
    """float32 [E], added to gates for the choice only."""
    groups: int = 1
    """Experts are in so many equal groups, and only those of the best groups can be chosen."""
    top_groups: int = 1
    """How many groups: those whose best experts' gates have the greatest sum."""
    judges: int = 2
    """How many of a group's best experts are summed, one or two."""
    normalize: bool = False
    """The gates of the chosen are divided by their sum."""
    scale: float = 1.0
    """Gates are then multiplied by it."""
    least: float = 0.0
    """Least divisor, where the sum is smaller."""
    shares: mx.array | None = None
    """float32 [E]: finally each gate is multiplied by its expert's share."""
    nearness: float = 0.0
    """near: how much worse than the best, relatively, an expert may be to count."""


class ScaledRMS(NamedTuple):
    """x / √(mean(x²) + eps) · by · times."""

    by: mx.array
    """[D]"""
    eps: float
    times: float


class MixtureParts(NamedTuple):
    """after(the experts' answers to norm(x), weighed by the router)."""

    norm: Any
    router: Any
    """A linear layer with one output for each expert, its score."""
    routing: Routing
    experts: ExpertParts
    shared: FeedForwardParts | None
    """Experts that always answer, too. If they have a norm of their own, they read that of x in place of
    norm(x).
    """
    gate: Any
    """A linear layer with one output, whose sigmoid multiplies the shared experts' answer; or None."""
    after: Any
    share: float = 1.0
    beside: bool = False
    reading: ScaledRMS | None = None
    """What the router reads; None: norm(x)."""
    answered: Any = None
    """An RMS norm of the experts' answer, before that of the shared ones is added; or None."""
    fed: bool = False
    """Weights multiply what experts read instead of what they answer."""
    sums: Any = None
