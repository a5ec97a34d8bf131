"""How far one network's predictions are from another's, on texts that both read."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import mlx.core as mx
import numpy as np

from runtime.loaded import LoadedModel
from runtime.nn import ops
from runtime.quality.reading import log_odds, logits
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class Divergence:
    """Of B from A, over all tokens of some texts."""

    kl: float
    """Mean of KL(A || B), nats per token."""
    kl_p99: float
    """Its 99th percentile over tokens."""
    same_top: float
    """The share of places at which both have the same likeliest token."""
    perplexity_ratio: float
    """Perplexity of B over that of A on the text itself."""
    perplexity: float
    """Of A."""
    tokens: int

    def to_json(self) -> dict[str, Any]:
        """Rounded to five digits, so that the last bits of a sum do not show."""
        return {
            name: float(f"{value:.5g}") if name != "tokens" else value for name, value in asdict(self).items()
        }


Read = Callable[[Sequence[int]], mx.array]


def reader(model: LoadedModel) -> Read:
    """Predictions after each token of a text, as logarithms [T, V]. Packed matrices may have any scales."""

    def read(ids: Sequence[int]) -> mx.array:
        with ops.using("plain"):
            odds = log_odds(logits(model, ids))
            mx.eval(odds)
        return odds

    return read


def divergence(
    first: Read, second: Read, texts: Sequence[Sequence[int]], advance: Callable[[int], None] = lambda _: None
) -> Divergence:
    """Of the second from the first. advance: told the tokens done."""
    lost: list[np.ndarray] = []
    same: list[np.ndarray] = []
    surprise = [0.0, 0.0]
    told = 0
    for ids in texts:
        a, b = first(ids), second(ids)
        lost.append(np.array((mx.exp(a) * (a - b)).sum(axis=-1), np.float64))
        same.append(np.array(mx.argmax(a, axis=-1) == mx.argmax(b, axis=-1)))
        after = mx.array(list(ids[1:]), dtype=mx.int32)[:, None]
        for place, odds in enumerate((a, b)):
            surprise[place] -= float(np.array(mx.take_along_axis(odds[:-1], after, axis=-1).sum()))
        told += len(ids) - 1
        advance(len(ids))
    every = np.maximum(np.concatenate(lost), 0.0)
    means = [one / told for one in surprise]
    return Divergence(
        kl=float(every.mean()),
        kl_p99=float(np.quantile(every, 0.99)),
        same_top=float(np.concatenate(same).mean()),
        perplexity_ratio=float(np.exp(means[1] - means[0])),
        perplexity=float(np.exp(means[0])),
        tokens=len(every),
    )
