"""Gated norms against numpy, with several groups and either order."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from runtime.nn.gated_norm import GatedRMSNorm, Order

EPS = 1e-5


def _rms(x: np.ndarray, groups: int) -> np.ndarray:
    parts = x.reshape(*x.shape[:-1], groups, -1)
    return (parts / np.sqrt((parts**2).mean(axis=-1, keepdims=True) + EPS)).reshape(x.shape)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("order", ["gate first", "norm first"])
def test_each_group_is_normed_apart(groups: int, order: Order) -> None:
    mx.random.seed(1)
    x, gate = mx.random.normal((2, 3, 8)) * mx.arange(1, 9), mx.random.normal((2, 3, 8))
    norm = GatedRMSNorm(8, EPS, groups=groups, order=order)
    norm.weight = mx.arange(1.0, 9.0)
    opened, numbers = np.array(nn.silu(gate)), np.array(x)
    wanted = _rms(numbers * opened, groups) if order == "gate first" else _rms(numbers, groups) * opened
    assert np.allclose(np.array(norm(x, gate)), wanted * np.arange(1.0, 9.0), atol=1e-4)


def test_the_gate_may_open_by_another_function() -> None:
    x, gate = mx.ones((1, 4)), mx.full((1, 4), 2.0)
    got = GatedRMSNorm(4, 0.0, order="norm first", activation="sigmoid")(x, gate)
    assert np.allclose(np.array(got), 1 / (1 + np.exp(-2.0)), atol=1e-6)


def test_the_answer_has_the_dtype_of_the_gate() -> None:
    norm = GatedRMSNorm(4, EPS)
    assert norm(mx.ones((1, 4)), mx.ones((1, 4), mx.bfloat16)).dtype == mx.bfloat16
