"""Penalties against their definition, column by column."""

import mlx.core as mx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.sampling.params import SamplingParams
from runtime.sampling.penalties import Penalties

V = 12
ids = st.integers(0, V - 1)
params = st.builds(
    SamplingParams,
    repeat_penalty=st.sampled_from([1.0, 1.3, 0.8]),
    presence_penalty=st.sampled_from([0.0, 0.5]),
    frequency_penalty=st.sampled_from([0.0, 0.25, -0.25]),
    repeat_last_n=st.sampled_from([-1, 0, 1, 3, 64]),
)


def defined(logits: np.ndarray, p: SamplingParams, past: list[int]) -> np.ndarray:
    """One column, one id at a time."""
    recent = past if p.repeat_last_n == -1 else past[max(0, len(past) - p.repeat_last_n) :]
    found = logits.astype(np.float64).copy()
    for token in set(recent):
        value = found[token]
        value = value * p.repeat_penalty if value < 0 else value / p.repeat_penalty
        found[token] = value - p.presence_penalty - p.frequency_penalty * recent.count(token)
    return found


@settings(max_examples=60)
@given(
    its=st.lists(st.tuples(params, st.lists(ids, max_size=9)), min_size=1, max_size=3),
    columns=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_each_column_sees_history_and_the_inputs_before_it(
    its: list[tuple[SamplingParams, list[int]]], columns: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((len(its), columns, V)).astype(np.float32)
    inputs = rng.integers(0, V, (len(its), columns))
    penalties = Penalties.of([p for p, _ in its])
    found = np.array(penalties.apply(mx.array(logits), [past for _, past in its], mx.array(inputs)))
    for row, (p, past) in enumerate(its):
        for t in range(columns):
            seen = past + inputs[row, : t + 1].tolist()
            np.testing.assert_allclose(found[row, t], defined(logits[row, t], p, seen), rtol=1e-5, atol=1e-6)


def test_a_banned_id_stays_banned() -> None:
    logits = mx.array([[[0.0, -mx.inf, 1.0]]])
    penalties = Penalties.of([SamplingParams(repeat_penalty=1.5, frequency_penalty=1.0)])
    assert penalties.apply(logits, [[1, 1]], mx.array([[2]]))[0, 0, 1].item() == -mx.inf
