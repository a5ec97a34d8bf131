"""What every kernel that works row by row must hold, asked of one of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import mlx.core as mx
import numpy as np

from runtime.cpu.native import kernels

COUNTS = (1, 2, 3, 7, 8, 16, 33)
WIDTHS = (1, 5, 16, 37, 64, 300, 5000)


@contextmanager
def computing(column: str, threads: int) -> Iterator[None]:
    before, were = kernels.column(), kernels.threads()
    assert kernels.use_column(column)
    kernels.set_threads(threads)
    try:
        yield
    finally:
        kernels.use_column(before)
        kernels.set_threads(were)


def normal(*shape: int, seed: int = 0, spread: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * spread).astype(np.float32)


def bits(array: mx.array) -> np.ndarray:
    return np.array(array).view(np.uint32)


def same_bits_in_any_company(run: Callable[..., mx.array], *inputs: np.ndarray) -> None:
    """run(*inputs) with rows [n, ...] gives each row what it gives that row alone: for every number of rows,
    column and number of threads, and where rows are seen through strides.
    """
    rows = len(inputs[0])
    with computing("plain", 1):
        alone = np.concatenate([bits(run(*(mx.array(x[i : i + 1]) for x in inputs))) for i in range(rows)])
    for column in kernels.columns():
        for threads in (1, 2, 3):
            with computing(column, threads):
                for count in (n for n in COUNTS if n <= rows):
                    together = bits(run(*(mx.array(x[:count]) for x in inputs)))
                    assert np.array_equal(together, alone[:count]), (column, threads, count)
                strided = [_strided(x) for x in inputs]
                assert np.array_equal(bits(run(*strided)), alone), (column, threads, "strided")


def _strided(x: np.ndarray) -> mx.array:
    """The same numbers as every second row of a wider array."""
    wide = np.full((len(x), 2, *x.shape[1:-1], x.shape[-1] + 3), 7.0, np.float32)
    wide[:, 0, ..., :-3] = x
    return mx.array(wide)[:, 0, ..., :-3]
