"""How likely drafts are kept, as rounds tell."""

import pytest

from runtime.speculate.acceptance import FIRST_GUESS, Acceptance


def judged(*rounds: tuple[int, int], times: int = 1) -> Acceptance:
    acceptance = Acceptance()
    for _ in range(times):
        acceptance.judge(rounds)
    return acceptance


def test_a_draft_is_judged_only_behind_kept_ones() -> None:
    assert judged((4, 1), (2, 2)).learned() == ((1.0, 2), (0.5, 2))


def test_nothing_known_is_a_first_guess_with_a_doubt() -> None:
    expected, hoped = Acceptance().tokens(1)[1]
    assert expected == 1 + FIRST_GUESS
    assert expected < hoped <= 2


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_many_rounds_tell_what_a_round_brings(kept: int) -> None:
    expected, hoped = judged((2, kept), times=40).tokens(2)[2]
    assert expected == pytest.approx(1 + kept, abs=0.15)
    assert hoped - expected < 0.2


def test_places_that_were_never_tried_do_as_well_as_the_one_before() -> None:
    good, bad = judged((1, 1), times=40).tokens(8)[8], judged((1, 0), times=40).tokens(8)[8]
    assert good[0] > 6
    assert bad[0] < 1.1


def test_a_text_that_changes_is_noticed() -> None:
    acceptance = judged((1, 1), times=100)
    for _ in range(60):
        acceptance.judge([(1, 0)])
    assert acceptance.tokens(1)[1][0] < 1.3


def test_what_was_not_tried_for_long_is_hoped_for_again() -> None:
    acceptance = judged((1, 0), times=40)
    before = acceptance.tokens(1)[1]
    for _ in range(2000):
        acceptance.rest()
    after = acceptance.tokens(1)[1]
    assert before[1] < 1.15
    assert after[1] > 1.5


def test_it_begins_from_what_an_earlier_run_learned() -> None:
    acceptance = Acceptance()
    acceptance.remember(((0.9, 1000), (0.5, 20)))
    assert acceptance.learned() == ((0.9, 40), (0.5, 20))
