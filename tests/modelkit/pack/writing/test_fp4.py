"""The tables give what MLX gives, bit for bit, at every magnitude."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkit.pack.writing.fp4 import quantize_fp4
from runtime.quant import Format, find_format


def row(name: str) -> Format:
    found = find_format(name)
    assert found is not None
    return found


def same_as_mlx(values: mx.array, wanted: str) -> bool:
    target = row(wanted)
    found = quantize_fp4(values, target)
    assert found is not None
    assert target.mode is not None
    expected = mx.quantize(values, group_size=target.group_size, bits=4, mode=target.mode)
    return all(
        one.dtype == other.dtype and bool(mx.array_equal(one, other).item())
        for one, other in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("wanted", ["mxfp4", "nvfp4"])
@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16], ids=["bf16", "f16"])
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), exponent=st.integers(-24, 12))
def test_codes_and_scales_are_mlx_own(wanted: str, dtype: mx.Dtype, seed: int, exponent: int) -> None:
    values = np.random.default_rng(seed).standard_normal((8, 256)).astype(np.float32) * 2.0**exponent
    assert same_as_mlx(mx.array(values).astype(dtype), wanted)


@pytest.mark.parametrize("wanted", ["mxfp4", "nvfp4"])
def test_zeros_and_halfway_values_are_mlx_own(wanted: str) -> None:
    halfway = [0.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5.0]
    values = mx.array([halfway * 2, [0.0] * 32, [-0.0] * 32, [6.0] + [1e-4] * 31])
    assert same_as_mlx(values.astype(mx.bfloat16), wanted)


@pytest.mark.parametrize("odd", [float("inf"), float("nan"), 1e-38])
def test_odd_numbers_are_left_to_mlx(odd: float) -> None:
    assert quantize_fp4(mx.full((1, 32), odd, mx.bfloat16), row("mxfp4")) is None


def test_wide_weights_are_left_to_mlx() -> None:
    assert quantize_fp4(mx.ones((1, 32)), row("mxfp4")) is None
