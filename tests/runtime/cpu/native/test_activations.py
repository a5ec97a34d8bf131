"""Activations, gates and softmax by the kernels: right to a bound, and the same bits in any company."""

import math
from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest

from runtime.cpu import native

if native.kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

from runtime.cpu.native import kernels
from runtime.cpu.native.activations import KINDS, NAMES
from tests.runtime.cpu.native.rows import WIDTHS, computing, normal, same_bits_in_any_company

Function = Callable[[np.ndarray], np.ndarray]

erf = np.vectorize(math.erf)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


EXACT: dict[str, Function] = {
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "softplus": lambda x: np.logaddexp(x, 0),
    "sigmoid": sigmoid,
    "tanh": np.tanh,
}
BENT = (0.9, 1.3, 0.5, -1e-6)
NUMBERS = np.concatenate(
    [np.linspace(-20, 20, 20001), np.linspace(-0.01, 0.01, 2001), [-80.0, 80.0, 0.625, -0.625]]
).astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_is_what_it_is_called(name: str) -> None:
    got = np.array(kernels.act(KINDS[name], mx.array(NUMBERS)), np.float64)
    wanted = EXACT[name](NUMBERS.astype(np.float64))
    size = np.maximum(np.abs(wanted), 1)
    if "gelu" in name:  # x times one minus nearly one
        size = np.maximum(size, np.abs(NUMBERS))
    assert (np.abs(got - wanted) <= 4e-7 * size).all()


@pytest.mark.parametrize("name", ["silu", "softplus", "sigmoid", "tanh"])
def test_small_answers_have_all_their_digits(name: str) -> None:
    x = np.linspace(-15, -0.001, 5000, dtype=np.float32)
    got, wanted = np.array(kernels.act(KINDS[name], mx.array(x)), np.float64), EXACT[name](x.astype(float))
    assert (np.abs(got - wanted) <= 1e-6 * np.abs(wanted)).all()


def test_xielu_is_its_formula() -> None:
    rise, fall, beta, eps = BENT
    got, wide = np.array(kernels.bend(BENT, mx.array(NUMBERS)), np.float64), NUMBERS.astype(np.float64)
    below = (np.expm1(np.minimum(wide, eps)) - wide) * fall
    wanted = np.where(wide > 0, rise * wide**2, below) + beta * wide
    assert (np.abs(got - wanted) <= 4e-7 * np.maximum(np.abs(wanted), 1)).all()
    assert np.isnan(np.array(kernels.bend(BENT, mx.array([math.nan]))))[0]
    with pytest.raises(ValueError, match="eps must be at most 0"):
        kernels.bend((rise, fall, beta, 0.1), mx.array(NUMBERS))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_number_stays_none(name: str) -> None:
    got = np.array(kernels.act(KINDS[name], mx.array([1.0, math.nan, 2.0])))
    assert np.isnan(got).tolist() == [False, True, False]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_same_bits_in_any_company(width: int) -> None:
    x, other = normal(33, width, spread=5), normal(33, width, seed=1, spread=5)
    for name in NAMES:
        same_bits_in_any_company(lambda x, kind=KINDS[name]: kernels.act(kind, x), x)
    same_bits_in_any_company(lambda x, y: kernels.gate(KINDS["silu"], x, y), x, other)
    same_bits_in_any_company(lambda x, y: kernels.clipped_gate(4.0, 1.7, x, y), x, other)
    same_bits_in_any_company(lambda x: kernels.softcap(x, 30.0), x)
    same_bits_in_any_company(lambda x: kernels.bend(BENT, x), x)
    same_bits_in_any_company(kernels.softmax, x)
    same_bits_in_any_company(kernels.log_sum_exp, x)


@pytest.mark.parametrize("name", NAMES)
def test_a_gate_is_its_activation_times_what_it_opens(name: str) -> None:
    gate, up = mx.array(normal(3, 40, spread=4)), mx.array(normal(3, 40, seed=1))
    assert mx.array_equal(kernels.gate(KINDS[name], gate, up), kernels.act(KINDS[name], gate) * up)


def test_halves_of_one_array_are_read_where_they_lie() -> None:
    both = mx.array(normal(4, 3, 40))
    gate, up = mx.split(both, 2, axis=-1)
    wanted = kernels.gate(KINDS["silu"], mx.contiguous(gate), mx.contiguous(up))
    assert mx.array_equal(kernels.gate(KINDS["silu"], gate, up), wanted)


def test_a_clipped_gate() -> None:
    gate, up = normal(5, 99, spread=6), normal(5, 99, seed=1, spread=6)
    g, u = np.minimum(gate.astype(float), 2.5), np.clip(up.astype(float), -2.5, 2.5)
    got = np.array(kernels.clipped_gate(2.5, 1.702, mx.array(gate), mx.array(up)))
    assert np.abs(got - (u + 1) * g * sigmoid(1.702 * g)).max() < 2e-6


@pytest.mark.parametrize("width", WIDTHS)
def test_softmax_and_the_log_of_its_sum(width: int) -> None:
    x = normal(4, width, spread=10).astype(np.float64)
    x[1, 0] = -np.inf if width > 1 else 0.0
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    given = mx.array(x.astype(np.float32))
    exact = powers / powers.sum(axis=-1, keepdims=True)
    assert np.abs(np.array(kernels.softmax(given)) - exact).max() < 1e-6
    logs = x.max(axis=-1) + np.log(powers.sum(axis=-1))
    assert np.abs(np.array(kernels.log_sum_exp(given))[:, 0] - logs).max() < 1e-5


def test_the_log_of_a_sum_of_nothing() -> None:
    rows = [[-math.inf, -math.inf], [math.inf, 1.0], [math.nan, 1.0]]
    got = np.array(kernels.log_sum_exp(mx.array(rows))).flatten()
    assert np.array_equal(got, [-math.inf, math.inf, math.nan], equal_nan=True)


def test_wrong_arrays_are_refused() -> None:
    x = mx.zeros((2, 3))
    with pytest.raises(ValueError, match="float32"):
        kernels.act(0, x.astype(mx.float16))
    with pytest.raises(ValueError, match="no such"):
        kernels.act(len(NAMES), x)
    with pytest.raises(ValueError, match="same shape"):
        kernels.gate(0, x, mx.zeros((2, 4)))
    with pytest.raises(ValueError, match="last axis"):
        kernels.softmax(mx.array(1.0))
    with pytest.raises(ValueError, match="above 0"):
        kernels.softcap(x, 0.0)


@pytest.mark.parametrize("width", [1, 15, 16, 1000, 1024, 1025, 32001])
def test_the_likeliest(width: int) -> None:
    x = normal(7, width, seed=width)
    x[1] = -np.inf
    x[2, width // 2 :] = x[2].max() + 1  # the first of those alike
    x[3, -1] = np.inf
    x[4, 1:] = np.nan
    x[5] = 3.0
    x[6, 0] = np.nan
    for column in kernels.columns():
        with computing(column, 2):
            got = kernels.likeliest(mx.array(x).reshape(7, 1, width))
            assert got.dtype == mx.int32
            assert got.shape == (7, 1)
            assert got[:, 0].tolist() == [*np.argmax(x[:4], axis=-1), 0, 0, 0]  # MLX prefers NaN
    with pytest.raises(ValueError, match="last axis"):
        kernels.likeliest(mx.zeros((3, 0)))
