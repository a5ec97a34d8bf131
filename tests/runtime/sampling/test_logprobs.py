"""Log-probabilities are those of the raw logits."""

import mlx.core as mx
import numpy as np
import pytest

from runtime.sampling.logprobs import logprobs

LOGITS = np.random.default_rng(0).standard_normal((2, 3, 300)).astype(np.float32)
EXPECTED = LOGITS - np.log(np.exp(LOGITS).sum(-1, keepdims=True))


def test_of_the_chosen_tokens() -> None:
    tokens = np.array([[1, 5, 299], [0, 7, 8]])
    found = logprobs(mx.array(LOGITS), mx.array(tokens), 0)
    np.testing.assert_allclose(
        np.array(found.chosen), np.take_along_axis(EXPECTED, tokens[..., None], -1)[..., 0], rtol=1e-5
    )
    assert found.ids.shape == (2, 3, 0)


@pytest.mark.parametrize("alternatives", [1, 5, 300, 1000])
def test_alternatives_come_best_first(alternatives: int) -> None:
    found = logprobs(mx.array(LOGITS), mx.zeros((2, 3), dtype=mx.int32), alternatives)
    order = np.argsort(-EXPECTED, axis=-1)[..., :alternatives]
    assert np.array(found.ids).tolist() == order.tolist()
    np.testing.assert_allclose(np.array(found.values), np.take_along_axis(EXPECTED, order, -1), rtol=1e-5)


def test_half_precision_logits_are_read_as_they_are() -> None:
    half = mx.array(LOGITS).astype(mx.bfloat16)
    found = logprobs(half, mx.array([[1, 2, 3], [4, 5, 6]]), 2)
    assert found.chosen.dtype == mx.float32
