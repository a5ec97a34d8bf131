"""Two models on the same texts by the vectors that they make: how alike these are, and how fast they come.

Each reads as `embed` does: in its own vocabulary, with its own pooling and whatever its authors put before
texts. Vectors are compared directly where both have as many elements, and always by what a search goes by:
which text is the nearest to which, and in what order pairs of texts are alike. That needs nothing in common;
but only forms of one model, quantized or adapted, have vectors that point the same way.
"""

import os
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from modelkit import arguments
from modelkit.comparing.models import Name, Side, open_sides
from modelkit.errors import RequestError
from modelkit.faults import translated
from modelkit.model import Model
from modelkit.modelfile import Parameters
from modelkit.progress import Advance
from modelkit.requests.attached import Chosen
from modelkit.settings import Settings, settings_at
from runtime.records import dataclass

if TYPE_CHECKING:
    import numpy as np

    from modelkit.loaded.embedding import Embeddings

_LEAST_TEXTS = 3
_MOST_TEXTS = 1000
_TIMED_TEXTS = 48
_TOGETHER = 64


@dataclass(frozen=True, slots=True)
class EmbeddingComparison:
    """Of B with A."""

    cosine: float | None
    """Between A's vector of a text and B's, the mean over texts; None where they differ in size."""
    cosine_least: float | None
    """The least over texts."""
    same_nearest: float
    """The share of texts that have the same other text nearest to them in both."""
    rank_correlation: float | None
    """Spearman's, of how alike the pairs of texts are in A and in B; None where all are equally alike."""
    dimensions: tuple[int, int]
    """Elements of a vector."""
    weight_bytes: tuple[int, int]
    """As stored, with those of adapters that answer."""
    texts_per_s: tuple[float, float] | None
    """Of A and B, one text at a time, the two taking turns; None: not measured."""
    speed: float | None
    """The second over the first, the median over texts."""
    texts: int
    cut: tuple[int, int]
    """How many were too long for A and B, and cut at their ends."""
    adapters: tuple[Chosen, Chosen] = ((), ())
    """Names and scales of those that answered, of A and B."""

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "adapters": [dict(one) for one in self.adapters]}


def compare_embeddings(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    texts: Sequence[str],
    *,
    speed: bool = False,
    home: str | os.PathLike[str] | None = None,
) -> EmbeddingComparison:
    """Have both make vectors of `texts`: three different ones at least, 1000 at most. a, b, speed, home: as
    for `compare`. Raises ModelkitError.
    """
    names = arguments.model(a, "a"), arguments.model(b, "b")
    several = arguments.elements(texts, "texts", "texts")
    given = [arguments.text(one, f"texts[{place}]") for place, one in enumerate(several)]
    timed = arguments.flag(speed, "speed")
    with translated():
        return vectors_compared(names, settings_at(home), given, speed=timed)


def vectors_compared(
    names: tuple[Name, Name],
    settings: Settings,
    texts: Sequence[str],
    *,
    speed: bool,
    advance: Advance = lambda _: None,
) -> EmbeddingComparison:
    """As `compare_embeddings`. advance: told the texts read, of each model."""
    texts = _different(texts)
    with ExitStack() as stack:
        sides = open_sides(stack, names, settings)
        plain = Parameters({"draft_num_predict": 0})  # nothing is written, so nothing is guessed
        models = [stack.enter_context(Model(side.opened, plain, settings)) for side in sides]
        first, second = (
            _vectors(model, side, texts, advance) for model, side in zip(models, sides, strict=True)
        )
        times = _times(models, sides, texts) if speed else None
        a, b = (found[0] for found in (first, second))
        cosines = (a * b).sum(axis=1) if a.shape == b.shape else None
        alike = a @ a.T, b @ b.T
        return EmbeddingComparison(
            cosine=None if cosines is None else float(cosines.mean()),
            cosine_least=None if cosines is None else float(cosines.min()),
            same_nearest=float((_nearest(alike[0]) == _nearest(alike[1])).mean()),
            rank_correlation=_rank_correlation(*map(_pairs, alike)),
            dimensions=(a.shape[1], b.shape[1]),
            weight_bytes=(sides[0].stored_bytes, sides[1].stored_bytes),
            texts_per_s=times and (1 / statistics.median(times[0]), 1 / statistics.median(times[1])),
            speed=times and statistics.median(one / other for one, other in zip(*times, strict=True)),
            texts=len(texts),
            cut=(first[1], second[1]),
            adapters=(sides[0].chosen, sides[1].chosen),
        )


def _different(texts: Sequence[str]) -> list[str]:
    """Each once: a text is the nearest to its own copy, whatever the model."""
    found = list(dict.fromkeys(text for text in texts if text.strip()))
    if len(found) < _LEAST_TEXTS:
        raise RequestError(
            f"different texts to compare on: {len(found)}, expected {_LEAST_TEXTS} or more",
            hint="A file for --text has one on each line.",
        )
    if len(found) > _MOST_TEXTS:
        raise RequestError(
            f"different texts to compare on: {len(found):,}, expected {_MOST_TEXTS:,} or fewer",
            hint="Take a part of them.",
        )
    return found


def _vectors(model: Model, side: Side, texts: Sequence[str], advance: Advance) -> "tuple[np.ndarray, int]":
    """Float64 [N, D] of length 1, and how many texts were cut."""
    import numpy as np

    parts: list[np.ndarray] = []
    cut = 0
    for start in range(0, len(texts), _TOGETHER):
        some = texts[start : start + _TOGETHER]
        found = _embedded(model, side, some)
        parts.append(found.vectors.astype(np.float64))
        cut += sum(dropped > 0 for dropped in found.dropped)
        advance(len(some))
    vectors = np.concatenate(parts)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0), cut


def _embedded(model: Model, side: Side, texts: Sequence[str]) -> "Embeddings":
    try:
        return model.embed(texts, adapters=dict(side.chosen))
    except RequestError as error:
        raise RequestError(f"{side.opened.label}: {error.message}", hint=error.hint) from error


def _times(
    models: Sequence[Model], sides: Sequence[Side], texts: Sequence[str]
) -> tuple[list[float], list[float]]:
    """Seconds for a text, in turns, so that a busy machine slows both, and neither is always the first."""
    times: tuple[list[float], list[float]] = [], []
    for turn, text in enumerate(islice(cycle(texts), _TIMED_TEXTS)):
        for place in (0, 1) if turn % 2 else (1, 0):
            began = time.perf_counter()
            _embedded(models[place], sides[place], [text])
            times[place].append(time.perf_counter() - began)
    return times


def _nearest(alike: "np.ndarray") -> "np.ndarray":
    """[N]: of each text the other that is most like it."""
    import numpy as np

    others = alike.copy()
    np.fill_diagonal(others, -np.inf)
    return others.argmax(axis=1)


def _pairs(alike: "np.ndarray") -> "np.ndarray":
    import numpy as np

    return alike[np.triu_indices(len(alike), 1)]


def _rank_correlation(one: "np.ndarray", other: "np.ndarray") -> float | None:
    import numpy as np

    ranks = _ranks(one), _ranks(other)
    if not all(np.ptp(found) for found in ranks):
        return None
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: "np.ndarray") -> "np.ndarray":
    """Equal values share the mean of their ranks."""
    import numpy as np

    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]
