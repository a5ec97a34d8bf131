"""Residual streams by the kernels: right to rounding, and the same bits in any company."""

import mlx.core as mx
import numpy as np
import pytest

from runtime.cpu import native

if native.kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

from runtime.cpu.native import kernels
from tests.runtime.cpu.native.rows import normal, same_bits_in_any_company

SHAPES = [(2, 37), (4, 64), (3, 300), (64, 5)]
"""Streams, and how wide each is."""


def apart(x: np.ndarray, count: int) -> np.ndarray:
    return x.astype(np.float64).reshape(len(x), count, -1)


@pytest.mark.parametrize(("count", "width"), SHAPES)
def test_streams_are_made_of_each_other(count: int, width: int) -> None:
    x, by = normal(5, count * width), normal(5, count * count, seed=1, spread=count**-0.5)
    wanted = apart(x, count) + by.reshape(5, count, count) @ apart(x, count)
    got = kernels.mix_streams(mx.array(x), mx.array(by), count)
    assert np.abs(apart(np.array(got), count) - wanted).max() < 1e-5
    # in the place of an array that nobody else holds
    got = kernels.mix_streams(mx.array(x - 1) + 1, mx.array(by), count)
    assert np.abs(apart(np.array(got), count) - wanted).max() < 1e-5
    same_bits_in_any_company(lambda x, by: kernels.mix_streams(x, by, count), x, by)


@pytest.mark.parametrize(("count", "width"), SHAPES)
def test_streams_are_corrected_by_what_came_of_one(count: int, width: int) -> None:
    x, answer, by = normal(5, count * width), normal(5, width, seed=1), normal(5, count, seed=2)
    for place in (0, count - 1):
        surprise = answer - apart(x, count)[:, place]
        wanted = apart(x, count) + (by + 1)[..., None] * surprise[:, None]
        got = kernels.correct_streams(mx.array(x - 1) + 1, mx.array(answer), mx.array(by), place)
        assert np.abs(apart(np.array(got), count) - wanted).max() < 1e-5
        same_bits_in_any_company(
            lambda x, answer, by, place=place: kernels.correct_streams(x, answer, by, place), x, answer, by
        )


@pytest.mark.parametrize(("count", "width"), SHAPES)
def test_an_answer_comes_to_all_but_the_first(count: int, width: int) -> None:
    x, answer = normal(5, count * width), normal(5, width, seed=1)
    wanted = x.reshape(5, count, width).copy()
    wanted[:, 1:] += answer[:, None]
    got = np.array(kernels.join_streams(mx.array(x), mx.array(answer)))
    assert np.array_equal(got.reshape(wanted.shape), wanted)
    same_bits_in_any_company(kernels.join_streams, x, answer)


def test_wrong_arrays_are_refused() -> None:
    x, by = mx.zeros((2, 12)), mx.zeros((2, 9))
    for call in (
        lambda: kernels.mix_streams(x, by, 2),
        lambda: kernels.mix_streams(x, by, 5),
        lambda: kernels.mix_streams(x, by[:1], 3),
        lambda: kernels.correct_streams(x, mx.zeros((2, 5)), mx.zeros((2, 3)), 0),
        lambda: kernels.correct_streams(x, mx.zeros((2, 4)), mx.zeros((2, 3)), 3),
        lambda: kernels.join_streams(x, mx.zeros((1, 4))),
        lambda: kernels.join_streams(x, mx.zeros((2, 5))),
    ):
        with pytest.raises(ValueError, match="stream"):
            call()
