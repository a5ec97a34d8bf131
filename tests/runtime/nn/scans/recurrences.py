"""What every recurrent kernel must keep: its fast form is its definition, however tokens are cut and padded.

A Kernel draws inputs from a seed; `fast` and `plain` take them with a state and return outputs [B, L,
...] and the state.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

ROWS = 2
Outcome = tuple[mx.array, mx.array]


@dataclass(frozen=True)
class Kernel:
    """inputs(width) -> arrays [B, L, ...]; state() -> [B, ...]. tolerance: of the largest value, or of
    one if all are small.
    """

    fast: Callable[..., Outcome]
    plain: Callable[..., Outcome]
    inputs: Callable[[int], tuple[mx.array, ...]]
    state: Callable[[], mx.array]
    tolerance: float = 2e-5

    def check_plain(self, width: int) -> None:
        inputs, state = self.inputs(width), self.state()
        self._same(self.fast(*inputs, state, counts=None), self.plain(*inputs, state))

    def check_cut(self, width: int, at: int) -> None:
        inputs, state = self.inputs(width), self.state()
        first, between = self.fast(*(x[:, :at] for x in inputs), state, counts=None)
        second, last = self.fast(*(x[:, at:] for x in inputs), between, counts=None)
        whole = self.fast(*inputs, state, counts=None)
        self._same((mx.concatenate([first, second], axis=1), last), whole)

    def check_ragged(self, width: int, counts: tuple[int, ...]) -> None:
        inputs, state = self.inputs(width), self.state()
        outputs, last = self.fast(*inputs, state, counts=mx.array(counts, dtype=mx.int32))
        for row, count in enumerate(counts):
            if count == 0:
                assert np.array_equal(np.array(last[row]), np.array(state[row]))
                continue
            alone = self.plain(*(x[row : row + 1, :count] for x in inputs), state[row : row + 1])
            self._same((outputs[row : row + 1, :count], last[row : row + 1]), alone)

    def _same(self, got: Outcome, wanted: Outcome) -> None:
        for left, right in zip(got, wanted, strict=True):
            assert left.shape == right.shape
            assert float(mx.abs(left - right).max()) < self.tolerance * max(1.0, float(mx.abs(right).max()))


def normal(*shape: int) -> mx.array:
    return mx.random.normal(shape)


def uniform(low: float, high: float, *shape: int) -> mx.array:
    return mx.random.uniform(low, high, shape)


def unit(x: mx.array) -> Any:
    return x / mx.linalg.norm(x, axis=-1, keepdims=True)
