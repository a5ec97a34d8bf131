"""Who drafts and how far, in simulated runs: what rounds cost and what is kept is given, the speed is
watched.

The machines are as machines are: steady, of wandering speed, of speeds that change at a stroke, and busy,
where a round may be kept waiting for many times its own length.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from runtime.speculate.audition import TOKENS, runs
from runtime.speculate.costs import DrafterTraits
from runtime.speculate.depth import EARNED
from runtime.speculate.learner import PATIENCE, Learner

PLAIN_S = 0.0035
KINDS = {"draft": DrafterTraits(token_cost=0.14, limit=12)}
AUDITIONING = {"draft": DrafterTraits(token_cost=0.14, limit=12, auditions=True)}
AUDITION = 1.5  # plain rounds that one takes
Machine = Callable[[np.random.Generator], Callable[[float], float]]


def steady(rng: np.random.Generator) -> Callable[[float], float]:
    return lambda seconds: seconds * np.exp(rng.normal(0, 0.04)) * (3 if rng.random() < 0.01 else 1)


def wandering(rng: np.random.Generator) -> Callable[[float], float]:
    at = [0.0]

    def take(seconds: float) -> float:
        at[0] = 0.98 * at[0] + rng.normal(0, 0.08)
        return seconds * np.exp(at[0] + rng.normal(0, 0.05))

    return take


def stepping(rng: np.random.Generator) -> Callable[[float], float]:
    at = [0.0]

    def take(seconds: float) -> float:
        if rng.random() < 0.005:
            at[0] = float(rng.choice([0, 0.7, 1.4]))
        return seconds * np.exp(at[0] + rng.normal(0, 0.06))

    return take


def busy(rng: np.random.Generator) -> Callable[[float], float]:
    def take(seconds: float) -> float:
        stalls = rng.poisson(seconds / 0.012)
        return seconds * np.exp(rng.normal(0, 0.15)) + sum(rng.exponential(0.02) for _ in range(stalls))

    return take


class Crowded:
    """A machine that other programs crowd for its first `rounds` rounds, in bursts. What delays a plain round
    shortens the next, which was dispatched meanwhile; nothing makes up for the delay of a drafted one.
    """

    def __init__(self, seed: int, rounds: int) -> None:
        self._rng, self._rounds = np.random.default_rng(seed), rounds
        self._burst, self._much, self._late = 0, 0.0, 0.0

    def take(self, cost: float, *, drafted: bool) -> float:
        delay = self._delay()
        made_up, self._late = (0.0, 0.0) if drafted else (min(self._late, 0.8 * cost), delay)
        return cost * float(np.exp(self._rng.normal(0, 0.1))) + delay - made_up

    def _delay(self) -> float:
        rng, self._rounds, self._burst = self._rng, self._rounds - 1, self._burst - 1
        level = 6.0 if self._rounds >= 0 else 0.3
        if self._burst < 0 and rng.random() < 0.02:
            self._burst, self._much = int(rng.integers(3, 30)), float(rng.choice([1.0, 2.0, 4.0]))
        mean = 0.0012 * level * (self._much if self._burst > 0 else 0.4)
        stall = rng.pareto(1.5) * 0.003 if rng.random() < 0.03 * level else 0.0
        return float(min(rng.exponential(mean) + stall, 0.05))


class World:
    """A draft whose k-th place is kept with chance accept[k], and rounds of 1 + fixed + slope · depth plain
    ones.
    """

    def __init__(
        self, fixed: float, slope: float, accept: Sequence[float], machine: Machine, seed: int = 0
    ) -> None:
        self.fixed, self.slope, self.accept = fixed, slope, accept
        self.learner = Learner(KINDS)
        self.depths: list[int] = []
        self.auditions = 0
        self._rng = np.random.default_rng(seed)
        self._take = machine(np.random.default_rng(seed + 1))

    def run(self, tokens: int) -> float:
        """How many times as fast as plain decoding so many tokens are made, stalls left out."""
        spent = made = 0.0
        while made < tokens:
            decision = self.learner.decide({"draft": 1}, 12)
            depth = decision.offers[0].depth if decision.offers else 0
            cost = PLAIN_S * (1 + (self.fixed + self.slope * depth if depth else 0))
            if decision.audition:
                spent += self._audition(len(self.depths))
            kept = self._kept(depth)
            # As the engine sees it: plain rounds are dispatched ahead.
            drafted_before = bool(self.depths and self.depths[-1])
            shift = PLAIN_S * (bool(depth) - drafted_before)
            seconds = max(self._take(cost) + shift, 1e-4)
            if depth:
                self.learner.drafted("draft", 1, depth, [(depth, kept)], seconds, decision.price)
            else:
                self.learner.plain(seconds)
            spent, made = spent + cost, made + 1 + kept
            self.depths.append(depth)
        return PLAIN_S * made / spent

    def _audition(self, written: int) -> float:
        if written < TOKENS:
            self.learner.audition_failed()
            return 0.0
        self.auditions += 1
        right = [bool(self._rng.random() < self._accept(0)) for _ in range(TOKENS)]
        self.learner.auditioned("draft", 1, runs(right), self._take(AUDITION * PLAIN_S))
        return AUDITION * PLAIN_S

    @property
    def bound(self) -> float:
        """What the best depth reaches."""
        ladder = range(1, 13)
        chances = [np.cumprod([1.0, *(self._accept(k) for k in range(n))]).sum() for n in ladder]
        return max(
            [1.0, *(c / (1 + self.fixed + self.slope * n) for c, n in zip(chances, ladder, strict=True))]
        )

    def _kept(self, depth: int) -> int:
        kept = 0
        while kept < depth and self._rng.random() < self._accept(kept):
            kept += 1
        return kept

    def _accept(self, place: int) -> float:
        return self.accept[min(place, len(self.accept) - 1)]


def speeds(
    fixed: float,
    slope: float,
    accept: Sequence[float],
    machine: Machine,
    kinds: Mapping[str, DrafterTraits] = KINDS,
    middle: Callable[[list[float]], Any] = np.median,
) -> tuple[float, float, float]:
    """The middle over seeds: of the first 360 tokens, of the next 800; and the bound."""
    worlds = [World(fixed, slope, accept, machine, seed) for seed in range(9)]
    for world in worlds:
        world.learner = Learner(kinds)
    cold = [world.run(360) for world in worlds]
    return float(middle(cold)), float(middle([w.run(800) for w in worlds])), worlds[0].bound


def drafted_shares(accept: float, kinds: Mapping[str, DrafterTraits]) -> list[float]:
    """Of each of 12 seeds the share of tokens, past those of the crowded time, that rounds with drafts made.

    Texts have 68 tokens; each is written with drafts once and twice without, as in the benchmark.
    """
    return [_drafted_share(accept, kinds, seed) for seed in range(12)]


def _drafted_share(accept: float, kinds: Mapping[str, DrafterTraits], seed: int) -> float:
    rng, machine, learner = np.random.default_rng(seed), Crowded(seed + 10**6, 350), Learner(kinds)
    made, drafted = 0, 0
    for text in range(10):
        for _ in range(2 * 68):
            learner.plain(machine.take(PLAIN_S, drafted=False), able=False)
        written, before = 0, True
        while written < 68:
            decision = learner.decide({"draft": 1}, 12)
            if decision.audition and written < TOKENS:
                learner.audition_failed()
            elif decision.audition:
                right = [bool(rng.random() < accept) for _ in range(TOKENS)]
                beside = machine.take(AUDITION * PLAIN_S, drafted=False)
                learner.auditioned("draft", 1, runs(right), beside)
            depth = decision.offers[0].depth if decision.offers else 0
            kept = int(np.cumprod(rng.random(depth) < accept).sum())
            seconds = machine.take(PLAIN_S * (1 + bool(depth) * 0.35 + 0.2 * depth), drafted=depth > 0)
            shifted = max(seconds + PLAIN_S * (bool(depth) - before) * (written > 0), 1e-4)
            if depth:
                told = shifted if written else None
                learner.drafted("draft", 1, depth, [(depth, kept)], told, decision.price)
            else:
                learner.plain(shifted if written else None)
            written, before = written + 1 + kept, depth > 0
            if text >= 4:
                made, drafted = made + 1 + kept, drafted + (1 + kept) * before
        learner.left()
    return drafted / made


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
