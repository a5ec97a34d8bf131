"""Who is asked at a step, and what is learned from it, with made-up drafters and a made-up clock."""

from collections.abc import Sequence

import mlx.core as mx

from runtime.engine.clock import Moment
from runtime.engine.speculation import Round, Speculation
from runtime.sampling.params import SamplingParams
from runtime.sampling.sampler import Sampler
from runtime.speculate.drafter import Proposal, Rows
from tests.support.drafting import Idle

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

    def grade(self, ids: Sequence[Sequence[int]]) -> int:
        return max({7: 2, 5: 1}.get(row[-1], 0) for row in ids)


class Loop:
    """Steps as the engine takes them. keeps: drafter -> the share of rounds in which all drafts are kept."""

    def __init__(self, speculation: Speculation, keeps: dict[str, bool], slope: float = 0.1) -> None:
        self.speculation, self.keeps, self.slope = speculation, keeps, slope
        self.now_s = 0.0
        self.waits = 0
        self.rounds: list[Round | None] = []

    def run(self, steps: int, *rows: list[int], limits: Sequence[int] | None = None) -> "Loop":
        limits = [100] * len(rows) if limits is None else limits
        for _ in range(steps):
            self._step(list(rows), limits)
        return self

    def _step(self, rows: list[list[int]], limits: Sequence[int]) -> None:
        self.speculation.end(Moment(self.now_s))
        proposed = None
        if self.speculation.wanted(rows, limits, flying=False):
            self.waits += 1
            sampler = Sampler([SamplingParams()] * len(rows))
            proposed = self.speculation.propose(Rows(rows, sampler), limits)
        self.speculation.begin(Moment(self.now_s), proposed, len(rows), shared=False)
        if proposed is not None:
            kept = self.keeps[proposed.drafter]
            self.speculation.judge([(count, count * kept) for count in proposed.proposal.counts])
        self.now_s += PLAIN_S + (self.slope * proposed.depth if proposed else 0.0)
        self.rounds.append(proposed)

    def drafters(self, last: int) -> list[str | None]:
        return [proposed and proposed.drafter for proposed in self.rounds[-last:]]


def test_a_parked_drafter_is_asked_again_now_and_then() -> None:
    speculation = Speculation({"made": Made()})
    loop = Loop(speculation, {"made": False}, slope=1.0).run(600, [1, 2])
    assert 2 < sum(name is not None for name in loop.drafters(600)) < 20
    loop.keeps["made"], loop.slope = True, 0.1
    assert loop.run(1000, [1, 2]).drafters(200).count("made") > 150


def test_of_two_that_have_something_the_better_one_is_asked() -> None:
    speculation = Speculation({"bad": Made(), "good": Made()})
    loop = Loop(speculation, {"bad": False, "good": True}).run(400, [1, 2])
    assert loop.drafters(200).count("good") > 180


def test_one_that_has_become_the_better_one_is_found_out() -> None:
    speculation = Speculation({"a": Made(), "b": Made()})
    loop = Loop(speculation, {"a": True, "b": False}).run(300, [1, 2])
    loop.keeps = {"a": False, "b": True}
    assert loop.run(300, [1, 2]).drafters(100).count("b") > 80


def test_a_drafter_with_nothing_to_say_is_not_waited_for() -> None:
    speculation = Speculation({"knowing": Knowing()})
    loop = Loop(speculation, {"knowing": True}).run(100, [1, 2, 3])
    assert loop.waits == 0


def test_free_drafts_take_over_where_there_are_any_and_give_way_where_not() -> None:
    speculation = Speculation({"draft": Made(), "knowing": Knowing()})
    loop = Loop(speculation, {"draft": False, "knowing": True}).run(100, [1, 2, 3])
    assert loop.run(200, [1, 7]).drafters(100).count("knowing") > 85
    assert set(loop.run(50, [1, 2]).drafters(50)) <= {"draft", None}


def test_grades_are_learned_apart() -> None:
    speculation = Speculation({"knowing": Knowing()})
    loop = Loop(speculation, {"knowing": True}).run(200, [7])
    loop.keeps["knowing"] = False
    loop.slope = 0.6
    assert loop.run(100, [5]).drafters(30).count("knowing") <= 2
    loop.keeps["knowing"] = True
    assert loop.run(20, [7]).drafters(20).count("knowing") >= 14  # it looks at plain decoding now and then


def test_one_that_says_no_after_all_is_asked_ever_more_rarely() -> None:
    silent = Silent()
    Loop(Speculation({"silent": silent}), {}).run(2000, [1, 2])
    assert silent.asked < 60


def test_a_row_without_a_guess_does_not_keep_the_others_from_drafting() -> None:
    speculation = Speculation({"made": Made(knows=3)})
    loop = Loop(speculation, {"made": True}).run(40, [1, 2], [1, 2, 3])
    counts = [proposed.proposal.counts for proposed in loop.rounds if proposed]
    assert len(counts) > 20
    assert all(first == 0 and second > 0 for first, second in counts)


def test_a_row_at_its_limit_does_not_keep_the_others_from_drafting() -> None:
    speculation = Speculation({"made": Made()})
    loop = Loop(speculation, {"made": True}).run(60, [1, 2], [3, 4], limits=[0, 3])
    counts = [proposed.proposal.counts for proposed in loop.rounds if proposed]
    assert counts[-1] == (0, 3)


def test_where_no_row_may_have_drafts_nobody_is_waited_for() -> None:
    loop = Loop(Speculation({"made": Made()}), {"made": True}).run(50, [1], [2], limits=[0, 0])
    assert loop.waits == 0


def test_a_guess_about_a_token_in_flight_is_judged_when_it_lands() -> None:
    speculation = Speculation({"knowing": Knowing()})
    for _ in range(40):
        if speculation.wanted([[1, 7]], [9], flying=True):
            assert speculation.propose(Rows([[1, 7, 3]], Sampler([SamplingParams()])), [9]) is None
        speculation.begin(Moment(0.0), None, 1, shared=False)
        speculation.end(Moment(PLAIN_S))
    accepted = speculation.learned()["drafters"][0]["grades"][0]["accepted"]
    assert accepted[0][0] == 0.0


def test_what_was_learned_serves_from_the_first_step() -> None:
    first = Loop(Speculation({"made": Made()}), {"made": True}).run(300, [1, 2])
    again = Loop(Speculation({"made": Made()}, first.speculation.learned()), {"made": True}).run(1, [1, 2])
    assert again.rounds[0] is not None
    assert again.rounds[0].depth >= 3


def test_what_was_learned_of_other_drafters_is_kept() -> None:
    learned = Loop(Speculation({"made": Made()}), {"made": True}).run(50, [1]).speculation.learned()
    assert Speculation({"other": Made()}, learned).learned() == learned
