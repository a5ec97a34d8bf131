"""Norms by the kernels: right to a stated bound, and the same bits in any company."""

import mlx.core as mx
import numpy as np
import pytest

from runtime.cpu import native

if native.kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

from runtime.cpu.native import kernels
from tests.runtime.cpu.native.rows import WIDTHS, bits, normal, same_bits_in_any_company

EPS = 1e-5


def rms(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + EPS)


@pytest.mark.parametrize("width", WIDTHS)
def test_is_the_norm_to_rounding(width: int) -> None:
    x, weight, bias = normal(4, width, spread=3), normal(width, seed=1), normal(width, seed=2)
    wide, given = x.astype(np.float64), [mx.array(a) for a in (x, weight, bias)]
    far = 2e-6 * max(1.0, float(np.abs(weight).max())) * np.abs(rms(wide)).max()
    assert np.abs(np.array(kernels.rms_norm(given[0], None, EPS)) - rms(wide)).max() < far
    assert np.abs(np.array(kernels.rms_norm(given[0], given[1], EPS)) - rms(wide) * weight).max() < far
    centred = wide - wide.mean(axis=-1, keepdims=True)
    if width > 1:  # of one number nothing is left but rounding
        wanted = rms(centred) * weight + bias
        assert np.abs(np.array(kernels.layer_norm(*given, EPS)) - wanted).max() < 4 * far


@pytest.mark.parametrize("width", WIDTHS)
def test_a_cut_leaves_what_lies_so_many_deviations_above_the_mean(width: int) -> None:
    x = normal(4, width, spread=3)
    wide = x.astype(np.float64)
    least = wide.mean(axis=-1, keepdims=True) + 0.7 * wide.std(axis=-1, keepdims=True)
    got = np.array(kernels.cut(mx.array(x), 0.7))
    assert np.abs(got - np.maximum(wide - least, 0)).max() < 4e-6


@pytest.mark.parametrize("width", WIDTHS)
def test_the_same_bits_in_any_company(width: int) -> None:
    x, other = normal(33, width, spread=3), normal(33, width, seed=1)
    weight, bias = mx.array(normal(width, seed=2)), mx.array(normal(width, seed=3))
    same_bits_in_any_company(lambda x: kernels.rms_norm(x, weight, EPS), x)
    same_bits_in_any_company(lambda x, y: kernels.rms_norm(x, weight, EPS, y), x, other)
    same_bits_in_any_company(lambda x: kernels.layer_norm(x, weight, bias, EPS), x)
    same_bits_in_any_company(lambda x: kernels.layer_norm(x, None, None, EPS), x)
    same_bits_in_any_company(lambda x: kernels.cut(x, 0.5), x)


def test_what_is_added_is_added_after_rounding() -> None:
    x, to, weight = mx.array(normal(5, 67)), mx.array(normal(5, 67, seed=1)), mx.array(normal(67, seed=2))
    assert mx.array_equal(kernels.rms_norm(x, weight, EPS, to), to + kernels.rms_norm(x, weight, EPS))


def test_an_array_that_nobody_else_holds_is_overwritten_rightly() -> None:
    x, weight = normal(9, 40), mx.array(normal(40, seed=1))
    wanted = kernels.layer_norm(mx.array(x + 1), weight, weight, EPS)
    assert mx.array_equal(kernels.layer_norm(mx.array(x) + 1, weight, weight, EPS), wanted)


def test_wrong_arrays_are_refused() -> None:
    x, weight = mx.zeros((2, 6)), mx.zeros((5,))
    for call in (
        lambda: kernels.rms_norm(x, weight, EPS),
        lambda: kernels.layer_norm(x, None, weight, EPS),
        lambda: kernels.rms_norm(x, None, EPS, mx.zeros((6,))),
        lambda: kernels.rms_norm(x.astype(mx.bfloat16), None, EPS),
    ):
        with pytest.raises(ValueError, match="must"):
            call()


def test_rows_that_are_one_row() -> None:
    row = mx.array(normal(1, 37))
    for shape in ((5, 37), (2, 5, 37), (1, 37)):
        same = mx.broadcast_to(row, shape)
        for answer in bits(kernels.rms_norm(same, None, 1e-5)).reshape(-1, 37):
            assert np.array_equal(answer, bits(kernels.rms_norm(row, None, 1e-5))[0])
