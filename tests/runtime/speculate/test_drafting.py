"""Who is asked at a step, and what is learned from it, with made-up drafters and a made-up clock."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import pytest

from runtime.cache.build import build_memory
from runtime.cache.memory import LayerMemory
from runtime.errors import CacheFull, NotSupported
from runtime.sampling.params import SamplingParams
from runtime.sampling.sampler import Sampler
from runtime.speculate.clock import Moment
from runtime.speculate.drafter import Drafter, Proposal, Rows
from runtime.speculate.drafting import Drafting
from runtime.speculate.round import Guess, Outlook, Round
from runtime.step import Step
from tests.support.drafting import Idle
from tests.support.oracle import RECURRENT, run

PLAIN_S = 1.0


class Made(Idle):
    """Always proposes; rows whose ids are shorter than `knows` get nothing."""

    limit = 4

    def __init__(self, knows: int = 0) -> None:
        self.knows, self.asked = knows, 0

    def propose(self, rows: Rows, depth: int) -> Proposal | None:
        self.asked += 1
        counts = tuple(depth if len(ids) >= self.knows else 0 for ids in rows.ids)
        return Proposal(mx.zeros((len(rows), depth), mx.int32), counts)


class Silent(Made):
    """Never has anything."""

    def propose(self, rows: Rows, depth: int) -> Proposal | None:
        self.asked += 1
        return None


class Knowing(Made):
    """Says beforehand whether it has something: rows that end in 7 are of grade 2, in 5 of grade 1."""

    def grade(self, ids: Sequence[Sequence[int]], forced: Sequence[int] = ()) -> int:
        return max({7: 2, 5: 1}.get(row[-1], 0) for row in ids)


def made(drafters: dict[str, Drafter], learned: object = None) -> Drafting:
    """Of a target that remembers nothing."""
    return Drafting(drafters, build_memory([]), learned)


class Rehearsing(Made):
    times = 0

    def rehearse(self) -> None:
        Rehearsing.times += 1


class Loop:
    """Steps as the engine takes them. keeps: drafter -> the share of rounds in which all drafts are kept."""

    def __init__(
        self, drafting: Drafting, keeps: dict[str, bool], slope: float = 0.1, plain_s: float = PLAIN_S
    ) -> None:
        self.drafting, self.keeps, self.slope, self.plain_s = drafting, keeps, slope, plain_s
        self.now_s = self.asking_s = 0.0
        self.waits = self.paused = 0
        self.rounds: list[Guess | None] = []

    def run(self, steps: int, *rows: list[int], limits: Sequence[int] | None = None) -> "Loop":
        limits = [100] * len(rows) if limits is None else limits
        for _ in range(steps):
            self._step(list(rows), limits)
        return self

    def _step(self, rows: list[list[int]], limits: Sequence[int]) -> None:
        if self.plain_s != PLAIN_S and self.drafting.pauses(len(rows), shared=False):
            self.paused += 1
            self.now_s += self.plain_s
            self.rounds.append(None)
            return
        began = Moment(self.now_s)
        self.drafting.done(began)
        outlook = self.drafting.outlook(rows, limits, in_flight=False)
        with self.drafting.round(began, outlook, shared=False) as here:
            guess = None
            if outlook.asks:
                self.waits += 1
                guess = here.propose(Rows(rows, Sampler([SamplingParams()] * len(rows))), limits)
            drafts = guess.proposal.counts if guess else (0,) * len(rows)
            step = Step(tuple(len(ids) - 1 for ids in rows), tuple(1 + count for count in drafts))
            kept = [1 + count * self.keeps[guess.drafter] if guess else 1 for count in drafts]
            here.keep(step, mx.zeros((len(rows), step.width, 1)), kept)
            self.drafting.learn()
        self.now_s += self.plain_s * (1 + (self.slope * guess.depth if guess else 0.0) / PLAIN_S)
        self.now_s += self.asking_s
        self.rounds.append(guess)

    def drafters(self, last: int) -> list[str | None]:
        return [guess and guess.drafter for guess in self.rounds[-last:]]


def test_a_parked_drafter_is_asked_again_now_and_then() -> None:
    its = made({"made": Made()})
    loop = Loop(its, {"made": False}, slope=1.0).run(600, [1, 2])
    assert 2 < sum(name is not None for name in loop.drafters(600)) < 20
    loop.keeps["made"], loop.slope = True, 0.1
    assert loop.run(1000, [1, 2]).drafters(200).count("made") > 150


@pytest.mark.parametrize(("plain_s", "most"), [(1e-6, 800), (0.1, 0)])
def test_where_plain_rounds_are_short_nobody_is_asked_at_most_of_them(plain_s: float, most: int) -> None:
    """Asking takes some microseconds. What pays again is found out all the same."""
    its = made({"made": Made()})
    loop = Loop(its, {"made": False}, slope=1.0, plain_s=plain_s).run(1000, [1, 2])
    assert loop.paused >= most
    assert loop.paused or not most
    loop.keeps["made"], loop.slope = True, 0.1
    assert loop.run(3000, [1, 2]).drafters(200).count("made") > 150


def test_a_pause_ends_where_rows_come_or_go() -> None:
    its = made({"made": Made()})
    loop = Loop(its, {"made": False}, slope=1.0, plain_s=1e-6).run(200, [1, 2])
    while not its.pauses(1, shared=False):
        loop.run(1, [1, 2])
    assert its.pauses(1, shared=False)
    its.begin(0, [5, 6])
    assert not its.pauses(1, shared=False)
    while not its.pauses(1, shared=False):
        loop.run(1, [1, 2])
    assert not its.pauses(2, shared=False)
    assert not its.pauses(1, shared=False)


def test_a_plain_round_takes_what_it_takes_with_those_of_the_pause_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    its = made({"made": Made()})
    loop = Loop(its, {"made": False}, slope=1.0, plain_s=1e-6)
    monkeypatch.setattr("runtime.speculate.drafting.now", lambda: Moment(loop.now_s))
    loop.asking_s = 1e-6
    loop.run(2000, [1, 2])
    assert loop.paused > 1600
    assert its._learners.of(1).plain_s < 1.2e-6


def test_what_is_thought_about_a_round_counts_as_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, done = [0.0], Round.done

    def think(its: Round, seconds: float | None) -> None:
        now_s[0] += 5e-5
        done(its, seconds)

    monkeypatch.setattr("runtime.speculate.drafting.time.perf_counter", lambda: now_s[0])
    loop = Loop(made({"made": Made()}), {"made": False}, slope=1.0, plain_s=3e-4)
    monkeypatch.setattr("runtime.speculate.drafting.now", lambda: Moment(loop.now_s))
    assert loop.run(200, [1, 2]).paused == 0
    monkeypatch.setattr(Round, "done", think)
    assert loop.run(400, [1, 2]).paused > 300


def test_what_is_hardly_thought_about_a_round_behind_no_pause_makes_the_next_one_no_shorter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s, done, paused = [0.0], Round.done, [0]

    def think(its: Round, seconds: float | None) -> None:
        now_s[0] += 5e-5 if loop.paused > paused[0] else 1e-6
        paused[0] = loop.paused
        done(its, seconds)

    monkeypatch.setattr("runtime.speculate.drafting.time.perf_counter", lambda: now_s[0])
    loop = Loop(made({"made": Made()}), {"made": False}, slope=1.0, plain_s=1e-4)
    monkeypatch.setattr("runtime.speculate.drafting.now", lambda: Moment(loop.now_s))
    monkeypatch.setattr(Round, "done", think)
    loop.run(3000, [1, 2])
    loop.run(1, [1, 2], [3, 4])
    loop.run(2, [1, 2])
    before = loop.paused
    assert loop.run(200, [1, 2]).paused > before + 190


def test_behind_a_try_that_changed_nothing_it_pauses_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(made({"made": Made()}), {"made": False}, slope=1.0, plain_s=1e-6)
    monkeypatch.setattr("runtime.speculate.drafting.now", lambda: Moment(loop.now_s))
    loop.run(300, [1, 2])
    while loop.run(1, [1, 2]).drafters(1) == [None]:
        pass
    while loop.run(1, [1, 2]).drafters(1) != [None]:
        pass
    before = loop.run(4, [1, 2]).paused
    assert loop.run(8, [1, 2]).paused == before + 8


def test_of_two_that_have_something_the_better_one_is_asked() -> None:
    its = made({"bad": Made(), "good": Made()})
    loop = Loop(its, {"bad": False, "good": True}).run(400, [1, 2])
    assert loop.drafters(200).count("good") > 180


def test_one_that_has_become_the_better_one_is_found_out() -> None:
    its = made({"a": Made(), "b": Made()})
    loop = Loop(its, {"a": True, "b": False}).run(300, [1, 2])
    loop.keeps = {"a": False, "b": True}
    assert loop.run(300, [1, 2]).drafters(100).count("b") > 80


def test_a_drafter_with_nothing_to_say_is_not_waited_for() -> None:
    its = made({"knowing": Knowing()})
    loop = Loop(its, {"knowing": True}).run(100, [1, 2, 3])
    assert loop.waits == 0


def test_free_drafts_take_over_where_there_are_any_and_give_way_where_not() -> None:
    its = made({"draft": Made(), "knowing": Knowing()})
    loop = Loop(its, {"draft": False, "knowing": True}).run(100, [1, 2, 3])
    assert loop.run(200, [1, 7]).drafters(100).count("knowing") > 85
    assert set(loop.run(50, [1, 2]).drafters(50)) <= {"draft", None}


def test_grades_are_learned_apart() -> None:
    its = made({"knowing": Knowing()})
    loop = Loop(its, {"knowing": True}).run(200, [7])
    loop.keeps["knowing"] = False
    loop.slope = 0.6
    assert loop.run(100, [5]).drafters(30).count("knowing") <= 2
    loop.keeps["knowing"] = True
    assert loop.run(20, [7]).drafters(20).count("knowing") >= 14  # it looks at plain decoding now and then


def test_one_that_says_no_after_all_is_asked_ever_more_rarely() -> None:
    silent = Silent()
    Loop(made({"silent": silent}), {}).run(2000, [1, 2])
    assert silent.asked < 60


def test_a_row_without_a_guess_does_not_keep_the_others_from_drafting() -> None:
    its = made({"made": Made(knows=3)})
    loop = Loop(its, {"made": True}).run(40, [1, 2], [1, 2, 3])
    counts = [guess.proposal.counts for guess in loop.rounds if guess]
    assert len(counts) > 20
    assert all(first == 0 and second > 0 for first, second in counts)


def test_a_row_at_its_limit_does_not_keep_the_others_from_drafting() -> None:
    its = made({"made": Made()})
    loop = Loop(its, {"made": True}).run(60, [1, 2], [3, 4], limits=[0, 3])
    counts = [guess.proposal.counts for guess in loop.rounds if guess]
    assert counts[-1] == (0, 3)


def test_where_no_row_may_have_drafts_nobody_is_waited_for() -> None:
    loop = Loop(made({"made": Made()}), {"made": True}).run(50, [1], [2], limits=[0, 0])
    assert loop.waits == 0


def test_where_no_row_may_have_drafts_most_steps_are_no_rounds() -> None:
    loop = Loop(made({"made": Made()}), {"made": True}, plain_s=0.1).run(300, [1], limits=[0])
    assert loop.paused > 250


def test_steps_of_a_pause_count_for_the_rows_that_took_them() -> None:
    """Though it is other rows that are asked about next, and the pause did not end by itself."""
    its = made({"made": Made()})
    told = list[tuple[int, int]]()
    for size in (1, 2):
        learner = its._learners.of(size)
        learner.paused = lambda rounds, size=size, **_: told.append((size, rounds))  # type: ignore[method-assign]
    its._pause, its._pausing_rows = 9, 1
    assert its.pauses(1, shared=False)
    assert its.pauses(1, shared=False)
    its.done(Moment(1.0))
    its.outlook([[1, 7], [2, 7]], [0, 0], in_flight=False)
    its.done(None)
    assert told == [(1, 2)]


def test_drafters_prepare_once_while_the_device_computes() -> None:
    its = made({"made": Made(), "rehearsing": Rehearsing()})
    its.learn()
    assert Rehearsing.times == 0
    its.meanwhile()
    its.meanwhile()
    assert Rehearsing.times == 1


def test_a_guess_about_a_token_in_flight_is_judged_when_it_lands() -> None:
    its = made({"knowing": Knowing()})
    for _ in range(40):
        outlook = its.outlook([[1, 7]], [9], in_flight=True)
        with its.round(Moment(0.0), outlook, shared=False) as here:
            if outlook.asks:
                assert here.propose(Rows([[1, 7, 3]], Sampler([SamplingParams()])), [9]) is None
            here.keep(Step((2,), (1,)), mx.zeros((1, 1, 1)), [1])
        its.done(Moment(PLAIN_S))
    accepted = its.learned()["drafters"][0]["grades"][0]["accepted"]
    assert accepted[0][0] == 0.0


def test_what_was_learned_serves_from_the_first_step() -> None:
    first = Loop(made({"made": Made()}), {"made": True}).run(300, [1, 2])
    again = Loop(made({"made": Made()}, first.drafting.learned()), {"made": True}).run(1, [1, 2])
    assert again.rounds[0] is not None
    assert again.rounds[0].depth >= 3


def test_what_was_learned_of_other_drafters_is_kept() -> None:
    learned = Loop(made({"made": Made()}), {"made": True}).run(50, [1]).drafting.learned()
    assert made({"other": Made()}, learned).learned() == learned


class Remembering(Made):
    """Notes what it is told, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[object] = []

    def observe(self, step: Step, hidden: mx.array, kept: Sequence[int]) -> None:
        self.told.append(("observe", list(kept)))

    def settle(self, lengths: Sequence[int]) -> None:
        self.told.append(("settle", list(lengths)))


def learned_to_draft(drafter: Drafter, memory: LayerMemory | None = None) -> tuple[Drafting, Outlook]:
    """One that has learned that drafts pay, and what it says of two rows."""
    learned = Loop(made({"made": Made()}), {"made": True}).run(300, [1, 2], [3, 4]).drafting.learned()
    its = Drafting({"made": drafter}, build_memory([]) if memory is None else memory, learned)
    outlook = its.outlook([[1, 2], [1, 2, 3]], [9, 9], in_flight=False)
    assert outlook.asks
    return its, outlook


def rows() -> Rows:
    return Rows([[1, 2], [1, 2, 3]], Sampler([SamplingParams()] * 2))


def test_asking_changes_nothing() -> None:
    """However often it is asked, the answer stays, and so does what is learned."""
    its, first = learned_to_draft(Made())
    before = its.learned()
    for in_flight in (True, False) * 50:
        assert its.outlook([[1, 2], [1, 2, 3]], [9, 9], in_flight=in_flight) == first
    assert its.learned() == before


def test_a_kept_round_is_told_in_order() -> None:
    drafter = Remembering()
    its, outlook = learned_to_draft(drafter)
    with its.round(Moment(0.0), outlook, shared=False) as here:
        guess = here.propose(rows(), [9, 9])
        assert guess is not None
        step = Step((1, 2), tuple(1 + count for count in guess.proposal.counts))
        here.keep(step, mx.zeros((2, step.width, 1)), [2, 1])
    assert drafter.told == [("observe", [2, 1]), ("settle", [3, 3])]


def test_a_round_left_by_an_exception_leaves_nothing_of_its_guesses() -> None:
    """Drafters go back to what the target holds, memory has read nothing, and no draft was judged."""
    drafter, memory = Remembering(), build_memory([RECURRENT])
    its, outlook = learned_to_draft(drafter, memory)
    before = its.learned()
    here = its.round(Moment(0.0), outlook, shared=False)
    with pytest.raises(CacheFull), here:
        _fail(here)
    assert drafter.told == [("settle", [1, 2])]
    assert [cache.lengths for cache in memory.caches] == [(0,)]
    its.done(Moment(50.0))
    assert accepted_of(its.learned()) == accepted_of(before)


def test_memory_that_refuses_is_asked_before_anybody_is_told() -> None:
    """A fold keeps parts of short steps only."""
    drafter = Remembering()
    memory = build_memory([RECURRENT], rows=2, slack=1)
    its, outlook = learned_to_draft(drafter, memory)
    step = Step((0, 0), (3, 3))
    run(RECURRENT, memory[0], step, [[1, 2, 3]] * 2)
    here = its.round(Moment(0.0), outlook, shared=False)
    assert here.propose(rows(), [9, 9]) is not None
    with pytest.raises(NotSupported), here:
        here.keep(step, mx.zeros((2, 3, 1)), [2, 2])
    assert drafter.told == [("settle", [1, 2])]


def test_guesses_that_nobody_verifies_are_forgotten() -> None:
    drafter = Remembering()
    its, outlook = learned_to_draft(drafter)
    with its.round(Moment(0.0), outlook, shared=False) as here:
        assert here.propose(rows(), [9, 9]) is not None
    assert drafter.told == [("settle", [1, 2])]


def _fail(here: Round) -> None:
    assert here.propose(rows(), [9, 9]) is not None
    raise CacheFull(2, 1)


def accepted_of(learned: dict[str, Any]) -> list[Any]:
    return [[grade["accepted"] for grade in one["grades"]] for one in learned["drafters"]]
