"""Folds by the kernels: near what they mean, and the same bits however tokens come."""

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cpu import native
from runtime.nn.gated_norm import GatedRMSNorm
from runtime.nn.operations.ops import COLUMNS
from tests.runtime.cpu.native.scans import CASES, Case

pytestmark = pytest.mark.skipif(native.kernels is None, reason=f"no kernels: {native.status.reason}")

CPU, BLAS = COLUMNS["cpu"], COLUMNS["blas"]
LENGTH = 37


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def kernels() -> Iterator[Any]:
    """The module, its column and threads put back afterwards."""
    column, threads = native.kernels.column(), native.kernels.threads()
    yield native.kernels
    native.kernels.use_column(column)
    native.kernels.set_threads(threads)


def _folded(
    case: Case, inputs: tuple[mx.array, ...], state: mx.array, cuts: tuple[int, ...]
) -> list[mx.array]:
    """Answers and state after steps of these widths."""
    answers: list[mx.array] = []
    at = 0
    for width in cuts:
        y, state = case.run(CPU, tuple(x[:, at : at + width] for x in inputs), state, None)
        answers.append(y)
        at += width
    assert at == inputs[0].shape[1]
    return [mx.concatenate(answers, axis=1), state]


def _same(got: list[mx.array], wanted: list[mx.array]) -> None:
    for left, right in zip(got, wanted, strict=True):
        assert np.array_equal(np.array(left), np.array(right))


def test_any_cut_gives_the_same_bits(case: Case) -> None:
    inputs, state = case.inputs(2, LENGTH), case.states(2)
    whole = _folded(case, inputs, state, (LENGTH,))
    for width in (1, 2, 3, 5, 8, 18, 33):
        steps = (width,) * (LENGTH // width)
        rest = LENGTH - sum(steps)
        _same(_folded(case, inputs, state, (*steps, rest) if rest else steps), whole)


def test_a_row_is_the_same_alone_and_among_others(case: Case) -> None:
    inputs, state, counts = case.inputs(3, LENGTH), case.states(3), (LENGTH, 0, 20)
    answers, last = case.run(CPU, inputs, state, mx.array(counts, dtype=mx.int32))
    for row, count in enumerate(counts):
        mine = state[row : row + 1]
        if count:
            alone = tuple(x[row : row + 1, :count] for x in inputs)
            _same(
                [answers[row : row + 1, :count], last[row : row + 1]], list(case.run(CPU, alone, mine, None))
            )
        else:
            _same([last[row : row + 1]], [mine])
        assert not np.any(np.array(answers[row, count:]))


def test_a_step_without_tokens_leaves_the_state_as_it_is(case: Case) -> None:
    state = case.states(2)
    answers, last = case.run(CPU, case.inputs(2, 0), state, None)
    assert answers.shape[1] == 0
    _same([last], [state])


def test_threads_and_columns_give_the_same_bits(case: Case, kernels: Any) -> None:
    inputs, state = case.inputs(2, LENGTH), case.states(2)
    seen: list[list[mx.array]] = []
    for column in kernels.columns():
        for threads in (1, 2, 3, 9):
            assert kernels.use_column(column)
            kernels.set_threads(threads)
            seen.append(_folded(case, inputs, state, (LENGTH - 1, 1)))
            mx.eval(seen[-1])
    for others in seen[1:]:
        _same(others, seen[0])


def test_near_the_definition_in_float64(case: Case) -> None:
    """After 1,000 tokens as after one, and within twice what MLX's own operations are off."""
    inputs, state = case.inputs(1, 1000), case.states(1)
    truth = case.truth(
        tuple(np.array(x[0]).astype(np.float64) for x in inputs), np.array(state[0], np.float64)
    )
    ours, others = (case.run(column, inputs, state, None) for column in (CPU, BLAS))
    for wanted, mine, other in zip(truth, ours, others, strict=True):
        error, allowed = (
            float(np.abs(np.array(x[0]) - wanted).max() / np.abs(wanted).max()) for x in (mine, other)
        )
        assert error < case.bound
        assert error < 2 * max(allowed, case.bound / 50)


def test_what_is_seen_through_strides_is_read_where_it_lies(case: Case) -> None:
    inputs, state = case.inputs(2, 9), case.states(2)
    wider = tuple(mx.concatenate([x * 3, x, x * 5], axis=-1) for x in inputs)
    parts = tuple(mx.split(wide, 3, axis=-1)[1] for wide in wider)
    turned = tuple(mx.contiguous(x.swapaxes(0, 1)).swapaxes(0, 1) for x in inputs)
    for seen in (parts, turned):
        _same(list(case.run(CPU, seen, state, None)), list(case.run(CPU, inputs, state, None)))


def test_the_first_token_enters_an_rg_lru_whole() -> None:
    case = CASES["rg_lru"]
    x, state = case.inputs(1, 3)[0], mx.zeros((1, *case.state))
    for positions in ([[0, 1, 2]], [[5, 0, 1]]):
        at = mx.array(positions, dtype=mx.float32)[..., None] - 9
        got, wanted = (case.run(column, (x, at), state, None) for column in (CPU, BLAS))
        assert mx.allclose(got[0], wanted[0], atol=1e-5)


@pytest.mark.parametrize("sigmoid", [False, True])
@pytest.mark.parametrize("order", ["gate first", "norm first"])
@pytest.mark.parametrize(
    ("size", "groups", "heads"), [(96, 1, 1), (96, 4, 1), (13, 1, 1), (16, 1, 6), (9, 1, 3)]
)
def test_gated_norms(order: Any, sigmoid: bool, size: int, groups: int, heads: int, kernels: Any) -> None:
    norm = GatedRMSNorm(size, 1e-5, groups=groups, order=order, activation="sigmoid" if sigmoid else "silu")
    norm.weight = mx.random.normal((size,), key=mx.random.key(1))
    x, gate = mx.random.normal((2, 2, 5, size * heads), key=mx.random.key(2))
    whole = CPU.gated_norm(norm, x, gate)
    assert mx.allclose(whole, BLAS.gated_norm(norm, x, gate), atol=1e-5)
    for column in kernels.columns():
        assert kernels.use_column(column)
        one = mx.concatenate(
            [CPU.gated_norm(norm, x[:, i : i + 1], gate[:, i : i + 1]) for i in range(5)], axis=1
        )
        assert np.array_equal(np.array(one), np.array(whole))


def test_other_types_go_the_other_way(case: Case) -> None:
    inputs, state = case.inputs(1, 3), case.states(1)
    half = tuple(x.astype(mx.bfloat16) for x in inputs)
    got, wanted = (case.run(column, half, state, None) for column in (CPU, BLAS))
    assert mx.array_equal(got[0], wanted[0])


def test_a_parameter_that_is_replaced_is_noticed() -> None:
    norm, x = GatedRMSNorm(16, 1e-5), mx.ones((1, 1, 16))
    before = CPU.gated_norm(norm, x, x)
    norm.weight = norm.weight * 2
    assert mx.allclose(CPU.gated_norm(norm, x, x), before * 2)


def test_shapes_that_do_not_fit_are_refused(kernels: Any) -> None:
    x, state, weight = mx.zeros((1, 2, 8)), mx.zeros((1, 3, 8)), mx.zeros((4, 8))
    for bad in (mx.zeros((1, 3, 7)), mx.zeros((2, 3, 8)), mx.zeros((1, 2, 8)), mx.zeros((3, 8))):
        with pytest.raises(ValueError, match="before must be"):
            kernels.conv(x, None, None, bad, weight, None, None, False)
    with pytest.raises(ValueError, match="counts has another type"):
        kernels.conv(x, None, None, state, weight, None, mx.zeros((1,)), False)
    with pytest.raises(ValueError, match="another type"):
        kernels.conv(x.astype(mx.float16), None, None, state, weight, None, None, False)
    with pytest.raises(ValueError, match="multiple of the key heads"):
        kernels.delta(x, x, x, x, x, mx.zeros((1, 3, 4, 4)), None, 2, 1.0)
