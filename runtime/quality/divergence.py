"""How far one network's predictions, or its vectors of texts, are from another's: both read the same."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import mlx.core as mx
import numpy as np

from runtime.loaded import LoadedModel
from runtime.nn.operations import ops
from runtime.quality.reading import outputs
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

    @property
    def cost(self) -> float:
        """What formats are chosen by."""
        return self.kl

    def to_json(self) -> dict[str, Any]:
        """Rounded to five digits, so that the last bits of a sum do not show."""
        return _rounded(asdict(self))


@dataclass(frozen=True, slots=True)
class Likeness:
    """Of the vectors that B makes to those that A makes, over some texts."""

    cosine: float
    """Between the two vectors of a text, the mean over texts."""
    cosine_least: float
    """The least over texts."""
    same_nearest: float
    """The share of texts that have the same other text nearest to them in both."""
    texts: int

    @property
    def cost(self) -> float:
        """What formats are chosen by."""
        return 1 - self.cosine

    def to_json(self) -> dict[str, Any]:
        """Rounded to five digits."""
        return _rounded(asdict(self))


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: float(f"{value:.5g}") if isinstance(value, float) else value for name, value in values.items()
    }


Read = Callable[[Sequence[int]], mx.array]


def reader(model: LoadedModel) -> Read:
    """What a model gives of a text: predictions after each of its tokens as logarithms [T, V], or its vector
    [D]. Packed matrices may have any scales.
    """

    def read(ids: Sequence[int]) -> mx.array:
        with ops.using("plain"):
            found = outputs(model, [ids])[0]
            mx.eval(found)
        return found

    return read


def divergence(
    first: Read, second: Read, texts: Sequence[Sequence[int]], advance: Callable[[int], None] = lambda _: None
) -> Divergence:
    """Of the second from the first. advance: called with the tokens done."""
    lost: list[np.ndarray] = []
    same: list[np.ndarray] = []
    surprise = [0.0, 0.0]
    tokens = 0
    for ids in texts:
        a, b = first(ids), second(ids)
        lost.append(np.array((mx.exp(a) * (a - b)).sum(axis=-1), np.float64))
        same.append(np.array(mx.argmax(a, axis=-1) == mx.argmax(b, axis=-1)))
        after = mx.array(list(ids[1:]), dtype=mx.int32)[:, None]
        for place, odds in enumerate((a, b)):
            surprise[place] -= float(np.array(mx.take_along_axis(odds[:-1], after, axis=-1).sum()))
        tokens += len(ids) - 1
        advance(len(ids))
    every = np.maximum(np.concatenate(lost), 0.0)
    means = [one / tokens for one in surprise]
    return Divergence(
        kl=float(every.mean()),
        kl_p99=float(np.quantile(every, 0.99)),
        same_top=float(np.concatenate(same).mean()),
        perplexity_ratio=float(np.exp(means[1] - means[0])),
        perplexity=float(np.exp(means[0])),
        tokens=len(every),
    )


def likeness(
    first: Read, second: Read, texts: Sequence[Sequence[int]], advance: Callable[[int], None] = lambda _: None
) -> Likeness:
    """Of the second to the first, which make vectors of two texts at least. advance: called with the
    tokens done.
    """
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    for ids in texts:
        pairs.append((np.array(first(ids), np.float64), np.array(second(ids), np.float64)))
        advance(len(ids))
    a, b = (np.stack(side) for side in zip(*pairs, strict=True))
    cosines = np.minimum((a * b).sum(axis=-1), 1.0)
    return Likeness(
        cosine=float(cosines.mean()),
        cosine_least=float(cosines.min()),
        same_nearest=float((_nearest(a) == _nearest(b)).mean()),
        texts=len(pairs),
    )


def _nearest(vectors: np.ndarray) -> np.ndarray:
    """Of each of N vectors [N, D], which other one is the most alike."""
    alike = vectors @ vectors.T
    np.fill_diagonal(alike, -np.inf)
    return alike.argmax(axis=1)
