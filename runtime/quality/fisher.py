"""How much an error of each weight would cost: one backward pass.

The predictions of a network whose weights are off by d differ from its own by about ½ dᵀ F d nats per token,
F being the Fisher information. Of F this takes the diagonal, and of that what is separate in rows and
columns: for y = W x the expected squares of x and of the gradient of the log-probability of a token drawn
from the model itself. Ranks matrices as the true divergence does (0.91), at the cost of two forward passes
and one backward.

Of a model that makes vectors, what counts is half the square of the way that a unit vector goes, ½ |J d|²,
which is what its cosine lacks of 1. A direction is drawn in the place of tokens: the expected square of what
is seen from there is the same. Errors of all tokens meet in one vector: gradients are added up first.

Memory: the weights, and the activations of one sequence. Source: K-FAC's diagonal, Martens and Grosse, arXiv
1503.05671, with labels drawn from the model.
"""

from collections.abc import Callable, Sequence

import mlx.core as mx
import numpy as np

from runtime.loaded import LoadedModel
from runtime.nn.operations import ops
from runtime.quality.reading import Embedding, outputs
from runtime.quality.watch import Call, Watch
from runtime.records import dataclass

_SEED = 7919


@dataclass(frozen=True, slots=True)
class Moments:
    """What one use of a matrix W [..., out, in] says of its errors d: they cost ½ share Σ rows_o columns_i
    d_oi² nats per token, or of a text's cosine, the mean over experts in a stack.
    """

    rows: np.ndarray
    """float32 [out]."""
    columns: np.ndarray
    """float32 [in]."""
    share: float
    """Times asked per token of text; for vectors, per text."""

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
    """By the names of modules; those not in it were not seen, or had gradients that are not numbers. advance:
    called with the tokens done.

    Raises ValueError or RuntimeError, as MLX does, where an operation has no gradient.
    """
    vectors = isinstance(model, Embedding)
    watch, sums = Watch(model.network, whole=vectors), dict[tuple[int, str], _Alone | _Joined]()
    with ops.using(watch.column()):
        for number, text in enumerate(texts):
            drawn = _drawn(model, watch, text, number)
            calls = watch.calls
            for place, (call, squares) in enumerate(
                zip(calls, _gradients(model, watch, text, drawn), strict=True)
            ):
                made = _Alone if call.inputs is None else _Joined
                sums.setdefault((place, call.path), made(call)).add(call, *squares)
            advance(len(text))
    count = len(texts) if vectors else sum(map(len, texts))
    found: dict[str, tuple[Moments, ...]] = {}
    for (_, path), one in sums.items():
        found[path] = (*found.get(path, ()), one.moments(count))
    return {path: uses for path, uses in found.items() if all(one.finite for one in uses)}


def _drawn(model: LoadedModel, watch: Watch, text: Sequence[int], number: int) -> mx.array:
    """What is drawn for a text: a token from what is predicted after each of its own, int [1, T], or a
    direction to look at its vector from [1, D]. The watch has noted the calls.
    """
    watch.start()
    found, key = outputs(model, [text]), mx.random.key(_SEED + number)
    if isinstance(model, Embedding):
        drawn = mx.random.normal(found.shape, key=key)
    else:
        drawn = mx.random.categorical(found, key=key)
    mx.eval(found, drawn, *(call.seen for call in watch.calls))
    return drawn


def _gradients(
    model: LoadedModel, watch: Watch, text: Sequence[int], drawn: mx.array
) -> list[tuple[mx.array, ...]]:
    """Per call what `_Alone` or `_Joined` adds up of the gradients of its outputs."""
    calls = watch.calls

    def looked_at(*probes: mx.array) -> mx.array:
        watch.start(probes)
        found = outputs(model, [text])
        if isinstance(model, Embedding):
            return (found * drawn).sum()
        return mx.take_along_axis(found, drawn[..., None], axis=-1).sum()

    probes = [mx.broadcast_to(mx.array(0.0), call.shape) for call in calls]
    _, found = mx.vjp(looked_at, probes, [mx.array(1.0)])
    squares = [
        (_by_output(gradient),) if call.inputs is None else _by_both(call, gradient)
        for call, gradient in zip(calls, found, strict=True)
    ]
    mx.eval(*squares)
    return squares


def _by_output(gradient: mx.array) -> mx.array:
    """The sum over tokens of its squares, float32 [out]."""
    square = gradient.astype(mx.float32).square()
    return square.sum(axis=tuple(range(square.ndim - 1)))


def _by_both(call: Call, gradient: mx.array) -> tuple[mx.array, mx.array]:
    """The squares of a matrix's own gradient G = Σ g x over the tokens of a text, added up by outputs [out],
    and by inputs [in]; of a table by tokens [N]. Without G: it would be as large as the matrix.
    """
    g, x = gradient.astype(mx.float32).reshape(-1, call.shape[-1]), call.inputs
    assert x is not None
    alike = (x[:, None] == x[None]).astype(mx.float32) if call.table else x @ x.T
    pull = g @ g.T
    by_input = (alike * pull).sum(axis=1) if call.table else ((pull @ x) * x).sum(axis=0)
    return ((alike @ g) * g).sum(axis=0), by_input


class _Alone:
    """What one call site has seen in all texts. Each token has a label of its own, so gradients of two of
    them have nothing to do with each other: squares are added up token by token.
    """

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

    def moments(self, count: int) -> Moments:
        """count: of what the model gave, in tokens or vectors."""
        seen, wanted = (np.asarray(one / self._count, np.float32) for one in (self._seen, self._wanted))
        rows, columns = (seen * len(seen), wanted / len(seen)) if self._table else (wanted, seen)
        return Moments(rows, columns, self._count / count)


class _Joined:
    """The same where a text says one thing: all of its tokens pull at that together, and their gradients are
    added up before they are squared.
    """

    def __init__(self, call: Call) -> None:
        self._table = call.table
        self._outputs = np.zeros(call.shape[-1], np.float64)
        self._inputs = np.zeros(call.table or call.seen.shape[-1], np.float64)

    def add(self, call: Call, by_output: mx.array, by_input: mx.array) -> None:
        self._outputs += np.maximum(np.array(by_output), 0)
        found = np.maximum(np.array(by_input), 0)
        if self._table:
            found = np.bincount(np.array(call.inputs), found, minlength=self._table)
        self._inputs += found

    def moments(self, count: int) -> Moments:
        rows, columns = self._outputs / count, self._inputs / max(self._inputs.sum(), 1e-30)
        rows, columns = (np.asarray(one, np.float32) for one in (rows, columns))
        if self._table:
            rows, columns = columns * rows.sum(), rows / max(rows.sum(), 1e-30)
        return Moments(rows, columns, 1.0)
