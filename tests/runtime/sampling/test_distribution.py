"""Sparse and dense forms of one distribution say and draw the same."""

import mlx.core as mx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runtime.sampling import noise
from runtime.sampling.distribution import Distribution

V = 40


def both(seed: int) -> tuple[Distribution, Distribution]:
    rng = np.random.default_rng(seed)
    ids = rng.permutation(V)[:7]
    values = rng.standard_normal(7).astype(np.float32)
    dense = np.full(V, -np.inf, np.float32)
    dense[ids] = values
    few = Distribution(mx.array(values)[None, None], mx.array(ids.astype(np.int32))[None, None])
    return few, Distribution(mx.array(dense)[None, None])


@given(seed=st.integers(0, 999), position=st.integers(0, 999))
def test_draw_the_same_token(seed: int, position: int) -> None:
    few, dense = both(seed)
    key = noise.keys([seed], [position], 1)
    assert few.draw(key).tolist() == dense.draw(key).tolist()


@given(seed=st.integers(0, 99))
def test_have_the_same_probabilities(seed: int) -> None:
    few, dense = both(seed)
    np.testing.assert_allclose(np.array(few.dense(V)), np.array(dense.dense(V)), rtol=1e-5)
    assert abs(np.exp(np.array(few.dense(V))).sum() - 1) < 1e-5
