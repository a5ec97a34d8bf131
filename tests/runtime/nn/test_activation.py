"""Activations equal their definitions in float64, for short and for long arrays."""

import math
from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest

from runtime.cpu.activation import LONG, exp
from runtime.nn.activation import gelu, gelu_tanh, relu, relu2, silu, softmax, softplus

Array = np.ndarray


def exact_silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def exact_gelu(x: Array) -> Array:
    return x / 2 * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))


def exact_gelu_tanh(x: Array) -> Array:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def exact_softmax(x: Array) -> Array:
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("size", [100, 2 * LONG], ids=["short", "long"])
@pytest.mark.parametrize(
    ("function", "exact"),
    [
        (silu, exact_silu),
        (gelu, exact_gelu),
        (gelu_tanh, exact_gelu_tanh),
        (softmax, exact_softmax),
        (softplus, lambda x: np.logaddexp(x, 0)),
        (relu, lambda x: np.maximum(x, 0)),
        (relu2, lambda x: np.maximum(x, 0) ** 2),
    ],
    ids=["silu", "gelu", "gelu_tanh", "softmax", "softplus", "relu", "relu2"],
)
def test_equals_its_definition(
    function: Callable[[mx.array], mx.array], exact: Callable[[Array], Array], size: int
) -> None:
    x = mx.random.normal((size // 50, 50), key=mx.random.key(0)) * 6
    assert np.allclose(function(x), exact(np.array(x, dtype=np.float64)), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("function", [silu, gelu, gelu_tanh])
@pytest.mark.parametrize("size", [8, 2 * LONG], ids=["short", "long"])
def test_far_out_there_is_a_limit(function: Callable[[mx.array], mx.array], size: int) -> None:
    assert np.allclose(function(mx.full((size,), -1e4)), 0, atol=1e-6)
    assert np.allclose(function(mx.full((size,), 1e4)), 1e4)


def test_the_power_function_is_as_exact_as_the_exponential() -> None:
    x = -mx.arange(2000, dtype=mx.float32) / 100
    wanted = np.exp(np.array(x, dtype=np.float64))
    assert np.abs(np.array(exp(x)) / wanted - 1).max() < 1e-6


def test_masked_scores_weigh_nothing() -> None:
    scores = mx.concatenate([mx.zeros((4, LONG)), mx.full((4, 10), -1e30)], axis=-1)
    assert float(mx.abs(softmax(scores)[:, LONG:]).max()) == 0
