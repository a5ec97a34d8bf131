"""One decision, on made-up offers."""

import pytest

from runtime.speculate.depth import Decision, Offer, decide

SURE = 0.001


def offer(name: str, gain: float, doubt: float = SURE, depth: int = 2, cost: float = 1.5) -> Offer:
    return Offer(name, depth, gain, doubt, cost)


def asked(decision: Decision) -> list[tuple[str, int]]:
    return [(one.name, one.depth) for one in decision.offers]


def test_nobody_has_anything_to_say() -> None:
    assert decide([], 5.0) == Decision(())


def test_a_draft_that_is_slower_than_plain_decoding_is_not_asked() -> None:
    assert decide([offer("draft", -0.1)], 5.0) == Decision(())


def test_a_gain_too_small_to_matter_is_not_worth_a_draft() -> None:
    assert decide([offer("draft", 0.005)], 0.0) == Decision(())


def test_each_is_asked_at_its_best_depth_the_fastest_first() -> None:
    offers = [
        offer("draft", 0.2, depth=2),
        offer("draft", 0.4, depth=4),
        offer("lookup", 0.5, depth=8),
        offer("lookup", 0.1, depth=1),
        offer("slow", -0.2),
    ]
    assert asked(decide(offers, 0.0)) == [("lookup", 8), ("draft", 4)]


def test_of_equals_the_preferred_one_is_asked_first() -> None:
    assert asked(decide([offer("a", 0.3), offer("b", 0.3)], 0.0)) == [("a", 2), ("b", 2)]


@pytest.mark.parametrize("budget", [0.0, 5.0])
def test_what_may_be_better_is_tried_only_when_the_budget_pays(budget: float) -> None:
    decision = decide([offer("draft", -0.1, doubt=0.4)], budget)
    assert bool(decision.offers) == bool(budget)
    assert decision.price == pytest.approx(1.5 * (1 - 2.718281828**-0.1) if budget else 0.0)


def test_plain_decoding_is_never_tried_as_it_says_nothing_of_a_draft() -> None:
    assert decide([offer("draft", 0.1, doubt=0.3)], 5.0) == decide([offer("draft", 0.1, doubt=0.3)], 0.0)


def test_a_try_leaves_plain_decoding_only_where_nothing_else_is_known_to_pay() -> None:
    assert decide([offer("draft", -0.1, doubt=0.4)], 5.0).leaves_plain
    assert not decide([offer("draft", 0.2), offer("lookup", 0.1, doubt=0.4, depth=1)], 5.0).leaves_plain
    assert not decide([offer("draft", 0.2)], 5.0).leaves_plain


def test_what_is_known_well_is_not_tried() -> None:
    assert decide([offer("draft", -0.1), offer("lookup", -0.5)], 5.0) == Decision(())


def test_who_is_tried_and_says_nothing_is_followed_by_who_pays() -> None:
    decision = decide([offer("draft", 0.2), offer("lookup", 0.1, doubt=0.4, depth=1)], 5.0)
    assert asked(decision) == [("lookup", 1), ("draft", 2)]
    assert decision.price > 0
