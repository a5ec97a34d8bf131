"""Rotation by the kernels: angles of any position to a stated bound, and the same bits in any company."""

import math

import mlx.core as mx
import numpy as np
import pytest

from runtime.cpu import native

if native.kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

from runtime.cpu.native import kernels
from runtime.cpu.native.rope import cosines
from runtime.nn.operations import ops
from runtime.nn.positions.rope import Rope
from runtime.nn.positions.rope_spec import RopeSpec
from runtime.step import Inputs, Step
from tests.runtime.cpu.native.rows import bits, computing, normal

WAVES = (*(500000.0 ** (i / 30) for i in range(30)), math.inf)
SPEC = RopeSpec(62, WAVES, 1.3)


def exact(positions: list[int], factor: float = 1.3) -> np.ndarray:
    """[L, R]: cosines, then sines; whole turns are taken off in integers of 200 bits."""
    from fractions import Fraction

    turn = Fraction(314159265358979323846264338327950288419716939937510582097494459, 5 * 10**61)
    rows = []
    for position in positions:
        angles = [0.0 if math.isinf(w) else float(position * Fraction(1 / w) % turn) for w in WAVES]
        rows.append([math.cos(a) for a in angles] + [math.sin(a) for a in angles])
    return np.array(rows) * factor


@pytest.mark.parametrize("start", [0, 1, 900, 131072, 1_000_000, 10_000_000])
def test_angles_are_right_at_any_position(start: int) -> None:
    step, rope = Step((start,), (7,)), Rope(SPEC)
    got = np.array(cosines(kernels, rope, step))[0]
    assert np.abs(got - exact(list(range(start, start + 7)))).max() < 2e-7
    if start >= 1_000_000:
        angles = np.array(rope.angles(step))[:, 31:]  # in float32, as other columns have them
        assert np.abs(np.cos(angles) * 1.3 - exact(list(range(start, start + 7)))[:, :31]).max() > 1e-3


def test_one_table_a_step() -> None:
    step, rope = Step((5,), (3,)), Rope(SPEC)
    assert cosines(kernels, rope, step) is cosines(kernels, rope, step)


@pytest.mark.parametrize("traditional", [False, True])
@pytest.mark.parametrize("size", [62, 62 + 9, 128])
def test_the_same_bits_in_any_company(traditional: bool, size: int) -> None:
    rope = Rope(RopeSpec(62, WAVES, 1.3, traditional))
    x = normal(1, 40, 5, size)  # [B, L, H, D], turned as [B, H, L, D]
    rotate = ops.COLUMNS["cpu"].rotate

    def turned(start: int, stop: int, rows: int = 1) -> np.ndarray:
        heads = mx.array(np.repeat(x[:, start:stop], rows, axis=0)).swapaxes(1, 2)
        return bits(rotate(rope, heads, Step((start + 100,) * rows, (stop - start,) * rows)))

    with computing("plain", 1):
        alone = np.concatenate([turned(i, i + 1) for i in range(40)], axis=2)
    for column in kernels.columns():
        for threads in (1, 2, 3):
            with computing(column, threads):
                assert np.array_equal(turned(0, 40), alone)
                assert np.array_equal(turned(7, 30), alone[:, :, 7:30])
                assert np.array_equal(turned(0, 9, rows=3), np.repeat(alone[:, :, :9], 3, axis=0))


def test_rows_elsewhere_and_positions_of_their_own_give_the_same_bits() -> None:
    rope, x = Rope(SPEC), normal(3, 2, 4, 70)
    rotate = ops.COLUMNS["cpu"].rotate
    alone = [bits(rotate(rope, mx.array(x[i : i + 1]), Step((9 * i,), (4,)))) for i in range(3)]
    ragged = rotate(rope, mx.array(x), Step((0, 9, 18), (4, 4, 2)))
    assert np.array_equal(bits(ragged), np.concatenate(alone))
    positions = mx.array([[9 * i + j for j in range(4)] for i in range(3)], mx.int32)
    moved = rotate(rope, mx.array(x), Step((7, 7, 7), (4, 4, 4), inputs=Inputs(positions=positions)))
    assert np.array_equal(bits(moved), np.concatenate(alone))


def test_rows_of_long_and_short_sequences_turn_as_they_do_alone() -> None:
    spec = RopeSpec(8, (1.0, 9.0, 50.0, 80.0), 1.1, False, (2.0, 30.0, 90.0, 800.0), 16)
    rope, x = Rope(spec), normal(2, 3, 2, 8)
    rotate = ops.COLUMNS["cpu"].rotate
    for starts in ((5, 5), (3, 5)):
        apart = [Step((starts[i],), (2,), long=(bool(i),)) for i in range(2)]
        alone = [bits(rotate(rope, mx.array(x[i : i + 1]), apart[i])) for i in range(2)]
        both = rotate(rope, mx.array(x), Step(starts, (2, 2), long=(False, True)))
        assert np.array_equal(bits(both), np.concatenate(alone))


def test_wrong_arrays_are_refused() -> None:
    table = kernels.rope_table(mx.zeros((1, 2, 4)), None, (0,), 3, 0, 1.0)
    with pytest.raises(ValueError, match="does not fit"):
        kernels.rope_turn(mx.zeros((1, 2, 3, 6)), table, False)
    with pytest.raises(ValueError, match="does not fit"):
        kernels.rope_turn(mx.zeros((1, 2, 2, 8)), table, False)
    with pytest.raises(ValueError, match="frequencies"):
        kernels.rope_table(mx.zeros((3, 2, 4)), None, (0, 1), 3, 0, 1.0)
    with pytest.raises(ValueError, match="positions"):
        kernels.rope_table(mx.zeros((1, 2, 4)), mx.zeros((2, 2)), (), 2, 0, 1.0)
