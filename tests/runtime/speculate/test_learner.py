"""Who drafts and how far, in simulated runs."""

from collections.abc import Sequence

import numpy as np
import pytest

from runtime.speculate.audition import TOKENS
from runtime.speculate.costs import DrafterTraits
from runtime.speculate.depth import EARNED
from runtime.speculate.learner import PATIENCE, Learner
from tests.support.simulated_drafting import (
    AUDITIONING,
    KINDS,
    PLAIN_S,
    Machine,
    World,
    busy,
    drafted_shares,
    speeds,
    steady,
    stepping,
    wandering,
)

MACHINES = pytest.mark.parametrize("machine", [steady, wandering, stepping, busy])


@MACHINES
@pytest.mark.parametrize("fixed", [0.05, 0.6, 1.0])
@pytest.mark.parametrize("slope", [0.1, 0.3])
def test_a_useless_draft_costs_next_to_nothing(machine: Machine, fixed: float, slope: float) -> None:
    cold, warm, _ = speeds(fixed, slope, [0.01], machine)
    assert cold >= (0.9 if machine is busy else 0.98)
    assert warm >= 0.975


@MACHINES
@pytest.mark.parametrize(
    ("fixed", "slope", "accept"),
    [(0.6, 0.2, [0.72, 0.75, 0.8]), (1.0, 0.2, [0.8, 0.85]), (0.05, 0.15, [0.7]), (0.05, 0.06, [0.98])],
    ids=["island", "late", "cheap", "perfect"],
)
def test_a_draft_that_pays_is_used_at_once_and_nearly_to_its_bound(
    machine: Machine, fixed: float, slope: float, accept: list[float]
) -> None:
    # Where rounds wait for many times their own length, that is hardly to be told: some park what pays.
    cold, warm, bound = speeds(
        fixed, slope, accept, machine, middle=np.mean if machine is busy else np.median
    )
    assert cold > 1 + (0.2 if machine is busy else 0.6) * (bound - 1)
    assert warm > 1 + (0.2 if machine is busy else 0.7) * (bound - 1)


@MACHINES
def test_one_that_can_be_heard_beside_plain_rounds_is_tried_only_where_it_promises(machine: Machine) -> None:
    cold, warm, _ = speeds(0.6, 0.2, [0.01], machine, AUDITIONING)
    assert cold >= 0.985
    assert warm >= 0.985
    middle = np.mean if machine is busy else np.median
    cold, warm, bound = speeds(0.6, 0.2, [0.72, 0.75, 0.8], machine, AUDITIONING, middle)
    assert cold > 1 + (0.2 if machine is busy else 0.5) * (bound - 1)
    assert warm > 1 + (0.2 if machine is busy else 0.7) * (bound - 1)


def test_what_is_heard_is_forgotten_until_another_audition_finds_out_that_it_has_become_good() -> None:
    world = World(0.4, 0.2, [0.0], steady)
    world.learner = Learner(AUDITIONING)
    world.run(2000)
    assert 1 < world.auditions < 6
    assert not any(world.depths)
    world.accept = [0.9]
    world.run(1200)
    assert world.run(400) > 1.3


def test_where_answers_end_before_anybody_is_heard_all_is_learned_by_tries() -> None:
    learner, asked = Learner(AUDITIONING), list[int]()
    for sequence in range(PATIENCE + 1):
        for _ in range(2 * TOKENS):
            decision = learner.decide({"draft": 1}, 12)
            if decision.offers:
                asked.append(sequence)
            elif decision.audition:
                learner.audition_failed()
            learner.plain(PLAIN_S)
        learner.left()
    assert set(asked) == {PATIENCE}


def test_an_audition_waits_until_the_budget_pays_for_what_the_last_one_took() -> None:
    learner, heard = Learner(AUDITIONING), list[int]()
    for n in range(6000):
        if learner.decide({"draft": 1}, 12).audition:
            heard.append(n)
            learner.auditioned("draft", 1, [(1, 0)] * TOKENS, 6 * PLAIN_S)
        learner.plain(PLAIN_S)
    assert 1 < len(heard) < 6000 * EARNED


def test_rounds_of_rows_that_may_have_no_drafts_earn_nothing_for_those_that_may() -> None:
    learner = Learner(AUDITIONING)
    for _ in range(20):
        learner.plain(PLAIN_S)
    while learner.decide({"draft": 1}, 12).audition:
        learner.auditioned("draft", 1, [(1, 0)] * TOKENS, 6 * PLAIN_S)
    for _ in range(4000):
        learner.plain(PLAIN_S, able=False)
        learner.paused(1, able=False)
    assert not learner.decide({"draft": 1}, 12).audition
    for _ in range(4000):
        learner.plain(PLAIN_S)
    assert learner.decide({"draft": 1}, 12).audition


def test_other_depths_are_seldom_tried_once_it_is_known_what_they_cost() -> None:
    _, warm, bound = speeds(0.05, 0.06, [0.98], steady)
    assert warm > 0.95 * bound


def test_tries_out_of_plain_decoding_are_paid_as_what_they_take() -> None:
    """They take several times what is expected of them, and each depth's first time says little about it."""
    lost = list[float]()
    for seed in range(9):
        its, rng, own = Learner(KINDS), np.random.default_rng(seed), 0.0
        for _ in range(250):
            decision = its.decide({"draft": 1}, 12)
            if decision.offers:
                depth, took = decision.offers[0].depth, float(rng.uniform(3, 6))
                its.drafted("draft", 1, depth, [(depth, 0)], (1 + took) * PLAIN_S, decision.price)
                own += took - 1
            else:
                its.plain(PLAIN_S)
        lost.append(own)
    assert 0 < float(np.median(lost)) < 0.02 * 250


def test_a_first_try_that_takes_beyond_reason_is_paid_before_the_next() -> None:
    its = Learner(KINDS)
    for _ in range(20):
        its.plain(PLAIN_S)
    (offer,) = its.decide({"draft": 1}, 12).offers
    its.drafted("draft", 1, offer.depth, [(offer.depth, 0)], 8 * PLAIN_S, 0.1)
    for _ in range(100):
        assert not its.decide({"draft": 1}, 12).offers
        its.plain(PLAIN_S)


@MACHINES
def test_a_good_draft_that_is_too_dear_is_parked(machine: Machine) -> None:
    cold, warm, _ = speeds(0.4, 1.0, [0.9], machine)
    assert cold > 0.83
    assert warm > 0.98


@MACHINES
def test_a_middling_draft_is_never_much_slower_than_plain_decoding(machine: Machine) -> None:
    for accept in (0.2, 0.3, 0.4, 0.5, 0.6):
        cold, warm, _ = speeds(0.4, 0.2, [accept], machine)
        assert cold > (0.9 if machine is busy else 0.95)
        assert warm > 0.97


def test_a_draft_that_only_pays_deep_is_found() -> None:
    """One draft in a round is slower than none, as leaving the pipeline costs a whole plain round."""
    assert 1.9 / 2.1 < 1
    cold, _, bound = speeds(1.0, 0.1, [0.9], steady)
    assert cold > 1 + 0.6 * (bound - 1)


def test_a_draft_that_becomes_good_is_found_out() -> None:
    world = World(0.4, 0.2, [0.0], steady)
    world.run(1000)
    world.accept = [0.9]
    world.run(1200)
    assert world.run(400) > 1.3


def test_a_draft_that_becomes_bad_is_parked() -> None:
    world = World(0.4, 0.2, [0.9], steady)
    world.run(500)
    world.accept = [0.0]
    world.run(100)
    assert np.mean(world.depths[-40:]) < 1


@pytest.mark.parametrize("accept", [0.0, 0.9])
def test_with_knowledge_the_first_rounds_are_the_right_ones(accept: float) -> None:
    learned = World(0.6, 0.2, [accept], steady)
    learned.run(1500)
    world = World(0.6, 0.2, [accept], steady, seed=5)
    world.learner = Learner(KINDS, {"draft": learned.learner.lesson("draft")})
    world.run(30)
    assert (np.mean(world.depths[:6]) > 3) == (accept > 0.5)


def test_knowledge_of_a_machine_where_drafts_were_cheap_does_not_mislead() -> None:
    learned = World(0.05, 0.05, [0.6], steady)
    learned.run(1000)
    world = World(0.4, 0.9, [0.6], steady)
    world.learner = Learner(KINDS, {"draft": learned.learner.lesson("draft")})
    world.run(600)
    assert world.run(600) > 0.97


def test_a_drafter_that_never_has_anything_is_asked_rarely() -> None:
    """Asking keeps the engine from working ahead, so it must stop although no round ever cost anything."""
    learner, asked = Learner(KINDS), 0
    for _ in range(2000):
        if learner.decide({"draft": 1}, 12).offers:
            asked += 1
            learner.saw("draft", 1, False)
        learner.plain(PLAIN_S)
    assert asked < 80


def test_a_long_prompt_is_read_once_to_learn_and_then_not_before_that_is_earned() -> None:
    learner, reads, behind = Learner(KINDS), 0, list[str]()
    for n in range(4000):
        if n % 100 == 0:
            behind, _ = ["draft"], learner.left()  # another sequence, another long prompt
        decision = learner.decide({"draft": 1}, 12, behind)
        if not decision.offers:
            learner.plain(PLAIN_S)
        elif behind:
            reads, behind = reads + 1, []
            learner.plain(None)
            learner.read("draft", 5 * PLAIN_S, judged=False)
        else:
            depth = decision.offers[0].depth
            learner.drafted("draft", 1, depth, [(depth, 0)], 2 * PLAIN_S, decision.price)
    assert 1 < reads < 6


def test_whoever_has_begun_to_read_a_long_prompt_goes_on_until_it_is_judged() -> None:
    learner, chunks = Learner(KINDS), 0
    for _ in range(400):
        decision = learner.decide({"draft": 1}, 12, ["draft"] if chunks < 9 else [])
        if not decision.offers:
            learner.plain(PLAIN_S)
        elif chunks < 9:
            chunks += 1
            learner.plain(None)
            learner.read("draft", 9 * PLAIN_S, judged=False)
        else:
            depth = decision.offers[0].depth
            learner.drafted("draft", 1, depth, [(depth, depth)], 1.5 * PLAIN_S, decision.price)
    assert learner.best("draft").gain > 0.3


def test_questions_change_nothing() -> None:
    one, other = World(0.4, 0.2, [0.7], wandering), World(0.4, 0.2, [0.7], wandering)
    ask = other.learner.decide

    def often(grades: dict[str, int], most: int, behind: Sequence[str] = ()) -> object:
        for _ in range(3):
            ask(grades, most)
        return ask(grades, most)

    other.learner.decide = often  # type: ignore[method-assign]
    assert one.run(400) == other.run(400)
    assert one.depths == other.depths


def test_a_row_that_can_use_few_drafts_gets_few() -> None:
    world = World(0.05, 0.06, [0.98], steady)
    world.run(300)
    assert {offer.depth for offer in world.learner.decide({"draft": 1}, 2).offers} <= {1, 2}


def test_rows_of_unknown_names_in_what_was_learned_are_left_out() -> None:
    learned = World(0.6, 0.2, [0.9], steady)
    learned.run(200)
    assert Learner(KINDS, {"another": learned.learner.lesson("draft")}).lesson("draft").accepted == {}


def test_what_grammars_force_is_asked_for_at_once() -> None:
    """Nothing has to be learned about drafts that come true."""
    learner = Learner({"grammar": DrafterTraits(token_cost=0.0, limit=15, certain=True)})
    for _ in range(4):
        learner.plain(0.01)
    long, none = learner.decide({"grammar": 4}, 15), learner.decide({}, 15)
    assert [(offer.name, offer.depth >= 8) for offer in long.offers] == [("grammar", True)]
    assert none.offers == ()


def test_a_good_draft_that_met_a_crowded_machine_is_used_again_once_that_is_over() -> None:
    assert min(drafted_shares(0.75, AUDITIONING)) > 0.8


def test_a_bad_draft_that_met_a_crowded_machine_stays_parked() -> None:
    for kinds in (KINDS, AUDITIONING):
        assert np.mean(drafted_shares(0.02, kinds)) < 0.02
