"""The prefix store: whatever was computed, put in, cut, dropped or merged, what a row is given is right."""

from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from runtime.cache.layout import Full, Rotating
from runtime.cache.trie import common
from tests.support.invariants import check_tree
from tests.support.oracle import HEADS, SIZE
from tests.support.prefixes import FULL, LAYOUTS, MIXED, ROOMY, Machine


@pytest.fixture(params=LAYOUTS)
def machine(request: pytest.FixtureRequest) -> Machine:
    return Machine(LAYOUTS[request.param])


number = st.integers(0, 10**6)
OPERATION = st.tuples(
    st.sampled_from(["begin", "begin", "read", "read", "drop"]), st.lists(number, min_size=12, max_size=12)
)


# The last page is dropped again, and what its insertion has cut must go as well.
CUT_AND_DROPPED = [
    *[("begin", [0] * 12)] * 2,
    ("begin", [0, 2, *[0] * 10]),
    *[("drop", [0] * 12)] * 2,
    ("begin", [0] * 12),
    ("begin", [0, 151, 0, 0, 0, 0, 0, 0, 0, 1, 3, 86798]),
    ("begin", [1, *[0] * 11]),
    ("read", [0, 26, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]),
    ("read", [0, 206, *[0] * 10]),
    ("begin", [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 748630, 548]),
]


def play(machine: Machine, programs: list[tuple[str, list[int]]]) -> None:
    """Random conversations in an alphabet of two, so that they share beginnings; `history`: what was said."""
    history: list[list[int]] = [[]]
    for name, dice in programs:
        row = dice[0] % machine.rows
        fresh = [1 + die % 2 for die in dice[2 : 3 + dice[1] % 9]]
        if name == "drop":
            machine.drop(row)
            continue
        if name == "read":
            tokens = fresh
        else:
            past = history[dice[11] % len(history)]
            prompt = past[: dice[10] % (len(past) + 1)] + fresh
            promised = best_resume(machine, prompt)
            offset = machine.begin(row, prompt)
            assert offset < len(prompt)
            assert machine.limit_bytes < ROOMY or offset >= promised
            tokens = prompt[offset:]
        cut = dice[9] % len(tokens)
        for part in (tokens[:cut], tokens[cut:]):
            if part:
                machine.read(row, part, page=dice[8] % 4 > 0)
        history.append(list(machine.tokens[row]))


def best_resume(machine: Machine, prompt: Sequence[int]) -> int:
    """Where a prompt can go on when nothing was ever dropped: the last page that ends on its way."""
    known = [len(keys) for keys in machine.inserted if list(keys) == list(prompt[: len(keys)])]
    return max((length for length in known if length < len(prompt)), default=0)


@pytest.mark.parametrize("layout", LAYOUTS)
@given(programs=st.lists(OPERATION, max_size=14))
@settings(max_examples=60)
def test_rows_are_given_what_they_would_have_computed(
    layout: str, programs: list[tuple[str, list[int]]]
) -> None:
    play(Machine(LAYOUTS[layout]), programs)


@pytest.mark.parametrize("layout", LAYOUTS)
@given(programs=st.lists(OPERATION, max_size=16), limit=st.integers(0, 3000))
@example(programs=CUT_AND_DROPPED, limit=2000)
@settings(max_examples=60)
def test_a_small_budget_costs_reuse_and_nothing_else(
    layout: str, programs: list[tuple[str, list[int]]], limit: int
) -> None:
    play(Machine(LAYOUTS[layout], limit_bytes=limit), programs)


def test_an_unknown_prompt_starts_at_zero(machine: Machine) -> None:
    match = machine.store.lookup((1, 2, 3))
    assert (match.matched, match.offset, match.pages) == (0, 0, ())


def test_something_is_always_left_to_compute(machine: Machine) -> None:
    prompt = [5, 6, 7, 8, 9]
    machine.conversation(0, prompt, marks=[4])
    assert machine.conversation(1, prompt) == 4
    assert machine.begin(1, prompt[:1]) == 0


def test_a_conversation_goes_on_where_it_stopped(machine: Machine) -> None:
    machine.conversation(0, range(1, 20))
    machine.read(0, [30, 31, 32])
    said = [*range(1, 20), 30, 31, 32]
    machine.drop(0)
    assert machine.begin(1, [*said, 40, 41]) == len(said)


def test_a_lookup_says_how_far_tokens_agree() -> None:
    machine = Machine(MIXED)
    machine.conversation(0, range(1, 20))
    match = machine.store.lookup((*range(1, 13), 77, 78))
    assert (match.matched, match.offset) == (12, 0)


def test_a_fold_resumes_at_the_branch_once_it_was_marked_there() -> None:
    machine = Machine(MIXED)
    machine.conversation(0, range(1, 20))
    assert machine.conversation(0, [*range(1, 13), 77, 78], marks=[12]) == 0
    assert machine.begin(1, [*range(1, 13), 90]) == 12
    assert machine.begin(1, [*range(1, 20), 90]) == 19


def test_full_layers_resume_anywhere() -> None:
    machine = Machine(FULL)
    machine.conversation(0, range(1, 20))
    assert machine.begin(1, [*range(1, 13), 77, 78]) == 12
    machine.read(1, [77, 78])
    assert machine.begin(0, [*range(1, 13), 77, 90]) == 13
    assert [(entry.start, entry.stop) for entry in machine.store.describe()] == [(0, 12), (12, 19), (12, 14)]


def test_what_is_known_already_is_not_stored_twice(machine: Machine) -> None:
    for row in range(2):
        machine.begin(row, [*range(1, 30)])
    for row in range(2):
        machine.read(row, [*range(1, 30)])
    one = Machine(machine.layout)
    one.conversation(0, range(1, 30))
    assert machine.store.nbytes == one.store.nbytes


def test_positions_of_a_window_are_stored_once() -> None:
    layout = (Rotating(HEADS, SIZE, window=6),)
    machine = Machine(layout)
    machine.conversation(0, range(1, 40), marks=range(2, 40, 2))
    whole = Machine((Full(HEADS, SIZE),))
    whole.conversation(0, range(1, 40))
    assert machine.store.nbytes == whole.store.nbytes
    for stop in range(2, 40, 2):
        assert machine.begin(1, [*range(1, stop + 1), 99]) == stop


def test_clearing_forgets_all_but_what_is_held(machine: Machine) -> None:
    machine.conversation(0, range(1, 9), marks=[4])
    machine.conversation(1, range(20, 29), marks=[25])
    machine.drop(1)
    machine.store.clear()
    check_tree(machine.store)
    assert {entry.keys[0] for entry in machine.store.describe() if entry.start == 0} == {1}
    assert machine.store.lookup((*range(1, 9), 30)).offset == 8
    machine.drop(0)
    machine.store.clear()
    assert machine.store.nbytes == 0
    assert machine.store.describe() == []


def test_bytes_are_those_of_the_arrays() -> None:
    machine = Machine((Full(HEADS, SIZE),))
    machine.conversation(0, range(1, 11))
    assert machine.store.nbytes == 10 * 2 * HEADS * SIZE * 4
    assert [entry.nbytes for entry in machine.store.describe()] == [10 * 2 * HEADS * SIZE * 4]


def test_keys_may_be_anything_hashable() -> None:
    machine = Machine(FULL)
    machine.read(0, [1, 2, 3], page=False)
    keys = ("sha256:ab", (1, 2), 3)
    machine.store.insert(keys, 0, machine.memory.snapshot(0, 0))
    assert machine.store.lookup((*keys, 4)).offset == 3
    assert common(keys, (*keys[:2], 5)) == 2
