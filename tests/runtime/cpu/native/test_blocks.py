"""Products of GGUF's blocks as they lie: near those of the numbers that they stand for, and the same bits
however they are asked for.
"""

import mlx.core as mx
import numpy as np
import pytest

from runtime.blocks.decode import decoded
from runtime.blocks.finite import HALVES
from runtime.blocks.types import BLOCK_TYPES
from runtime.cpu import native
from runtime.cpu.native.products import BLOCKS
from tests.runtime.cpu.native.rows import bits, computing, normal, same_bits_in_any_company

kernels = native.kernels
if kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

GROUP = {"q2_k": 16, "q3_k": 16, "q6_k": 16}  # numbers that share a small scale, where it is not 32
TYPES = pytest.mark.parametrize("name", BLOCKS)


def blocks(name: str, rows: int, count: int, seed: int = 0) -> np.ndarray:
    """Any codes and small scales; scales of either sign and of all sizes down to the least."""
    rng, kind = np.random.default_rng(seed), BLOCK_TYPES[name]
    found = rng.integers(0, 256, (rows, count, kind.nbytes), dtype=np.uint8)
    for at in HALVES[name]:
        sizes = (rng.standard_normal((rows, count)) * 0.01).astype(np.float16)
        sizes[0, 0], sizes[-1, -1] = 0, np.float16(6e-8)
        found[:, :, at : at + 2] = sizes[..., None].view(np.uint8)
    return found.reshape(rows, -1)


def numbers(name: str, rows: np.ndarray) -> np.ndarray:
    with mx.stream(mx.cpu):
        return np.array(decoded(mx.array(rows), BLOCK_TYPES[name]), np.float64)


def matrix(name: str, rows: np.ndarray, bias: mx.array | None = None):
    return kernels.Matrix(mx.array(rows), None, None, bias, 0, 0, name)


def bound(x: np.ndarray, exact: np.ndarray, group: int) -> np.ndarray:
    """Half a step of each number of x, which is rounded to 16 bits, and a float's rounding for each group.
    What counts is how large the parts of a group are before codes and minima cancel: at most twice 255 steps.
    """
    steps = np.repeat(np.abs(x).reshape(len(x), -1, group).max(-1) / 32639, group, axis=-1).astype(np.float64)
    return 0.5 * steps @ np.abs(exact).T + 2e-5 * np.abs(x).astype(np.float64) @ np.abs(exact).T + 1e-6


@TYPES
@pytest.mark.parametrize("outputs", [1, 16, 45])
@pytest.mark.parametrize("count", [1, 3, 5])
def test_products_are_those_of_the_numbers(name: str, outputs: int, count: int) -> None:
    rows = blocks(name, outputs, count * 256 // BLOCK_TYPES[name].weights)
    exact = numbers(name, rows)
    x, w = normal(19, exact.shape[1]), matrix(name, rows)
    with mx.stream(mx.cpu):
        y = np.array(kernels.product(mx.array(x), w), np.float64)
        assert (np.abs(y - x @ exact.T) <= bound(x, exact, GROUP.get(name, 32))).all()
        same_bits_in_any_company(lambda rows: kernels.product(rows, w), x)


@TYPES
def test_every_number_of_rows(name: str) -> None:
    rows = blocks(name, 33, 2 * 256 // BLOCK_TYPES[name].weights, seed=2)
    x, w = mx.array(normal(18, 512)), matrix(name, rows)
    with mx.stream(mx.cpu):
        with computing("plain", 1):
            alone = np.concatenate([bits(kernels.product(row[None], w)) for row in x])
        for column in kernels.columns():
            with computing(column, 1):
                for count in range(1, 19):
                    y = bits(kernels.product(x[-count:], w))
                    assert np.array_equal(y, alone[-count:]), (column, count)


@TYPES
def test_rows_and_products_in_float32_see_the_very_numbers(name: str) -> None:
    rows = blocks(name, 20, 2 * 256 // BLOCK_TYPES[name].weights, seed=1)
    exact, w, ids = numbers(name, rows), matrix(name, rows), mx.array([3, 0, 19, 3, -1])
    x = normal(5, exact.shape[1])
    with mx.stream(mx.cpu):
        for column in kernels.columns():
            with computing(column, 2):
                assert np.array_equal(
                    np.array(kernels.table_rows(ids, w)), exact[np.array(ids)].astype(np.float32)
                )
        was = kernels.activations()
        kernels.use_activations("f32")
        try:
            y = np.array(kernels.product(mx.array(x), w), np.float64)
            same_bits_in_any_company(lambda rows: kernels.product(rows, w), x)
        finally:
            kernels.use_activations(was)
    assert np.allclose(y, x @ exact.T, rtol=0, atol=1e-5 * np.abs(x @ exact.T).max())


def test_rows_of_few_blocks_of_32() -> None:
    rows = blocks("iq4_nl", 20, 3)
    exact, x = numbers("iq4_nl", rows), normal(3, 96)
    with mx.stream(mx.cpu):
        y = np.array(kernels.product(mx.array(x), matrix("iq4_nl", rows)))
    assert (np.abs(y - x @ exact.T) <= bound(x, exact, 32)).all()


@TYPES
def test_experts_are_matrices_of_a_stack(name: str) -> None:
    rows = np.stack([blocks(name, 24, 256 // BLOCK_TYPES[name].weights, seed) for seed in range(3)])
    x, chosen = normal(4, 256), mx.array([[2, 0], [1, 1], [0, 2], [2, 1]])
    with mx.stream(mx.cpu):
        y = kernels.gather(mx.array(x)[:, None, None, :], chosen, matrix(name, rows))
        for r in range(4):
            for place, expert in enumerate(chosen[r].tolist()):
                alone = kernels.product(mx.array(x[r : r + 1]), matrix(name, rows[expert]))
                assert np.array_equal(bits(y[r, place]), bits(alone))


def test_rows_that_are_no_whole_blocks_and_unknown_types_are_refused() -> None:
    rows = blocks("q4_k", 2, 1)
    with pytest.raises(ValueError, match="whole blocks"):
        matrix("q4_k", rows[:, :-1])
    with pytest.raises(ValueError, match="whole blocks"):
        kernels.Matrix(mx.array(rows).astype(mx.uint32), None, None, None, 0, 0, "q4_k")
    with pytest.raises(ValueError, match="no products with blocks"):
        matrix("iq1_m", rows)
