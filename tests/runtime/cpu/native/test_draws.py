"""Tokens drawn in one node: what filters keep, the noise of the key, each row as if it were alone."""

import math

import mlx.core as mx
import numpy as np
import pytest

from runtime.cpu import native
from runtime.cpu.native.draws import LEAST_MASS, MOST_TOP_K
from runtime.nn.operations import ops
from runtime.parts.draws import DrawParams
from runtime.sampling import noise
from runtime.sampling.params import SamplingParams
from runtime.sampling.sampler import Sampler
from tests.runtime.cpu.native.rows import bits, computing, normal, same_bits_in_any_company

kernels = native.kernels
if kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

SIZES = (1, 5, 64, 100, 1024, 33_000)
WISHES = {
    "all": {"temperature": 0.8},
    "hot": {"temperature": 40.0},
    "cold": {"temperature": 0.01},
    "mass": {"temperature": 0.7, "top_p": 0.9},
    "little mass": {"top_p": 0.05},
    "hardly any mass": {"top_p": 5e-324},
    "hardly any share": {"min_p": 5e-324},
    "nearly all mass": {"top_p": 0.9999, "temperature": 3.0},
    "share": {"min_p": 0.1},
    "only the best": {"min_p": 1.0},
    "mass and share": {"top_p": 0.8, "min_p": 0.02, "temperature": 2.0},
    "best of few": {"top_k": 3},
    "best of many": {"top_k": MOST_TOP_K, "temperature": 5.0},
    "typical": {"typical_p": 0.4, "temperature": 1.5},
    "hardly typical": {"typical_p": 5e-324},
    "nearly all typical": {"typical_p": 0.9999, "temperature": 3.0},
    "typical of the best": {"typical_p": 0.5, "top_k": 30, "temperature": 2.0},
    "typical, mass and share": {"typical_p": 0.7, "top_p": 0.6, "min_p": 0.2, "temperature": 1.2},
    "every filter": {"top_k": 50, "typical_p": 0.8, "top_p": 0.7, "min_p": 0.3, "temperature": 2.0},
    "all filters": {"top_k": 40, "top_p": 0.9, "min_p": 0.05, "temperature": 1.5},
}


def kept(x, params):
    """Which ids filters leave of one row, and their values; in float64, by sorting."""
    order = np.argsort(-x, kind="stable")
    if 0 < params.top_k < len(x):
        order = order[: params.top_k]
    values = x[order].astype(np.float64) / np.float64(np.float32(params.temperature))
    if params.typical_p < 1:
        order, values = typical(order, values, max(params.typical_p, LEAST_MASS))
    weight = np.exp(values - values[0])
    before = np.cumsum(weight) - weight
    stays = before < params.top_p * weight.sum() * (1 + 1e-5)  # float32 adds, too
    stays &= values >= values[0] + (math.log(params.min_p) if params.min_p else -math.inf) - 1e-5
    return order[stays], values[stays]


def typical(order, values, mass):
    weight = np.exp(values - values[0])
    gap = values[0] - values
    distance = abs(gap - (weight * gap).sum() / weight.sum())
    closest = np.argsort(distance, kind="stable")
    covered = np.cumsum(weight[closest])
    last = np.searchsorted(covered, mass * weight.sum() * (1 - 1e-5))
    stays = distance <= distance[closest[min(last, len(closest) - 1)]] + 1e-5
    return order[stays], values[stays]


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("size", SIZES)
def test_it_is_the_noisiest_of_those_that_filters_keep(wish, size):
    columns, logits = 3, normal(4, 3, size, seed=size, spread=3.0)
    rows = [SamplingParams(seed=(7 << 60) + 13 * r, **WISHES[wish]) for r in range(4)]
    positions = [0, 5, 1000, (1 << 31) + 3]
    with ops.using("cpu"):
        drawn = np.array(Sampler(rows).sample(mx.array(logits), positions))
    for r, params in enumerate(rows):
        key = noise.keys([params.seed], [positions[r]], columns)
        own = np.array(noise.dense_gumbel(key, size))[0].astype(np.float64)
        for t in range(columns):
            ids, values = kept(logits[r, t], params)
            noisy = values + own[t][ids]
            place = np.flatnonzero(ids == drawn[r, t])
            assert len(place) == 1, "a filter keeps it"
            assert noisy[place[0]] >= noisy.max() - 2e-5 * max(1.0, abs(noisy).max())


@pytest.mark.parametrize("wish", WISHES)
def test_step_by_step_it_is_the_same_token(wish):
    logits = mx.array(normal(8, 4, 3000, seed=3, spread=2.0))
    rows = [SamplingParams(seed=r, **WISHES[wish]) for r in range(8)]
    with ops.using("cpu"):
        drawn = Sampler(rows).sample(logits, range(8))
    with ops.using("blas"):
        expected = Sampler(rows).sample(logits, range(8))
    assert (np.array(drawn) == np.array(expected)).all()


@pytest.mark.parametrize("wish", WISHES)
def test_each_row_as_if_alone_in_every_column(wish):
    params = SamplingParams(seed=11, **WISHES[wish])
    rows = [normal(33, width, seed=width, spread=3.0) for width in (37, 640)]

    def draw(x):
        by = DrawParams(
            (params.seed,) * len(x),
            (params.temperature,) * len(x),
            (params.top_k,) * len(x),
            (params.top_p,) * len(x),
            (params.min_p,) * len(x),
            (params.typical_p,) * len(x),
        )
        found = ops.table.draw(x[:, None], by, [3] * len(x))
        assert found is not None
        return found.squeeze(1)

    with ops.using("cpu"):
        for x in rows:
            same_bits_in_any_company(draw, x)


def test_rows_of_every_kind_are_drawn_as_each_alone():
    wishes = [{"temperature": 0.0}, *WISHES.values(), {"logit_bias": {3: 4.0, 9: -1.5}, "suppressed": (5,)}]
    rows = [SamplingParams(seed=i, repeat_penalty=1 + i % 3 / 10, **wish) for i, wish in enumerate(wishes)]
    logits = mx.array(normal(len(rows), 2, 700, seed=5, spread=3.0))
    texts, inputs = [[*range(row)] for row in range(len(rows))], mx.full((len(rows), 2), 6, mx.int32)
    with ops.using("cpu"):
        drawn = Sampler(rows).sample(logits, range(len(rows)), history=texts, inputs=inputs)
        for row, params in enumerate(rows):
            own = slice(row, row + 1)
            alone = Sampler([params]).sample(logits[own], [row], history=texts[own], inputs=inputs[own])
            assert np.array_equal(np.array(drawn[own]), np.array(alone))


def test_columns_of_a_step_are_the_steps_one_by_one():
    logits = mx.array(normal(2, 5, 900, seed=1, spread=2.0))
    sampler = Sampler([SamplingParams(seed=1, top_p=0.9), SamplingParams(seed=2, top_p=0.5)])
    with ops.using("cpu"):
        together = bits(sampler.sample(logits, [10, 20]))
        for t in range(5):
            alone = bits(sampler.sample(logits[:, t : t + 1], [10 + t, 20 + t]))
            assert np.array_equal(together[:, t : t + 1], alone)


def test_odds_are_those_of_the_weights():
    weights = np.array([0.5, 0.3, 0.15, 0.05])
    x = mx.broadcast_to(mx.array(np.log(weights), dtype=mx.float32), (1, 20_000, 4))
    with ops.using("cpu"):
        drawn = np.array(Sampler([SamplingParams(seed=4)]).sample(x, [0])).ravel()
        cut = np.array(Sampler([SamplingParams(seed=4, top_p=0.75)]).sample(x, [0])).ravel()
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    assert np.abs(shares - weights).max() < 0.015
    assert cut.max() == 1
    assert abs((cut == 0).mean() - 0.5 / 0.8) < 0.015


@pytest.mark.parametrize("size", [1, 16, 65, 200])
def test_what_is_no_number_or_forbidden(size):
    """NaN and the infinite end in some id; -inf is never drawn."""
    wishes = [
        {"top_p": 0.9},
        {"top_k": 5},
        {"min_p": 0.3},
        {"typical_p": 0.5},
        {"typical_p": 0.5, "top_k": 5},
        {},
    ]
    x = normal(1, 1, size, seed=2)
    x[..., : size // 2] = -np.inf
    broken = [np.full_like(x, value) for value in (np.nan, np.inf, -np.inf)]
    some = x.copy()
    some[..., size // 2 :: 3] = np.nan
    for column in kernels.columns():
        with computing(column, 2), ops.using("cpu"):
            for wish in wishes:
                sampler = Sampler([SamplingParams(seed=9, **wish)])
                for position in range(20):
                    token = sampler.sample(mx.array(x), [position]).item()
                    assert size // 2 <= token < size
                    for one in [*broken, some]:
                        assert 0 <= sampler.sample(mx.array(one), [position]).item() < size


def test_what_is_no_number_hides_no_others():
    """Not even those that are looked at in the same lane."""
    x = normal(1, 1, 640, seed=7)
    x[..., 64:128] = -9.0
    x[..., 64], x[..., 80] = np.nan, 50.0
    for column in kernels.columns():
        with computing(column, 1), ops.using("cpu"):
            for k in (1, 3, 40):
                by = DrawParams((5,), (1.0,), (k,), (1.0,), (0.0,), (1.0,))
                assert ops.table.draw(mx.array(x), by, [0]).item() == 80


def test_equals_share_and_none_is_preferred():
    x = mx.zeros((1, 6000, 7))
    for wish in ({}, {"top_p": 0.3}, {"min_p": 1.0}):  # a mass keeps the equals of the last
        with ops.using("cpu"):
            drawn = np.array(Sampler([SamplingParams(seed=3, **wish)]).sample(x, [0])).ravel()
        assert np.abs(np.bincount(drawn, minlength=7) / 6000 - 1 / 7).max() < 0.02


def test_wrong_arguments_are_refused():
    x = mx.zeros((2, 1, 10))
    right = kernels.Draws([1, 2], [1.0, 1.0], [0, 0], [1.0, 1.0], [-math.inf] * 2, [1.0, 1.0])
    assert kernels.draw(x, right, [0, 0]).shape == (2, 1)
    wrong = [
        (x[:1], [0], "for each row"),
        (x, [0], "for each row"),
        (x[:, 0], [0, 0], "rows, columns, ids"),
        (x.astype(mx.bfloat16), [0, 0], "float32"),
    ]
    for logits, positions, says in wrong:
        with pytest.raises(ValueError, match=says):
            kernels.draw(logits, right, positions)
    for temperatures, top_k, says in [
        ([1.0], [0, 0], "one number"),
        ([0.0, 1.0], [0, 0], "above 0"),
        ([1.0, 1.0], [0, MOST_TOP_K + 1], "1024"),
    ]:
        with pytest.raises(ValueError, match=says):
            kernels.Draws([1, 2], temperatures, top_k, [1.0, 1.0], [0.0, 0.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="typical_p"):
        kernels.Draws([1], [1.0], [0], [1.0], [0.0], [0.0])


def test_more_than_it_takes_goes_step_by_step():
    logits = mx.array(normal(1, 2, 4000, seed=8))
    params = SamplingParams(seed=1, top_k=MOST_TOP_K + 1, temperature=9.0)
    with ops.using("cpu"):
        drawn = np.array(Sampler([params]).sample(logits, [0]))
    with ops.using("blas"):
        assert np.array_equal(drawn, np.array(Sampler([params]).sample(logits, [0])))
