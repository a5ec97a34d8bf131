"""Who gets what, decided from numbers alone."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import CannotCut, TooLarge
from runtime.ranks.plan import Copy, Host, LayerPart, Parts, Plan, decide

GB = 10**9


def parts(
    *layers: int, shards: int = 1, tables: int = 0, ending: int = 0, joined: tuple[int, ...] = ()
) -> Parts:
    """Layers that take so many bytes, all of which is shared."""
    its = tuple(LayerPart((taken // shards,) * shards, 0) for taken in layers)
    return Parts("Model", shards, its, tables, ending, joined=frozenset(joined))


def cuts(plan: Plan) -> list[tuple[int, int, int]]:
    return [(share.start, share.stop, share.shard) for share in plan.shares]


def hosts(*free: int) -> list[Host]:
    return [Host(f"host-{i}", bytes_) for i, bytes_ in enumerate(free)]


def test_stages_fill_hosts_alike() -> None:
    assert cuts(decide(parts(1, 1, 1, 1, 1, 1), hosts(30, 20, 10))) == [(0, 3, 0), (3, 5, 0), (5, 6, 0)]


def test_where_free_memory_is_unknown_stages_are_even() -> None:
    assert cuts(decide(parts(1, 1, 1, 1), hosts(0, 8))) == [(0, 2, 0), (2, 4, 0)]


def test_a_copy_counts_where_it_stands_and_moves_the_cut() -> None:
    """The third layer runs what the first one has, which takes 4: with it in another stage that is fuller."""
    model = replace(parts(5, 2, 1, 5), copies=(Copy(0, (2,), (4,), (1,)),))
    plan = decide(model, hosts(20, 20))
    assert cuts(plan) == [(0, 3, 0), (3, 4, 0)]
    assert [share.wanted_bytes for share in plan.shares] == [8, 5]
    three = decide(model, hosts(20, 20, 20))
    assert [(share.weight_bytes, share.adapter_bytes) for share in three.shares] == [(7, 0), (5, 1), (5, 0)]


def test_an_encoder_fills_what_the_decoder_leaves() -> None:
    """Its table and its norm are rank 0's; its layers go to where there is room."""
    model = replace(parts(4, 4, tables=6), encoder=parts(1, 1, 1, 1, tables=2, ending=1))
    plan = decide(model, hosts(30, 30))
    assert [(share.start, share.stop, share.reads) for share in plan.shares] == [
        (0, 1, (0, 1)),
        (1, 2, (1, 4)),
    ]
    assert [share.weight_bytes for share in plan.shares] == [14, 7]
    assert plan.reading == 4
    other = replace(plan, shares=(replace(plan.shares[0], reads=(0, 2)), plan.shares[1]))
    assert other.digest != plan.digest
    with pytest.raises(CannotCut, match="the share of rank 1 is out of order"):
        Plan.from_json(json.loads(json.dumps(other.to_json())))
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_what_stands_around_the_layers_counts_on_rank_0() -> None:
    plan = decide(parts(4, 4, 4, 4, tables=5, ending=3), hosts(100, 100))
    assert cuts(plan) == [(0, 1, 0), (1, 4, 0)]
    assert [share.weight_bytes for share in plan.shares] == [12, 12]


def test_shards_have_an_equal_part_of_the_same_layers() -> None:
    plan = decide(parts(8, 8, shards=2, tables=3, ending=1), hosts(50, 50))
    assert cuts(plan) == [(0, 2, 0), (0, 2, 1)]
    assert [share.weight_bytes for share in plan.shares] == [12, 11]


def test_both_cuts_may_be_combined() -> None:
    plan = decide(parts(4, 4, 4, 4, shards=2), hosts(50, 50, 50, 50))
    assert cuts(plan) == [(0, 2, 0), (0, 2, 1), (2, 4, 0), (2, 4, 1)]
    assert (plan.stages, plan.shards, plan.ranks) == (2, 2, 4)


def test_no_stage_begins_between_layers_of_one_memory() -> None:
    assert cuts(decide(parts(1, 1, 1, 1, joined=(2, 3)), hosts(9, 9))) == [(0, 1, 0), (1, 4, 0)]
    with pytest.raises(CannotCut, match="share memory"):
        decide(parts(1, 1, joined=(1,)), hosts(9, 9))


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(CannotCut, match="Model has 2 layers, too few for 3 stages"):
        decide(parts(1, 1), hosts(9, 9, 9))


def test_hosts_that_are_no_multiple_of_shards_are_refused() -> None:
    with pytest.raises(CannotCut, match="3 ranks are not a multiple of 2"):
        decide(parts(1, 1, 1, shards=2), hosts(9, 9, 9))


def test_too_little_room_is_said_with_its_numbers() -> None:
    plan = decide(parts(10, 10), hosts(12, 8))
    with pytest.raises(TooLarge) as error:
        plan.check_room()
    assert (error.value.wanted_bytes, error.value.available_bytes) == (10, 8)
    assert "of rank 1 (host-1) take 10 bytes" in str(error.value)
    decide(parts(10, 10), hosts(12, 10)).check_room()


def test_every_rank_that_has_too_little_room_is_named() -> None:
    with pytest.raises(
        TooLarge, match=r"rank 0 \(host-0\) take 10 .* 7 are free; .* rank 1 \(host-1\) 10 of 8"
    ):
        decide(parts(10, 10), hosts(7, 8)).check_room()


def test_a_plan_travels_as_json() -> None:
    plan = decide(parts(4, 4, 4, 4, shards=2), hosts(50, 50, 50, 50))
    again = Plan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again == plan
    assert again.digest == plan.digest


def test_the_digest_is_of_the_cuts_and_not_of_the_hosts() -> None:
    one, other = decide(parts(1, 1, 1), hosts(9, 9)), decide(parts(1, 1, 1), [Host("a", 7), Host("b", 7)])
    assert one.digest == other.digest
    assert one.digest != decide(parts(1, 1, 1), hosts(90, 9)).digest


def test_what_is_not_a_plan_is_refused() -> None:
    said = decide(parts(1, 1, 1, 1), hosts(9, 9)).to_json()
    first, second = said["shares"]
    for shares in (
        [first],
        [second, first],
        [first, {**second, "stop": 5}],
        [first, {**second, "start": 1}],
        [],
    ):
        with pytest.raises(CannotCut, match="not a plan"):
            Plan.from_json({**said, "shares": shares})
    for bad in ({}, {**said, "shards": 0}, {**said, "shares": [{"host": "a"}]}):
        with pytest.raises(CannotCut, match="not a plan"):
            Plan.from_json(bad)


@given(
    st.lists(st.integers(1, 50), min_size=4, max_size=9),
    st.lists(st.integers(1, 100), min_size=1, max_size=4),
)
def test_no_other_cut_leaves_the_fullest_host_emptier(layers: list[int], free: list[int]) -> None:
    model = replace(parts(*layers), table_bytes=7)
    plan = decide(model, hosts(*free))

    def fullest(edges: tuple[int, ...]) -> float:
        taken = [sum(layers[a:b]) for a, b in pairwise(edges)]
        taken[0] += 7  # what the table takes
        return max(bytes_ / room for bytes_, room in zip(taken, free, strict=True))

    def ways(start: int, stages: int) -> list[tuple[int, ...]]:
        if stages == 1:
            return [(start, len(layers))]
        last = len(layers) - stages + 1
        return [(start, *way) for stop in range(start + 1, last + 1) for way in ways(stop, stages - 1)]

    found = (0, *(share.stop for share in plan.shares))
    assert fullest(found) == min(map(fullest, ways(0, len(free))))
