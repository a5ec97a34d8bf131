"""What is appended to a stream for a while, as sublayers of one node have it; whole layers are in
`test_whole_layers`.
"""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cpu import native

if native.kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

kernels: Any = native.kernels
D, ROWS, TOKENS = 64, 2, 3


def matrix(outputs: int, width: int, seed: int = 0) -> Any:
    return kernels.Matrix(weights(outputs, width, seed), None, None, None)


def weights(outputs: int, width: int, seed: int = 0) -> mx.array:
    return mx.random.normal((outputs, width), key=mx.random.key(seed)) * width**-0.5


def feeding(low: list[Any] | None = None) -> Any:
    return kernels.feed_forward(
        None, kernels.Feeding([matrix(96, D)], False, 3, matrix(D, 96, 1), low=low or []), None
    )


def fold() -> Any:
    rest = None, 1e-5, 2, False, False, matrix(D, 64), None
    rule = kernels.DeltaRule(mx.zeros(2), mx.zeros(2), 1, 2, 16, 32, 1.0)
    opening = [matrix(96, D), matrix(64, D), matrix(2, D), matrix(2, D)]
    return kernels.recurrent(None, opening, None, mx.zeros((4, 96)), None, rule, *rest)


def through(parts: list[Any], x: mx.array, memories: list[Any]) -> list[mx.array]:
    return kernels.Chain(parts)(x, [0] * ROWS, [TOKENS] * ROWS, 0, memories)


def rows(seed: int, width: int = D) -> mx.array:
    return mx.random.normal((ROWS, TOKENS, width), key=mx.random.key(seed))


def test_it_begins_as_what_a_step_brings() -> None:
    x, own = rows(1), rows(2)
    (y,) = through([kernels.append_input(D)], x, [(own,)])
    assert np.array_equal(np.array(y), np.array(mx.concatenate([x, own], axis=-1)))


def test_it_becomes_what_a_sublayer_answers_to_it() -> None:
    x, own = rows(1), rows(2)
    (y,) = through([kernels.append_input(D), kernels.update_appended(feeding())], x, [(own,)])
    answer = mx.maximum(own @ weights(96, D).T, 0) @ weights(D, 96, 1).T
    assert np.array_equal(np.array(y[..., :D]), np.array(x))
    assert np.allclose(np.array(y[..., D:]), np.array(answer), atol=1e-4)


def test_parts_of_low_rank_are_added_to_products() -> None:
    low = [(matrix(8, D, 2), matrix(96, 8, 3))]
    x = rows(1)
    (y,) = through([feeding(low)], x, [])
    opened = x @ weights(96, D).T + x @ weights(8, D, 2).T @ weights(96, 8, 3).T
    assert np.allclose(np.array(y), np.array(x + mx.maximum(opened, 0) @ weights(D, 96, 1).T), atol=1e-4)


def test_it_is_heard_with_the_stream_and_dropped() -> None:
    def states() -> tuple[list[mx.array], bool, bool]:
        return [mx.zeros((ROWS, 3, 96)), mx.zeros((ROWS, 2, 16, 32))], False, True

    x, own, nothing = rows(1), rows(2), mx.zeros((ROWS, TOKENS, D))
    parts = [kernels.append_input(D), kernels.read_appended(matrix(D, D, 4), fold())]
    plain = through([fold()], x, [states()])[0]
    assert np.array_equal(np.array(through(parts, x, [(nothing,), states()])[0]), np.array(plain))
    heard = x + own @ weights(D, D, 4).T
    wanted = x + (through([fold()], heard, [states()])[0] - heard)
    assert np.allclose(np.array(through(parts, x, [(own,), states()])[0]), np.array(wanted), atol=1e-4)


def test_what_these_must_have() -> None:
    wide = kernels.feed_forward(None, kernels.Feeding([matrix(96, 2 * D)], False, 3, matrix(2 * D, 96)), None)
    for wrong in (
        lambda: kernels.append_input(0),
        lambda: kernels.update_appended(kernels.append_input(D)),
        lambda: kernels.read_appended(matrix(D, 2 * D), fold()),
        lambda: kernels.read_appended(matrix(2 * D, D), fold()),
        lambda: kernels.read_appended(matrix(D, D), wide),
        lambda: kernels.Chain([kernels.append_input(D), fold()]),
        lambda: through([kernels.append_input(D)], rows(1), [([rows(2)], False, False)]),
        lambda: through([kernels.append_input(D)], rows(1), [(rows(2, D - 1),)]),
        lambda: feeding([None, None]),
        lambda: feeding([(matrix(8, D), matrix(96, 9))]),
        lambda: feeding([(matrix(8, D - 1), matrix(96, 8))]),
        lambda: feeding([(matrix(8, D), matrix(95, 8))]),
    ):
        with pytest.raises(ValueError, match=r"stream|behind|heard|brings|low rank|wide"):
            wrong()
