"""How much an error of each weight would cost: one backward pass.

The predictions of a network whose weights are off by d differ from its own by about ½ dᵀ F d nats per token,
F being the Fisher information. Of F this takes the diagonal, and of that what is separate in rows and
columns: for y = W x the expected squares of x and of the gradient of the log-probability of a token drawn
from the model itself. Ranks matrices as the true divergence does (0.91), at the cost of two forward passes
and one backward.

Memory: the weights, and the activations of one sequence. Source: K-FAC's diagonal, Martens and Grosse, arXiv
1503.05671, with labels drawn from the model.
"""

from collections.abc import Callable, Sequence

import mlx.core as mx
import numpy as np

from runtime.loaded import LoadedModel
from runtime.nn import ops
from runtime.quality.reading import log_odds, logits
from runtime.quality.watch import Call, Watch
from runtime.records import dataclass

_SEED = 7919


@dataclass(frozen=True, slots=True)
class Moments:
    """What one use of a matrix W [..., out, in] says of its errors d: they cost ½ share Σ rows_o columns_i
    d_oi² nats per token, the mean over experts in a stack.
    """

    rows: np.ndarray
    """float32 [out]."""
    columns: np.ndarray
    """float32 [in]."""
    share: float
    """Times asked per token of text."""

    def turned(self) -> "Moments":
        """Of the transpose."""
        return Moments(self.columns, self.rows, self.share)

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.rows).all() and np.isfinite(self.columns).all())


def even(shape: Sequence[int]) -> Moments:
    """For a matrix of which nothing is known: all of its errors cost the same."""
    return Moments(np.ones(shape[-2], np.float32), np.ones(shape[-1], np.float32), 1.0)


def moments(
    model: LoadedModel, texts: Sequence[Sequence[int]], advance: Callable[[int], None] = lambda _: None
) -> dict[str, tuple[Moments, ...]]:
    """By the names of modules; those not in it were not seen, or had gradients that are no numbers. advance:
    told the tokens done.

    Raises ValueError or RuntimeError, as MLX does, where an operation has no gradient.
    """
    watch, sums = Watch(model.network), dict[tuple[int, str], _Sum]()
    with ops.using(watch.column()):
        for number, text in enumerate(texts):
            labels = _labels(model, watch, text, number)
            calls = watch.calls
            for place, (call, square) in enumerate(
                zip(calls, _gradients(model, watch, text, labels), strict=True)
            ):
                sums.setdefault((place, call.path), _Sum(call)).add(call, square)
            advance(len(text))
    tokens = sum(map(len, texts))
    found: dict[str, tuple[Moments, ...]] = {}
    for (_, path), one in sums.items():
        found[path] = (*found.get(path, ()), one.moments(tokens))
    return {path: uses for path, uses in found.items() if all(one.finite for one in uses)}


def _labels(model: LoadedModel, watch: Watch, text: Sequence[int], number: int) -> mx.array:
    """A token drawn from what is predicted after each of the text's; the watch has noted the calls."""
    watch.start()
    scores = logits(model, text)
    labels = mx.random.categorical(scores, key=mx.random.key(_SEED + number))
    mx.eval(labels, *(call.seen for call in watch.calls))
    return labels


def _gradients(model: LoadedModel, watch: Watch, text: Sequence[int], labels: mx.array) -> list[mx.array]:
    """Per call the sum over tokens of the squared gradient of each output, float32 [out]."""
    calls = watch.calls

    def surprise(*probes: mx.array) -> mx.array:
        watch.start(probes)
        odds = log_odds(logits(model, text))
        return -mx.take_along_axis(odds, labels[:, None], axis=-1).sum()

    probes = [mx.broadcast_to(mx.array(0.0), call.shape) for call in calls]
    _, found = mx.vjp(surprise, probes, [mx.array(1.0)])
    squares = [_by_output(call, gradient) for call, gradient in zip(calls, found, strict=True)]
    mx.eval(*squares)
    return squares


def _by_output(call: Call, gradient: mx.array) -> mx.array:
    square = gradient.astype(mx.float32).square()
    return square.sum(axis=tuple(range(square.ndim - 1)))


class _Sum:
    """What one call site has seen in all texts."""

    def __init__(self, call: Call) -> None:
        self._table = call.table
        self._seen = np.zeros(call.table or call.seen.shape[-1], np.float64)
        self._wanted = np.zeros(call.shape[-1], np.float64)
        self._count = 0

    def add(self, call: Call, square: mx.array) -> None:
        seen = np.array(call.seen)
        if self._table:
            self._seen += np.bincount(seen.reshape(-1), minlength=len(self._seen))
        else:
            self._seen += seen.astype(np.float64) * call.count
        self._wanted += np.array(square)
        self._count += call.count

    def moments(self, tokens: int) -> Moments:
        seen, wanted = (np.asarray(one / self._count, np.float32) for one in (self._seen, self._wanted))
        rows, columns = (seen * len(seen), wanted / len(seen)) if self._table else (wanted, seen)
        return Moments(rows, columns, self._count / tokens)
