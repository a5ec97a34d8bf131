"""What rounds are taken to cost, from what they took."""

import pytest

from runtime.speculate.costs import FIRST_COSTS, Costs


def timed(costs: Costs, depth: int, seconds: float, times: int = 1 + FIRST_COSTS) -> Costs:
    for _ in range(times):
        costs.record(depth, seconds)
    return costs


def test_the_first_round_at_a_depth_says_nothing() -> None:
    costs = timed(Costs(), 0, 1.0)
    assert not costs.record(2, 50.0)
    assert costs.record(2, 3.0)
    assert costs.of(2) == 3.0


def test_somebody_elses_round_makes_the_next_one_unclean() -> None:
    costs = timed(Costs(), 1, 1.0)
    costs.interrupt()
    assert not costs.record(1, 9.0)
    assert costs.of(1) == 1.0


def test_between_known_depths_costs_are_linear() -> None:
    costs = timed(timed(Costs(), 0, 1.0), 4, 3.0)
    assert [costs.of(depth) for depth in (0, 2, 4, 6)] == [1.0, 2.0, 3.0, 4.0]


def test_beyond_the_deepest_nothing_gets_cheaper() -> None:
    assert timed(timed(Costs(), 0, 1.0), 2, 0.9).of(8) == 0.9


def test_drafts_that_were_never_timed_are_not_taken_to_be_free() -> None:
    assert timed(Costs(), 0, 1.0).of(1) > 1.0


def test_a_remembered_cost_is_known_at_once_and_gives_way_to_the_first_sample() -> None:
    costs = Costs()
    costs.remember({0: 1.0, 4: 2.0})
    assert not costs.unclear(0)
    timed(costs, 4, 7.0, times=2)
    assert costs.of(4) == 7.0


def test_a_machine_that_became_slower_moves_all_that_was_remembered() -> None:
    costs = Costs()
    costs.remember({0: 1.0, 2: 1.5, 4: 2.0})
    timed(costs, 4, 20.0, times=2)
    assert [costs.of(depth) for depth in (0, 2, 4)] == [10.0, 15.0, 20.0]


def test_a_stall_in_the_first_sample_is_taken_back_by_the_next() -> None:
    costs = Costs()
    costs.remember({0: 1.0, 4: 2.0})
    timed(costs, 4, 60.0, times=2)
    costs.record(4, 2.0)
    assert [costs.of(0), costs.of(4)] == pytest.approx([1.0, 2.0])


def test_what_is_being_measured_again_is_not_learned() -> None:
    costs = timed(timed(Costs(), 0, 1.0), 1, 2.0)
    costs.forget(0)
    assert costs.learned() == {1: 2.0}
