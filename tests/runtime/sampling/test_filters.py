"""Each filter against its definition in plain numpy."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from runtime.sampling import filters

rows = st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 400), st.floats(0.1, 8))
masses = st.floats(0.01, 0.999)


def logits(row: tuple[int, int, float]) -> np.ndarray:
    seed, size, spread = row
    return (np.random.default_rng(seed).standard_normal(size) * spread).astype(np.float32)


def probabilities(values: np.ndarray) -> np.ndarray:
    weight = np.exp(values.astype(np.float64) - values.max())
    return weight / weight.sum()


def kept(found: mx.array) -> set[int]:
    return set(np.flatnonzero(np.isfinite(np.array(found).reshape(-1))).tolist())


def batch(values: np.ndarray) -> mx.array:
    return mx.array(values)[None, None]


def column(value: float) -> mx.array:
    return mx.array([[[value]]])


@given(row=rows, k=st.integers(1, 450))
def test_best_finds_the_k_largest(row: tuple[int, int, float], k: int) -> None:
    values = logits(row)
    ids, found = filters.best(batch(values), k)
    assert np.array(ids).dtype == np.int32
    assert sorted(np.array(ids)[0, 0].tolist()) == sorted(np.argsort(-values, kind="stable")[:k].tolist())
    assert np.array(found)[0, 0].tolist() == values[np.array(ids)[0, 0]].tolist()


@settings(max_examples=30)
@given(seed=st.integers(0, 99), k=st.integers(1, 60), size=st.integers(16_000, 17_000))
def test_best_finds_them_in_long_rows(seed: int, k: int, size: int) -> None:
    """Sizes that do not fill whole layers, and the search that looks at column maxima first."""
    values = logits((seed, size, 3.0)).reshape(1, 1, -1).repeat(2, axis=0)
    values[1] = values[1, :, ::-1]
    ids, _ = filters.best(mx.array(values), k)
    for row, found in zip(values, np.array(ids), strict=True):
        assert set(found[0].tolist()) == set(np.argsort(-row[0])[:k].tolist())


def test_best_of_a_masked_row_names_real_ids() -> None:
    values = np.full(16_001, -np.inf, np.float32)
    values[[3, 16_000]] = 1.0
    ids, found = filters.best(batch(values), 5)
    assert {3, 16_000} <= set(np.array(ids)[0, 0].tolist())
    assert np.array(ids).max() <= 16_000
    assert np.isfinite(np.array(found)).sum() == 2


@given(row=rows, mass=masses)
def test_top_p_keeps_the_fewest_that_reach_the_mass(row: tuple[int, int, float], mass: float) -> None:
    values = logits(row)
    p = probabilities(values)
    found = kept(filters.top_p(batch(values), column(mass)))
    order = np.argsort(-values, kind="stable")
    covered = np.cumsum(p[order])
    fewest = {int(np.searchsorted(covered, mass + slack)) + 1 for slack in (-1e-5, 0, 1e-5)}
    assert any(found == set(order[:count].tolist()) for count in fewest)


@pytest.mark.parametrize("size", [100, 5000])
def test_a_typical_mass_below_any_float_leaves_some(size: int) -> None:
    assert kept(filters.typical(batch(logits((1, size, 3.0))), column(5e-324)))


@given(row=rows, mass=masses)
def test_typical_keeps_the_closest_to_the_entropy(row: tuple[int, int, float], mass: float) -> None:
    values = logits(row)
    p = probabilities(values)
    surprise = -np.log(np.maximum(p, 1e-300))
    distance = np.abs(surprise - (p * surprise).sum())
    order = np.argsort(distance, kind="stable")
    covered = np.cumsum(p[order])
    found = kept(filters.typical(batch(values), column(mass)))
    limit = max(distance[list(found)])
    assert found == set(np.flatnonzero(distance <= limit + 1e-4).tolist()) & found
    assert p[list(found)].sum() >= mass - 1e-4
    assert limit <= distance[order[min(int(np.searchsorted(covered, mass + 1e-4)), len(order) - 1)]] + 1e-3


@given(row=rows, share=st.floats(0.001, 1))
def test_min_p_is_relative_to_the_best(row: tuple[int, int, float], share: float) -> None:
    values = logits(row)
    found = kept(filters.min_p(batch(values), column(share)))
    ratio = np.exp(values.astype(np.float64) - values.max())
    sure, out = set(np.flatnonzero(ratio > share * 1.0001)), set(np.flatnonzero(ratio < share * 0.9999))
    assert sure <= found
    assert not found & out
    assert int(values.argmax()) in found


@given(row=rows, deviations=st.floats(0.05, 6))
def test_top_n_sigma_counts_deviations_from_the_best(row: tuple[int, int, float], deviations: float) -> None:
    values = logits(row)
    values[1::3] = -np.inf
    inside = values[np.isfinite(values)].astype(np.float64)
    limit, slack = inside.max() - deviations * inside.std(), 1e-4 * inside.std() + 1e-6
    found = kept(filters.top_n_sigma(batch(values), column(deviations)))
    assert set(np.flatnonzero(values > limit + slack).tolist()) <= found
    assert found <= set(np.flatnonzero(values >= limit - slack).tolist())
    assert int(values.argmax()) in found


@given(row=rows, threshold=st.floats(0, 0.6), temperature=st.floats(0.1, 5))
def test_xtc_leaves_the_least_likely_top_choice_and_what_is_below(
    row: tuple[int, int, float], threshold: float, temperature: float
) -> None:
    """Of llama.cpp's definition (`llama_sample_xtc_apply`), on odds at temperature 1 of what is left."""
    values = logits(row)
    values[1::3] = -np.inf
    p = probabilities(values)
    found = kept(
        filters.xtc(batch(values / np.float32(temperature)), batch(values), column(threshold), mx.array(True))
    )
    order = [token for token in np.argsort(-values, kind="stable").tolist() if np.isfinite(values[token])]
    counts = {sum(bool(p[token] >= threshold * (1 + slack)) for token in order) for slack in (-1e-5, 0, 1e-5)}
    assert any(found == set(order[max(count - 1, 0) :]) for count in counts)


def test_xtc_does_nothing_where_the_coin_says_so() -> None:
    values = batch(logits((1, 50, 3.0)))
    assert len(kept(filters.xtc(values, values, column(0.01), mx.array(False)))) == 50


def test_xtc_keeps_equals_together_and_the_only_choice() -> None:
    level = batch(np.zeros(4, np.float32))
    assert kept(filters.xtc(level, level, column(0.1), mx.array(True))) == {0, 1, 2, 3}
    alone = batch(np.array([-np.inf, 2.0, -np.inf], np.float32))
    assert kept(filters.xtc(alone, alone, column(0.0), mx.array(True))) == {1}


@given(
    row=rows,
    ends=st.tuples(st.floats(0.01, 3), st.floats(0.01, 3)).map(sorted),
    exponent=st.floats(0, 4),
)
def test_a_temperature_follows_the_entropy(
    row: tuple[int, int, float], ends: list[float], exponent: float
) -> None:
    """Of llama.cpp's definition (`llama_sampler_temp_ext_apply`), `ends` being its two temperatures."""
    values = logits(row)
    values[1::3] = -np.inf
    p = probabilities(values)
    inside = p[p > 0]
    most = np.log(max(np.isfinite(values).sum(), 2))
    share = min(max(-(inside * np.log(inside)).sum() / most, 0), 1)
    assume(share > 1e-3)  # of less float32 knows little, and a small exponent makes much of that
    low, high = ends
    found = np.array(filters.tempered(batch(values), column(low), column(high), column(exponent)))[0, 0]
    expected = values / (low + (high - low) * share**exponent)
    np.testing.assert_allclose(found, expected, rtol=2e-3)
    assert np.isneginf(found[1::3]).all()


@given(row=rows, mass=masses)
def test_both_searches_find_the_same_limit(row: tuple[int, int, float], mass: float) -> None:
    values = batch(logits(row))
    gap = values.max(axis=-1, keepdims=True) - values
    weight = mx.exp(-gap)
    target = column(mass) * weight.sum(axis=-1, keepdims=True)
    by_sorting = filters._reach_by_sorting(gap, weight, target).item()  # pyright: ignore[reportPrivateUsage]
    by_halves = filters._reach_by_halves(gap, weight, target).item()  # pyright: ignore[reportPrivateUsage]
    inside = np.array(gap <= by_halves + 1e-5).sum() - np.array(gap < by_sorting - 1e-5).sum()
    assert (
        abs(by_sorting - by_halves) < 1e-5 or inside <= 2
    )  # a mass that falls on a step, summed in other orders


@pytest.mark.parametrize("size", [10, 5000])
def test_ids_that_are_out_stay_out(size: int) -> None:
    values = np.full(size, -np.inf, np.float32)
    values[[2, 7]] = [0.0, -1.0]
    for found in (
        filters.top_p(batch(values), column(0.99)),
        filters.typical(batch(values), column(0.99)),
        filters.min_p(batch(values), column(0.1)),
        filters.top_n_sigma(batch(values), column(3.0)),
        filters.tempered(batch(values), column(0.5), column(1.5), column(1.0)),
        filters.xtc(batch(values), batch(values), column(0.9), mx.array(True)),
    ):
        assert kept(found) == {2, 7}


@pytest.mark.parametrize("size", [100, 5000])
def test_equals_are_kept_together(size: int) -> None:
    assert len(kept(filters.top_p(batch(np.zeros(size, np.float32)), column(0.5)))) == size


@pytest.mark.parametrize("size", [100, 5000])
@pytest.mark.parametrize("mass", [0.0, 1e-9])
def test_no_mass_still_keeps_the_best(size: int, mass: float) -> None:
    values = np.linspace(-3, 0, size).astype(np.float32)
    assert size - 1 in kept(filters.top_p(batch(values), column(mass)))
    assert len(kept(filters.top_p(batch(values), column(mass)))) == 1


def test_min_p_of_nothing_keeps_all() -> None:
    assert len(kept(filters.min_p(batch(np.linspace(-90, 0, 50).astype(np.float32)), column(0.0)))) == 50
