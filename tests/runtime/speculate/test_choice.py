"""Whom to ask, on made-up promises."""

import pytest

from runtime.speculate.choice import FIRST_TURN, LAST_TURN, Choice, Offer

DRAFT, LOOKUP = Offer("draft", 50.0), Offer("lookup", 80.0)


def firsts(choice: Choice, *offers: Offer, rounds: int) -> list[str]:
    return [choice.order(offers)[0] for _ in range(rounds)]


def test_the_highest_promise_is_asked_first() -> None:
    assert Choice().order([DRAFT, LOOKUP]) == ["lookup", "draft"]


def test_one_that_is_new_goes_before_any_promise() -> None:
    assert Choice().order([LOOKUP, Offer("draft", None)]) == ["draft", "lookup"]


def test_one_that_probes_goes_first() -> None:
    assert Choice().order([LOOKUP, Offer("draft", 10.0, probing=True)]) == ["draft", "lookup"]


def test_equals_are_asked_in_order_of_preference() -> None:
    assert Choice().order([Offer("b", 1.0), Offer("a", 1.0)]) == ["b", "a"]


@pytest.mark.parametrize("loser", [DRAFT, LOOKUP])
def test_who_loses_has_a_turn_now_and_then_and_ever_more_rarely(loser: Offer) -> None:
    better = Offer("better", 100.0)
    asked = [n for n, name in enumerate(firsts(Choice(), better, loser, rounds=4000)) if name == loser.name]
    assert asked[0] == FIRST_TURN - 1
    assert len(asked) <= 4000 / LAST_TURN + 5
    assert asked[-1] - asked[-2] == LAST_TURN


def test_who_wins_again_is_fresh_again() -> None:
    choice = Choice()
    firsts(choice, DRAFT, LOOKUP, rounds=1000)
    firsts(choice, Offer("draft", 90.0), LOOKUP, rounds=1)
    assert "draft" in firsts(choice, DRAFT, LOOKUP, rounds=FIRST_TURN)


def test_nobody_has_anything_to_say() -> None:
    assert Choice().order([]) == []
