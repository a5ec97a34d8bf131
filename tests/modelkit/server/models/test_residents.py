"""Who stays in memory and who comes: single decisions, and whole timelines of what a server may live through.

In a timeline what was decided is carried out at some later time, or never, as models take time to close.
"""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkit.server.models.residents import PATIENCE_S, Decision, Resident, State, decide

LIMIT = 100


def model(key: int, fixed: int, state: State = "ready", **fields: Any) -> Resident:
    return Resident(key, f"model{key}", state, fixed, **fields)


def kept(key: int, fixed: int, prefixes: int, **fields: Any) -> Resident:
    """One that is ready and keeps as much of earlier prompts as it likes."""
    return model(
        key,
        fixed,
        prefix_wish_bytes=prefixes,
        prefix_bytes=prefixes,
        prefix_asked_bytes=prefixes,
        **fields,
    )


def test_what_fits_is_loaded_at_once() -> None:
    assert decide([model(1, 60, "waiting", prefix_wish_bytes=20)], LIMIT, 0) == Decision(load=((1, 20),))
    assert decide([model(1, 60, "waiting", prefix_wish_bytes=70)], LIMIT, 0).load == ((1, 40),)


def test_earlier_prompts_are_kept_shorter_before_anybody_leaves() -> None:
    busy = kept(1, 40, 30, leases=2)
    idle = kept(2, 20, 10)
    asked = decide([busy, idle, model(3, 20, "waiting", prefix_wish_bytes=10)], LIMIT, 0)
    assert asked == Decision(keep=((1, 7), (2, 6)))
    busy, idle = (
        replace(one, prefix_bytes=size, prefix_asked_bytes=size) for one, size in ((busy, 7), (idle, 6))
    )
    assert decide([busy, idle, model(3, 20, "waiting", prefix_wish_bytes=10)], LIMIT, 0).load == ((3, 7),)


@pytest.mark.parametrize(
    ("idle", "needed", "leaving"),
    [
        ([model(1, 40, used_s=1), model(2, 40, used_s=2)], 50, (1,)),
        ([model(1, 40, used_s=3), model(2, 40, used_s=2)], 50, (2,)),
        ([model(1, 20, used_s=1), model(2, 40, used_s=1)], 50, (2,)),
        ([model(1, 40, used_s=1), model(2, 40, used_s=2)], 90, (1, 2)),
        # The first alone is not enough, the second is: the first can stay.
        ([model(1, 10, used_s=1), model(2, 60, used_s=2)], 95, (1, 2)),
        ([model(1, 10, used_s=1), model(2, 60, used_s=2)], 80, (2,)),
        ([model(1, 40, used_s=1, expires_s=math.inf), model(2, 40, used_s=2, expires_s=50)], 50, (2,)),
        ([model(1, 40, used_s=1, leases=1), model(2, 40, used_s=2)], 50, (2,)),
    ],
)
def test_who_leaves(idle: list[Resident], needed: int, leaving: tuple[int, ...]) -> None:
    asked = decide([*idle, model(9, needed, "waiting")], LIMIT, 10)
    assert sorted(asked.leave) == sorted(leaving)
    assert asked.load == ()


def test_nobody_leaves_where_that_would_not_be_enough() -> None:
    held = [model(1, 60, leases=1), model(2, 30, used_s=1)]
    waiting = model(3, 50, "waiting", used_s=5)
    assert decide([*held, waiting], LIMIT, 10, patience_s=20) == Decision(again_s=25)


def test_who_waited_for_too_long_hears_what_is_in_the_way() -> None:
    held = [model(1, 60, leases=1), model(2, 30, "loading")]
    asked = decide([*held, model(3, 50, "waiting", used_s=5)], LIMIT, 25, patience_s=20)
    ((key, sentence),) = asked.refuse
    assert key == 3
    assert "no room for model3: it takes 50 B, models may take 100 B together" in sentence
    assert "model1 (60 B, in use), model2 (30 B, being loaded)" in sentence


def test_who_can_never_fit_does_not_wait() -> None:
    asked = decide([model(1, 101, "waiting"), model(2, 30, "loading")], LIMIT, 0)
    ((key, sentence),) = asked.refuse
    assert key == 1
    assert sentence == (
        "there is no room for model1: it takes 101 B, and all models together may take 100 B"
    )  # model2 is not in its way


def test_the_clock_of_a_model_in_use_stands() -> None:
    used, idle = model(1, 10, leases=1, expires_s=5), model(2, 10, expires_s=7)
    assert decide([used, idle], LIMIT, 6) == Decision(again_s=7)
    assert decide([used, idle], LIMIT, 7) == Decision(leave=(2,))


def test_what_nobody_will_ask_for_leaves_once_it_is_idle() -> None:
    old = model(1, 10, leases=1, outdated=True)
    assert decide([old], LIMIT, 0).leave == ()
    assert decide([replace(old, leases=0)], LIMIT, 0).leave == (1,)


def test_room_is_kept_for_whoever_waited_longest() -> None:
    residents = [model(1, 60, leases=1), model(2, 50, "waiting", used_s=0), model(3, 10, "waiting", used_s=1)]
    assert decide(residents, LIMIT, 2).load == ((3, 0),)
    assert decide(residents, LIMIT, PATIENCE_S + 1).load == ()


def test_what_models_that_left_kept_goes_to_the_others() -> None:
    short = replace(kept(1, 40, 30), prefix_bytes=5, prefix_asked_bytes=5)
    assert decide([short], LIMIT, 0).keep == ((1, 30),)
    assert decide([short, model(2, 10, "leaving")], LIMIT, 0).keep == ()


def test_earlier_prompts_leave_room_for_a_long_conversation() -> None:
    small = kept(1, 20, 80, beyond_bytes=30)
    assert decide([small], LIMIT, 0).keep == ((1, 50),)
    assert decide([replace(small, beyond_bytes=1000)], LIMIT, 0).keep == ((1, 40),)  # half of what is left
    assert decide([replace(small, prefix_wish_bytes=50)], LIMIT, 0).keep == ((1, 50),)


class Timeline:
    """A server's models with what may happen to them; every decision is checked on the way."""

    def __init__(self, patience_s: float) -> None:
        self.now_s, self.patience_s = 0.0, patience_s
        self.models: dict[int, Resident] = {}
        self.next = 1
        self.served: set[int] = set()
        self.asked_for: set[int] = set()

    def settle(self) -> None:
        decision = decide(list(self.models.values()), LIMIT, self.now_s, self.patience_s)
        answered = {key for key, _ in (*decision.load, *decision.refuse)}
        waiting = [one for one in self.models.values() if one.state == "waiting" and one.key not in answered]
        assert decision.again_s > self.now_s
        for key in decision.leave:
            assert self.models[key].idle
            self.change(key, state="leaving")
        for key, size in decision.keep:
            assert self.models[key].state == "ready"
            assert size != self.models[key].prefix_asked_bytes
            if size > self.models[key].prefix_asked_bytes:
                assert not waiting
                self.change(key, prefix_bytes=size)
            self.change(key, prefix_asked_bytes=size)
        for key, size in decision.load:
            one = self.models[key]
            assert one.state == "waiting"
            assert 0 <= size <= one.prefix_wish_bytes
            self.change(key, state="loading", prefix_bytes=size, prefix_asked_bytes=size)
        for key, _ in decision.refuse:
            assert self.models[key].state == "waiting"
            late = self.models[key].used_s + self.patience_s <= self.now_s
            assert late or self.models[key].fixed_bytes > LIMIT
            del self.models[key]
            self.served.add(key)
        assert sum(max(one.bytes, one.fixed_bytes + one.prefix_asked_bytes) for one in self.held()) <= LIMIT

    def held(self) -> list[Resident]:
        return [one for one in self.models.values() if one.state != "waiting"]

    def change(self, key: int, **fields: Any) -> None:
        self.models[key] = replace(self.models[key], **fields)

    def step(self, what: str, number: int, fixed: int, wish: int) -> None:
        self.now_s += number % 7
        some = sorted(self.models)
        key = some[number % len(some)] if some else 0
        one = self.models.get(key)
        match what, one.state if one else None:
            case "ask", _:
                fields: Any = {"prefix_wish_bytes": wish, "beyond_bytes": number * 7 % 60}
                fields |= {"used_s": self.now_s, "leases": 1}
                self.models[self.next] = model(self.next, fixed, "waiting", **fields)
                self.asked_for.add(self.next)
                self.next += 1
            case "use", "ready" if one:
                self.change(key, leases=one.leases + 1)
            case "release", "ready" if one and one.leases:
                self.change(key, leases=one.leases - 1, used_s=self.now_s, expires_s=self.now_s + wish)
            case "carry", "loading":
                self.change(key, state="ready")
                self.served.add(key)
            case "carry", "leaving":
                del self.models[key]
            case "carry", "ready" if one:
                self.change(key, prefix_bytes=one.prefix_asked_bytes)
            case "outdate", "ready":
                self.change(key, outdated=True)
            case _:
                pass
        self.settle()

    def finish(self) -> None:
        """Everything that was decided is carried out, and nobody comes any more."""
        for _ in range(6 * len(self.asked_for) + 6):
            for key, one in list(self.models.items()):
                if one.state == "leaving":
                    del self.models[key]
                elif one.state != "waiting":
                    self.change(key, state="ready", leases=0, prefix_bytes=one.prefix_asked_bytes)
                    self.served.add(key)
            self.now_s += 1
            self.settle()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "use", "release", "release", "carry", "carry", "carry", "outdate"]),
        st.integers(0, 50),
        st.integers(1, 110),
        st.integers(0, 60),
    ),
    max_size=40,
)


@given(STEPS, st.sampled_from([10.0, 60.0, math.inf]))
@settings(max_examples=300)
def test_timelines(steps: list[tuple[str, int, int, int]], patience_s: float) -> None:
    line = Timeline(patience_s)
    for step in steps:
        line.step(*step)
    line.finish()
    assert line.served >= line.asked_for, "somebody waits for ever"
    if not any(one.state == "leaving" for one in line.models.values()):
        wished = {one.key: one.prefix_wish_bytes for one in line.models.values()}
        room = LIMIT - sum(one.fixed_bytes for one in line.models.values())
        room -= min(sum(one.beyond_bytes for one in line.models.values()), room // 2)
        kept = sum(one.prefix_asked_bytes for one in line.models.values())
        assert kept >= min(room, sum(wished.values())) - len(wished), "room is left that nobody gets"
