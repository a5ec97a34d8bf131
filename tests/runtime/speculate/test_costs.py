"""What rounds are taken to cost, from what they took."""

import math

import numpy as np
import pytest

from runtime.speculate.costs import FIRST_PLAIN, Costs, DrafterTraits, depths, token_cost

DRAFT = {"draft": DrafterTraits(token_cost=0.1, limit=12)}
PLAIN_S = 0.01


def costs() -> Costs:
    return plain(Costs(DRAFT), 5)


def plain(known: Costs, times: int, seconds: float = PLAIN_S) -> Costs:
    for _ in range(times):
        known.record(None, 0, seconds)
    return known


def drafted(known: Costs, depth: int, cost: float, times: int = 20, speed: float = 1.0) -> Costs:
    """Rounds in a row, the first of which also waits for a plain one."""
    for n in range(times):
        known.record("draft", depth, speed * PLAIN_S * (cost + (n == 0)))
    return known


def cost(known: Costs, depth: int) -> float:
    return math.exp(known.of("draft", depth)[0])


def test_the_depths_that_are_chosen_end_at_the_limit() -> None:
    assert depths(12) == [1, 2, 3, 4, 6, 8, 12]
    assert depths(5) == [1, 2, 3, 4, 5]
    assert depths(1) == [1]


def test_a_draft_of_a_tenth_of_the_target_is_taken_to_cost_a_tenth() -> None:
    assert token_cost(10 << 20, 2, 100 << 20, 20) == pytest.approx(0.1)


def test_before_any_round_shapes_say_what_drafts_cost() -> None:
    dear = Costs({"draft": DrafterTraits(token_cost=0.8, limit=4)})
    assert 1 < cost(Costs(DRAFT), 4) < cost(dear, 4)
    assert cost(Costs(DRAFT), 1) < cost(Costs(DRAFT), 4)


@pytest.mark.parametrize("true", [1.1, 2.0, 6.0])
def test_rounds_beside_plain_ones_tell_what_a_depth_costs(true: float) -> None:
    known = costs()
    for _ in range(3):
        plain(drafted(known, 4, true, times=12), 6)
    assert cost(known, 4) == pytest.approx(true, rel=0.12)


def test_a_single_round_among_plain_ones_is_told_with_the_one_behind_it() -> None:
    """It also waits for the plain one in front, and the one behind it for nothing."""
    known = costs()
    for _ in range(20):
        known.record("draft", 4, PLAIN_S * 4)
        known.record(None, 0, PLAIN_S * 0.001)
        plain(known, 3)
    assert cost(known, 4) == pytest.approx(3, rel=0.1)


@pytest.mark.parametrize("speed", [0.2, 5.0])
def test_a_machine_of_another_speed_changes_no_cost(speed: float) -> None:
    known = drafted(costs(), 4, 2.0)
    drafted(known, 4, 2.0, times=30, speed=speed)
    plain(known, 12, speed * PLAIN_S)
    assert cost(known, 4) == pytest.approx(2.0, rel=0.15)
    assert known.plain_s == pytest.approx(speed * PLAIN_S, rel=0.15)


def test_what_one_depth_costs_says_something_of_the_others() -> None:
    before = cost(costs(), 8)
    assert cost(drafted(costs(), 4, 4.0), 8) > 1.3 * before
    assert cost(drafted(costs(), 4, 1.1), 8) < 0.8 * before


def test_stalls_move_a_cost_by_a_bounded_share() -> None:
    known = drafted(costs(), 4, 2.0, times=40)
    known.record("draft", 4, 100 * PLAIN_S)
    assert cost(known, 4) < 2.2


def test_two_stalls_of_a_draft_that_is_hardly_known_make_it_no_dearer() -> None:
    """Drafted rounds are waited for, so that other programs hold up these rather than plain ones."""
    known = drafted(costs(), 4, 2.5, times=12)
    before = cost(known, 4)
    for times in (6, 8):
        drafted(known, 4, 2.5, times=3)
        known.record("draft", 4, times * 2.5 * PLAIN_S)
        plain(known, 10)
    assert cost(known, 4) < 1.1 * before


def test_the_first_time_of_a_depth_may_be_long() -> None:
    known = costs()
    drafted(known, 4, 1.0, times=1)
    known.record("draft", 4, 50 * PLAIN_S)
    assert cost(known, 4) == pytest.approx(cost(costs(), 4), rel=0.01)


def test_what_a_first_time_took_beyond_reason_is_told_once() -> None:
    known = plain(costs(), 5)
    assert known.passed_over() == 0
    known.record("draft", 4, 20 * PLAIN_S)
    assert 15 < known.passed_over() < 19
    assert known.passed_over() == 0


def test_a_first_time_as_expected_is_no_loss() -> None:
    known = plain(costs(), 5)
    known.record("draft", 4, 3 * PLAIN_S)
    assert known.passed_over() == 0


def test_no_round_with_drafts_costs_less_than_one_without() -> None:
    known = plain(Costs(DRAFT), 5, 1.0)
    drafted(known, 4, 1.5)
    assert cost(known, 4) >= 1


def test_times_that_were_shared_with_other_work_teach_nothing() -> None:
    known = plain(Costs(DRAFT), FIRST_PLAIN)
    before = known.of("draft", 4)
    for _ in range(20):
        known.record("draft", 4, None)
        known.record(None, 0, None)
    assert known.of("draft", 4) == before


def test_the_doubt_shrinks_with_rounds() -> None:
    assert drafted(costs(), 4, 2.0).of("draft", 4)[1] < 0.5 * costs().of("draft", 4)[1]


def test_it_begins_from_what_an_earlier_run_learned() -> None:
    learned = drafted(costs(), 4, 3.0).learned("draft")
    known = Costs(DRAFT)
    known.remember("draft", learned)
    assert known.begun
    assert cost(known, 4) == pytest.approx(learned[4], rel=0.1)
    assert list(learned) == [4]


def test_noise_that_comes_and_goes_moves_costs_little() -> None:
    rng, known = np.random.default_rng(0), costs()
    for _ in range(10):
        speed = float(np.exp(rng.normal(0, 0.5)))
        for _ in range(8):
            known.record("draft", 4, 2.5 * PLAIN_S * speed * float(np.exp(rng.normal(0, 0.1))))
        for _ in range(8):
            known.record(None, 0, PLAIN_S * speed * float(np.exp(rng.normal(0, 0.1))))
    assert cost(known, 4) == pytest.approx(2.5, rel=0.2)


def test_plain_rounds_that_take_turns_in_being_late_are_as_long_as_their_mean() -> None:
    """What delays one shortens the next, which was dispatched meanwhile."""
    known = Costs(DRAFT)
    for n in range(60):
        known.record(None, 0, PLAIN_S * (0.3 if n % 2 else 1.7))
        if n % 15 == 14:  # after so many in a row only few are looked at
            known.record("draft", 4, None)
    assert known.plain_s == pytest.approx(PLAIN_S, rel=0.05)


def test_what_was_timed_in_noise_is_soon_doubted_again_while_nothing_is_drafted() -> None:
    def grown(noise: float) -> float:
        rng, known = np.random.default_rng(0), costs()
        for _ in range(60):
            known.record("draft", 4, 2.5 * PLAIN_S * float(np.exp(rng.normal(0, noise))))
        before = known.of("draft", 4)[1]
        known.unseen(40)
        return known.of("draft", 4)[1] - before

    assert grown(0.5) > 2 * grown(0.03) > 0


def test_what_was_never_timed_is_doubted_no_more_than_at_first() -> None:
    known = costs()
    before = known.of("draft", 4)
    known.unseen(1000)
    assert known.of("draft", 4) == before
