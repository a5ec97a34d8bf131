"""The depth controller on simulated rounds: costs and acceptances are given, its choices are watched."""

from collections.abc import Callable

import numpy as np
import pytest

from runtime.speculate.depth import FIRST_PAUSE, FIRST_PROBE, LAST_PROBE, DepthController

Cost = Callable[[int], float]


class World:
    """Rounds where depth n costs cost(n) seconds and a draft is kept with chance `accept`."""

    def __init__(self, cost: Cost, accept: float, *, limit: int = 8, seed: int = 0) -> None:
        self.controller = DepthController(limit)
        self.cost, self.accept = cost, accept
        self.seconds = self.tokens = 0.0
        self.depths: list[int] = []
        self._rng = np.random.default_rng(seed)

    def run(self, rounds: int, stalled: Callable[[int], float] = lambda _: 1.0) -> "World":
        """stalled(n) multiplies what the n-th round takes."""
        for _ in range(rounds):
            depth = self.controller.choose()
            seconds = self.cost(depth) * stalled(len(self.depths))
            kept = 0
            while kept < depth and self._rng.random() < self.accept:
                kept += 1
            self.controller.record(depth, [(depth, kept)] if depth else [], seconds)
            self.seconds += seconds
            self.tokens += 1 + kept
            self.depths.append(depth)
        return self

    @property
    def usual(self) -> int:
        """The depth of most of the last 100 rounds."""
        return int(np.bincount(self.depths[-100:]).argmax())


def flat(depth: int) -> float:
    return 1.0 + 0.02 * depth


def steep(depth: int) -> float:
    return 1.0 + 0.5 * depth


def test_deep_when_the_forward_pass_is_flat() -> None:
    assert World(flat, 0.9).run(600).usual >= 6


def test_shallow_when_it_is_steep() -> None:
    assert World(steep, 0.8).run(600).usual in (1, 2)


def test_zero_when_the_draft_is_not_worth_it() -> None:
    assert World(steep, 0.2).run(600).usual == 0


def test_the_first_rounds_measure_plain_decoding_and_then_one_draft() -> None:
    assert World(flat, 0.9).run(6).depths == [0, 0, 0, 0, 1, 1]


def test_depth_at_most_doubles_what_was_tried() -> None:
    depths = World(flat, 1.0).run(60).depths
    deepest = 0
    for depth in depths:
        assert depth <= max(2 * deepest, 1)
        deepest = max(deepest, depth)
    assert deepest == 8


def test_a_useless_draft_costs_less_than_three_percent() -> None:
    world = World(steep, 0.0).run(2000)
    assert world.seconds / world.tokens < 1.03
    assert World(flat, 0.0).run(2000).seconds < 1.01 * 2000


def test_a_perfect_draft_reaches_the_bound() -> None:
    world = World(flat, 1.0).run(2000)
    bound = 9 / flat(8)
    assert world.tokens / world.seconds > 0.95 * bound


def test_a_perfect_draft_that_is_too_dear_is_parked_too() -> None:
    world = World(lambda depth: 1.0 + 1.1 * depth, 1.0).run(2000)
    assert world.seconds / world.tokens < 1.01


@pytest.mark.parametrize(("accept", "most"), [(0.0, 1.08), (1.0, 0.7)])
def test_a_first_short_answer_learns_without_losing_much(accept: float, most: float) -> None:
    """60 tokens, nothing known, and a draft that makes a round 40 % dearer."""
    world = World(lambda depth: 1.0 + 0.3 * depth + 0.1 * (depth > 0), accept)
    while world.tokens < 60:
        world.run(1)
    assert world.seconds < most * world.tokens


def test_with_knowledge_it_drafts_from_the_first_round() -> None:
    learned = World(flat, 0.9).run(600).controller
    world = remembering(learned)
    assert world.run(20).depths[0] >= 6
    assert min(world.depths) >= 4


def test_with_knowledge_a_useless_draft_is_hardly_asked() -> None:
    world = remembering(World(steep, 0.0).run(600).controller, cost=steep, accept=0.0)
    assert sum(world.run(120).depths) <= 2


def test_knowledge_from_a_faster_machine_does_not_mislead() -> None:
    """Everything takes seven times as long now, and drafts have become dear beside."""
    learned = World(flat, 0.6).run(600).controller
    world = remembering(learned, cost=lambda depth: 7.0 * (1.0 + 0.9 * depth), accept=0.6)
    assert world.run(400).usual == 0


def remembering(learned: DepthController, *, cost: Cost = flat, accept: float = 0.9) -> World:
    """A new run that remembers what `learned` knows."""
    world = World(cost, accept, seed=1)
    world.controller.costs.remember(learned.costs.learned())
    world.controller.remember(learned.learned())
    return world


@pytest.mark.parametrize("accept", [0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("slope", [0.05, 0.2, 0.6])
def test_close_to_the_best_fixed_depth(accept: float, slope: float) -> None:
    def cost(depth: int) -> float:
        return 1.0 + slope * depth

    rates = [sum(accept**k for k in range(n + 1)) / cost(n) for n in range(9)]
    worlds = [World(cost, accept, seed=seed).run(2000) for seed in range(5)]
    reached = np.mean([world.tokens / world.seconds for world in worlds])
    assert reached > 0.92 * max(rates)
    assert reached > 0.99


@pytest.mark.parametrize("place", [0, 1, 4, 5, 6], ids=str)
def test_a_stall_while_the_first_costs_are_taken_changes_nothing(place: int) -> None:
    world = World(steep, 0.8).run(600, lambda n: 30.0 if n == place else 1.0)
    assert world.usual in (1, 2)


def test_one_long_round_moves_a_cost_by_a_bounded_share() -> None:
    world = World(steep, 0.2).run(200)
    promise = world.controller.promise()
    world.run(2, lambda _: 100.0)
    after = world.controller.promise()
    assert promise is not None
    assert after is not None
    assert after > promise / 1.25


def test_parked_it_stays_through_a_host_stall() -> None:
    world = World(steep, 0.1).run(200)
    world.run(1, lambda _: 50.0).run(60)
    assert world.usual == 0


def test_probes_back_off() -> None:
    world = World(steep, 0.0).run(4 * LAST_PROBE)
    asked = [n for n, depth in enumerate(world.depths) if depth]
    gaps = [int(gap) for gap in np.diff(asked) if gap > 1]
    assert gaps[0] <= 2 * FIRST_PROBE
    assert gaps[1:] == sorted(gaps[1:])
    assert gaps[-1] >= LAST_PROBE - 1


def test_a_draft_that_becomes_good_is_believed_soon_after_the_next_probe() -> None:
    world = World(steep, 0.0).run(2000)
    assert world.usual == 0
    world.accept = 1.0
    assert world.run(LAST_PROBE + 40).usual >= 1


def test_a_draft_that_becomes_bad_is_parked() -> None:
    world = World(steep, 0.9).run(500)
    assert world.usual >= 1
    world.accept = 0.0
    assert world.run(150).usual == 0


def test_plain_decoding_is_measured_again_now_and_then() -> None:
    """A cost of plain decoding taken in a bad moment must not keep a draft alive that does not pay."""
    world = World(steep, 0.4).run(12, lambda n: 4.0 if n < 4 else 1.0)
    assert world.run(FIRST_PAUSE // 2).depths[-1] >= 1
    assert world.run(4 * FIRST_PAUSE).usual == 0


def test_a_machine_that_was_cold_at_first_is_judged_when_it_is_warm() -> None:
    """Drafts looked dear while everything was; they are seen to be cheap."""
    world = World(lambda depth: 1.0 + 0.1 * depth, 0.9).run(1500, lambda n: 5.0 if 4 <= n < 9 else 1.0)
    assert world.usual >= 4


def test_a_perfect_draft_that_looked_dear_at_first_is_found_to_be_cheap() -> None:
    """Its probes are kept, so there is nothing to learn from them but the cost."""
    world, drafted = World(flat, 1.0), 0

    def cost(depth: int) -> float:
        nonlocal drafted
        drafted += depth > 0
        return 30.0 if depth and drafted < 9 else flat(depth)

    world.cost = cost
    assert world.run(800).usual == 8


def test_rounds_that_shared_their_time_teach_no_cost() -> None:
    controller = DepthController(4)
    for _ in range(20):
        controller.record(0, [], None)
    assert controller.next_depth() == 0
    assert controller.promise() is None


def test_a_draft_is_judged_only_behind_accepted_ones() -> None:
    controller = DepthController(4)
    controller.record(4, [(4, 1), (2, 2)], None)
    assert controller.acceptance == [1.0, 0.5]


@pytest.mark.parametrize("accept", [0.0, 0.3])
def test_a_machine_of_changing_speed_does_not_revive_a_draft_that_does_not_pay(accept: float) -> None:
    def speed(n: int) -> float:
        return 4.0 if n // 150 % 2 else 1.0

    world = World(steep, accept).run(3000, speed)
    assert world.seconds / sum(map(speed, range(3000))) < 1.03 * world.tokens / 3000


def test_a_machine_of_changing_speed_does_not_park_a_draft_that_pays() -> None:
    def speed(n: int) -> float:
        return 4.0 if n // 150 % 2 else 1.0

    world = World(flat, 0.9).run(3000, speed)
    assert np.mean(world.depths[300:]) > 5


def test_a_drafter_that_never_has_anything_is_asked_rarely() -> None:
    """Asking keeps the engine from working ahead, so it must stop although no round ever cost anything."""
    controller, asked = DepthController(8), 0
    for _ in range(2000):
        depth = controller.choose()
        if depth:
            asked += 1
            controller.record(depth, [(1, 0)], None)
        controller.record(0, [], 1.0)
    assert asked < 50
