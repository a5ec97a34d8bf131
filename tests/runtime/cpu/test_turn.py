"""Rotation by tables equals MLX's own kernel."""

import math
from collections.abc import Iterator

import mlx.core as mx
import numpy as np
import pytest

from runtime.cpu import turn
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.step import Inputs, Step

STEPS = {
    "one token": Step((900,), (1,)),
    "some": Step((5,), (7,)),
    "rows at different places": Step((3, 700), (1, 1)),
    "ragged": Step((0, 9, 40), (2, 7, 3)),
    "a prompt": Step((1000,), (64,)),
}


@pytest.fixture(autouse=True)
def on_a_processor() -> Iterator[None]:
    with ops.using("blas"):
        yield


def wavelengths(dims: int) -> tuple[float, ...]:
    """One of them infinite: a pair that never turns."""
    return (*(10000.0 ** (i / dims) for i in range(0, dims - 2, 2)), math.inf)


def heads(step: Step, size: int, dtype: mx.Dtype = mx.float32) -> mx.array:
    flat = mx.random.normal((len(step.starts), step.width, 4, size), key=mx.random.key(step.width))
    return flat.swapaxes(1, 2).astype(dtype)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
@pytest.mark.parametrize("traditional", [False, True], ids=["halves", "neighbours"])
@pytest.mark.parametrize("dims", [64, 24], ids=["whole head", "part of it"])
def test_equals_the_kernel(step: Step, traditional: bool, dims: int) -> None:
    turned = Rope(RopeSpec(dims, wavelengths(dims), 1.3, traditional))
    x = heads(step, 64)
    assert np.allclose(turned(x, step), turned.fused(x, step), atol=4e-6)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_positions_that_a_step_brings(step: Step, dtype: mx.Dtype) -> None:
    """Those of another step: turned as it turns, in every float type."""
    turned, x = Rope(RopeSpec(24, wavelengths(24), 1.3)), heads(step, 64, dtype)
    elsewhere = Step((7,) * len(step.starts), step.counts, inputs=Inputs(positions=step.indices))
    got, wanted = turned(x, elsewhere), turned.fused(x, step)
    assert got.dtype == dtype
    assert np.allclose(
        got.astype(mx.float32), wanted.astype(mx.float32), atol=4e-6 if dtype == mx.float32 else 0.05
    )


def test_a_head_too_large_for_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    step, turned = STEPS["rows at different places"], Rope(RopeSpec(24, wavelengths(24)))
    by_matrix = turned(heads(step, 64), step)
    monkeypatch.setattr(turn, "MATRIX_PRODUCTS", 0)
    assert np.allclose(turned(heads(step, 64), step), by_matrix, atol=4e-6)


def test_rows_of_long_and_short_sequences() -> None:
    spec = RopeSpec(8, (1.0, 9.0, 50.0, 80.0), 1.1, False, (2.0, 30.0, 90.0, 800.0), 16)
    step, turned = Step((3, 5), (2, 2), long=(False, True)), Rope(spec)
    assert np.allclose(turned(heads(step, 8), step), turned.fused(heads(step, 8), step), atol=1e-6)


def test_a_rope_that_looks_ahead_turns_by_more() -> None:
    class Next(Rope):
        ahead = 1

    spec, x = RopeSpec(64, wavelengths(64)), heads(STEPS["one token"], 64)
    later = Rope(spec)(x, Step((901,), (1,)))
    assert np.allclose(Next(spec)(x, STEPS["one token"]), later, atol=4e-6)
    assert np.allclose(Next(spec).fused(x, STEPS["one token"]), later, atol=4e-6)


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16])
def test_narrow_floats_stay_narrow(dtype: mx.Dtype) -> None:
    step = STEPS["some"]
    assert Rope(RopeSpec(64, wavelengths(64)))(heads(step, 64, dtype), step).dtype == dtype


def test_angles_are_worked_out_once_for_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[mx.array] = []

    class Counted(turn.Turn):
        def __init__(self, angles: mx.array, *, factor: float, traditional: bool) -> None:
            made.append(angles)
            super().__init__(angles, factor=factor, traditional=traditional)

    monkeypatch.setattr(turn, "Turn", Counted)
    step, turned = Step((5,), (7,)), Rope(RopeSpec(64, wavelengths(64)))
    for _ in range(3):
        turned(heads(step, 64), step)
    assert len(made) == 1
