"""The noise is Gumbel, independent where it must be, and a function of (seed, position, id) alone."""

import math

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runtime.sampling import noise

SIZE = 40_000
seeds = st.integers(0, (1 << 64) - 1)
positions = st.integers(0, 1 << 20)


def dense(seed: int, position: int, size: int = SIZE, columns: int = 1) -> np.ndarray:
    return np.array(noise.dense_gumbel(noise.keys([seed], [position], columns), size))[0]


def uniform(seed: int, position: int, size: int = SIZE) -> np.ndarray:
    """Undo Gumbel's distribution function."""
    return np.exp(-np.exp(-dense(seed, position, size)[0].astype(np.float64)))


@given(seed=seeds, position=positions, ids=st.lists(st.integers(0, 299), min_size=1, max_size=9))
def test_an_id_has_the_same_noise_in_any_company(seed: int, position: int, ids: list[int]) -> None:
    few = np.array(noise.gumbel(noise.keys([seed], [position], 1), mx.array([[ids]])))[0, 0]
    assert few.tolist() == dense(seed, position, 300)[0][ids].tolist()


@given(seed=seeds, position=positions)
def test_a_position_has_the_same_noise_in_any_column_and_row(seed: int, position: int) -> None:
    block = np.array(noise.dense_gumbel(noise.keys([1, seed], [0, position], 3), 50))[1]
    alone = [dense(seed, position + t, 50)[0].tolist() for t in range(3)]
    assert block.tolist() == alone


def written_out(seed: int, position: int, token: int) -> float:
    """The uniform number, by the published functions in plain integers, in double precision."""

    def splitmix64(state: int) -> int:
        z = (state + 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return z ^ z >> 31

    def lowbias32(x: int) -> int:
        x = (x ^ x >> 16) * 0x7FEB352D % 2**32
        x = (x ^ x >> 15) * 0x846CA68B % 2**32
        return x ^ x >> 16

    key = splitmix64(splitmix64(seed) ^ position)
    word = lowbias32((lowbias32(token) ^ key >> 32) * (key % 2**32 | 1) % 2**32)
    return (word * (1 - 2.0**-22) + 0.5) * 2.0**-32


@given(seed=seeds, position=positions, token=st.integers(0, 299_999))
@example(seed=892369, position=1048575, token=0)
def test_is_the_published_functions(seed: int, position: int, token: int) -> None:
    found = noise.gumbel(noise.keys([seed], [position], 1), mx.array([[[token]]])).item()
    v = written_out(seed, position, token)
    exponential = -math.log1p(-v)
    wanted = -math.log(exponential)
    coarse = 2.0**-23 / (1 - v) / exponential  # v is float32, rounded thrice: near 1 it is no finer
    assert abs(found - wanted) < 1e-4 * max(1, abs(wanted)) + coarse


def test_keeps_its_numbers() -> None:
    """A seed that a user wrote down keeps its meaning: these may never change."""
    np.testing.assert_allclose(dense(42, 7, 1000)[0][[0, 1, 999]], [0.96985, -1.5034, -0.68946], rtol=1e-4)


def test_follows_gumbels_distribution() -> None:
    """Kolmogorov-Smirnov over 8 positions; 1.95 / sqrt(n) is the 0.1 % point."""
    values = np.sort(np.concatenate([uniform(seed, seed * 3, SIZE) for seed in range(8)]))
    grid = np.arange(1, values.size + 1) / values.size
    assert np.abs(values - grid).max() < 1.95 / np.sqrt(values.size)


def test_reaches_far_into_the_upper_tail() -> None:
    """The largest of n values lies near log n: noise of 16 bits, say, would stop at 11."""
    largest = max(dense(3, position, 150_000).max() for position in range(40))
    assert 13 < largest < 21


@pytest.mark.parametrize(
    ("first", "second"),
    [((1, 1), (1, 2)), ((1, 1), (2, 1)), ((0, 0), (0, 1)), ((5, 6), (6, 5)), ((1, 1), ((1 << 63) + 1, 1))],
)
def test_other_positions_and_seeds_are_independent(first: tuple[int, int], second: tuple[int, int]) -> None:
    """Chi-square of an 8 x 8 table: 63 degrees of freedom, 0.1 % point 103."""
    table, _, _ = np.histogram2d(uniform(*first), uniform(*second), bins=8, range=[[0, 1], [0, 1]])
    expected = SIZE / 64
    assert ((table - expected) ** 2 / expected).sum() < 103


@pytest.mark.parametrize("lag", [1, 2, 64, 4096])
def test_neighbouring_ids_are_independent(lag: int) -> None:
    values = uniform(9, 9)
    table, _, _ = np.histogram2d(values[:-lag], values[lag:], bins=8, range=[[0, 1], [0, 1]])
    expected = table.sum() / 64
    assert ((table - expected) ** 2 / expected).sum() < 103


def test_one_id_over_positions_is_uniform() -> None:
    """The draws of one conversation: chi-square of 64 cells over 20 000 positions, 0.1 % point 104."""
    key = noise.keys([11], [0], 20_000)
    values = np.exp(-np.exp(-np.array(noise.gumbel(key, mx.array([[[5]]])))[0, :, 0].astype(np.float64)))
    counts, _ = np.histogram(values, bins=64, range=(0, 1))
    expected = values.size / 64
    assert ((counts - expected) ** 2 / expected).sum() < 104


def test_is_finite_everywhere() -> None:
    """Also where the uniform number behind it is smallest and largest."""
    assert np.isfinite(dense(0, 0, 3_000_000)).all()
