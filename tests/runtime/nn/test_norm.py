"""Norms equal their definitions."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from runtime.nn.norm import HeadLayerNorm, LayerNorm, RMSNorm, one_added, rms

X = mx.random.normal((2, 3, 5, 8), key=mx.random.key(0)) * 3 + 1


def test_rms_has_a_mean_square_of_one() -> None:
    assert np.allclose(mx.square(rms(X, 0.0)).mean(axis=-1), 1, atol=1e-5)


def test_each_head_is_normed_with_its_own_weight() -> None:
    norm = HeadLayerNorm(3, 8, 1e-5)
    norm.weight = mx.random.normal((3, 8), key=mx.random.key(1))
    centred = X - X.mean(axis=-1, keepdims=True)
    plain = centred / mx.sqrt(mx.square(centred).mean(axis=-1, keepdims=True) + 1e-5)
    assert np.allclose(norm(X), plain * norm.weight[None, :, None], atol=1e-5)


def test_one_is_added_to_norms_only() -> None:
    weights = {
        "a.input_layernorm.weight": mx.zeros(2),
        "a.up_proj.weight": mx.zeros(2),
        "norm.bias": mx.zeros(2),
    }
    sums = {name: float(array.sum()) for name, array in one_added(weights).items()}
    assert sums == {"a.input_layernorm.weight": 2.0, "a.up_proj.weight": 0.0, "norm.bias": 0.0}


@pytest.mark.parametrize("stored", [mx.bfloat16, mx.float16], ids=str)
def test_the_sum_is_not_rounded_to_what_stores_the_weight(stored: mx.Dtype) -> None:
    weight = mx.array([0.001, -0.0625, 0.33]).astype(stored)
    got = one_added({"norm.weight": weight})["norm.weight"]
    assert got.tolist() == [1 + value for value in weight.tolist()]


@pytest.mark.parametrize("kind", [RMSNorm, LayerNorm])
@pytest.mark.parametrize("narrow", [mx.bfloat16, mx.float16], ids=str)
def test_a_wide_weight_is_used_whole_and_widens_nothing(narrow: mx.Dtype, kind: type[nn.Module]) -> None:
    norm, x = kind(64), mx.random.normal((1, 2, 64), key=mx.random.key(2)).astype(narrow)
    norm.weight = one_added({"norm.weight": mx.linspace(-0.1, 0.1, 64).astype(narrow)})["norm.weight"]
    exact = norm(x.astype(mx.float32))
    assert mx.array_equal(norm(x), exact.astype(narrow))
