"""How often a draft's guess is its target's token, and how fast that makes the two.

Under coupled noise a guess at one place is kept with the probability that the two distributions share, which
both show when they read the same text: no generation is needed.
"""

from collections.abc import Callable, Sequence

import mlx.core as mx
import numpy as np

from runtime.quality.divergence import Read

MOST_DEPTH = 8


def shared(
    target: Read, draft: Read, texts: Sequence[Sequence[int]], advance: Callable[[int], None]
) -> float:
    """Mean over all places of what the two distributions have in common, at temperature 1."""
    found: list[float] = []
    for ids in texts:
        one, other = target(ids), draft(ids)
        width = min(one.shape[-1], other.shape[-1])  # vocabularies may be padded differently
        common = mx.minimum(mx.exp(one[:, :width]), mx.exp(other[:, :width])).sum(axis=-1)
        found.append(float(np.array(common.mean())))
        advance(len(ids))
    return sum(found) / len(found)


def speed(acceptance: float, cost: float, depth: int) -> float:
    """Expected tokens per second of the pair over those of the target alone: (1 - a^(k+1)) / ((1 - a)
    (1 + k c)), for guesses of `depth` tokens that cost `cost` of a target's token each.

    Source: Leviathan et al., arXiv 2211.17192, Theorem 3.8.
    """
    kept = depth + 1.0 if acceptance >= 1 else (1 - acceptance ** (depth + 1)) / (1 - acceptance)
    return kept / (1 + depth * cost)


def best_depth(acceptance: float, cost: float) -> tuple[int, float]:
    """The depth that pays most, 0 for none, and the speed there."""
    depth = max(range(MOST_DEPTH + 1), key=lambda k: (speed(acceptance, cost, k), -k))
    return depth, speed(acceptance, cost, depth)
