"""How long steps took, from made-up readings of the clocks."""

from collections.abc import Iterable
from itertools import pairwise

import pytest

from runtime.speculate.clock import WAITING, Moment, Spent


def spent(steps: Iterable[tuple[float, float | None]]) -> list[float]:
    """What steps in a row took, of which each passed so much wall time, with so much processor time."""
    meter, wall, worked, told = Spent(), 5.0, 7.0, list[float]()
    for passed_s, worked_s in steps:
        began = Moment(wall, None if worked_s is None else worked)
        wall, worked = wall + passed_s, worked + (worked_s or 0)
        told.append(meter.between(began, Moment(wall, None if worked_s is None else worked)))
    return told


def ticking(step_s: float, tick_s: float, threads: int, steps: int) -> list[tuple[float, float]]:
    """Threads compute all the time, and what they compute is known at the ticks alone."""
    ticks = [int(n * step_s / tick_s + 1e-9) for n in range(steps + 1)]
    return [(step_s, (after - before) * tick_s * threads) for before, after in pairwise(ticks)]


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("tick_s", [0.001, 0.004, 0.01])
@pytest.mark.parametrize("step_s", [0.0007, 0.0019, 0.013])
def test_steps_between_two_ticks_of_the_system_took_their_wall_time(
    step_s: float, tick_s: float, threads: int
) -> None:
    assert spent(ticking(step_s, tick_s, threads, 200)) == pytest.approx([step_s] * 200)


def test_what_a_busy_machine_kept_from_this_process_is_left_out() -> None:
    told = spent([(0.02, 0.002)] * 50)
    assert sum(told[10:]) == pytest.approx(WAITING * 0.002 * 40)


def test_a_stall_counts_up_to_what_may_be_late() -> None:
    told = spent([*[(0.002, 0.002)] * 20, (0.5, 0.002), *[(0.002, 0.002)] * 20])
    assert told[20] < 0.02
    assert told[:20] + told[21:] == pytest.approx([0.002] * 40)


def test_where_a_gpu_computes_wall_time_counts() -> None:
    assert spent([(0.5, None), (0.001, None)]) == pytest.approx([0.5, 0.001])
