"""Which prefixes go where there is no room for all: the oldest and the least of use; what is held stays."""

from collections.abc import Sequence

import mlx.core as mx
import pytest

from runtime.cache.layout import Full, Rotating
from runtime.cache.pages import page_bytes
from runtime.cache.prefix import PrefixStore
from runtime.cache.snapshot import Span
from runtime.cache.trie import Node
from tests.support.invariants import check_tree
from tests.support.oracle import HEADS, RECURRENT, SIZE
from tests.support.prefixes import FULL, MIXED, ROOMY, Machine


def page_bytes_of(machine: Machine, tokens: Sequence[int]) -> int:
    other = Machine(machine.layout)
    other.conversation(0, tokens)
    return other.store.nbytes


def resumable(machine: Machine) -> set[int]:
    return {entry.stop for entry in machine.store.describe() if entry.resumable}


def test_the_least_recently_used_leaf_goes_first() -> None:
    machine = Machine(FULL)
    for first in (1, 2, 3):
        machine.conversation(0, [first, 7, 8, 9])
    machine.begin(0, [1, 7, 8, 9, 5])
    machine.drop(0)
    machine.store.limit_bytes = machine.store.nbytes
    machine.conversation(0, [4, 7, 8, 9])
    firsts = [entry.keys[0] for entry in machine.store.describe()]
    assert sorted(firsts) == [1, 3, 4]


def test_what_is_held_beyond_the_limit_goes_when_it_is_let_go_of() -> None:
    machine = Machine(FULL)
    machine.conversation(0, range(1, 9))
    machine.begin(1, [*range(1, 9), 5])
    machine.drop(0)
    machine.store.resize(0)
    assert machine.store.nbytes > 0
    machine.drop(1)
    assert machine.store.nbytes == 0
    check_tree(machine.store)


def test_a_shared_beginning_outlives_its_branches() -> None:
    machine = Machine(MIXED)
    machine.conversation(0, [*range(1, 9), 20, 21], marks=[8])
    machine.conversation(0, [*range(1, 9), 30, 31], marks=[8])
    machine.drop(0)
    machine.store.limit_bytes = machine.store.nbytes - 1
    machine.conversation(0, [50])
    assert machine.begin(1, [*range(1, 9), 40]) == 8
    assert machine.store.lookup((*range(1, 9), 20, 21)).matched == 8


def squeeze(machine: Machine, token: int) -> None:
    """One more page, for which a single byte is missing."""
    machine.drop(0)
    machine.store.limit_bytes = machine.store.nbytes + page_bytes_of(machine, [token]) - 1
    machine.conversation(0, [token])


def test_an_old_checkpoint_is_given_up_before_the_tokens_behind_it() -> None:
    machine = Machine((RECURRENT, Full(HEADS, SIZE)))
    machine.conversation(0, range(1, 13), marks=[4, 8])
    squeeze(machine, 90)
    assert resumable(machine) == {8, 12, 1}
    assert machine.begin(1, [*range(1, 13), 99]) == 12


def test_a_checkpoint_that_came_back_can_be_given_up_again() -> None:
    machine = Machine((RECURRENT, Full(HEADS, SIZE)))
    machine.conversation(0, range(1, 13), marks=[4, 8])
    squeeze(machine, 90)
    squeeze(machine, 91)
    assert resumable(machine) == {12, 1}
    machine.store.limit_bytes = ROOMY
    machine.conversation(0, [*range(1, 5), 77], marks=[4])
    assert resumable(machine) == {4, 5, 12, 1}
    for used in ([*range(1, 13), 99], [90, 1], [91, 1]):
        machine.begin(0, used)
    squeeze(machine, 92)
    assert resumable(machine) == {4, 12, 1}
    squeeze(machine, 93)
    assert resumable(machine) == {12, 1}


def branched() -> Machine:
    """A checkpoint at 4, and two leaves [8, 10) whose common stem [4, 8) ends where no fold is known."""
    machine = Machine((RECURRENT, Full(HEADS, SIZE)))
    for end in (20, 30):
        machine.conversation(0, [*range(1, 9), end, end + 1], marks=[4])
    machine.drop(0)
    assert [(e.stop, e.resumable) for e in machine.store.describe()] == [
        (4, True),
        (8, False),
        (10, True),
        (10, True),
    ]
    return machine


def test_a_stem_that_ends_nowhere_goes_with_its_last_leaf() -> None:
    machine = branched()
    machine.begin(0, [*range(1, 5), 99])
    machine.store.clear()
    check_tree(machine.store)
    assert resumable(machine) == {4}
    assert machine.begin(1, [*range(1, 5), 50]) == 4


def test_a_checkpoint_above_a_stem_can_be_given_up() -> None:
    machine = branched()
    for end in (20, 30):
        machine.begin(0, [*range(1, 9), end, end + 1, 99])
    machine.drop(0)
    machine.store.limit_bytes = machine.store.nbytes + page_bytes_of(machine, [99]) - 1
    machine.conversation(0, [99])
    check_tree(machine.store)
    assert 4 not in resumable(machine)
    assert machine.begin(1, [*range(1, 9), 20, 21, 22]) == 10


def test_what_nobody_sees_any_more_goes_before_what_is_of_use() -> None:
    """Of [0, 4) two positions were kept for what starts at 8; when nothing starts there, they go as well."""
    machine = Machine((Rotating(HEADS, SIZE, window=6),))
    machine.conversation(0, range(30), marks=[4, 8])
    machine.drop(0)
    entries = machine.store.describe()
    assert [(entry.stop, entry.resumable) for entry in entries] == [(4, True), (8, True), (30, True)]
    machine.store.resize(entries[-1].nbytes)
    check_tree(machine.store)
    assert [entry.nbytes for entry in machine.store.describe()] == [0, 0, entries[-1].nbytes]
    assert machine.begin(1, range(31)) == 30


def test_what_a_new_continuation_does_not_see_can_go() -> None:
    """[4, 6) saw all of [0, 4), and has gone; [4, 20) at its end sees nothing of it."""
    machine = Machine((Rotating(HEADS, SIZE, window=6),))
    for stop, left in ((6, [4]), (20, [4, 20])):
        machine.store.limit_bytes = ROOMY
        machine.conversation(0, range(stop), marks=[4])
        machine.drop(0)
        machine.store.resize(machine.store.nbytes - 1)
        check_tree(machine.store)
        assert [entry.stop for entry in machine.store.describe()] == left
    assert machine.begin(1, range(21)) == 20


def test_many_nodes_go_in_time_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's thread does it, when memory is lent to another model or to a long prompt."""
    store, age = PrefixStore((Full(1, 1),), ROOMY), PrefixStore._age
    for number in range(500):
        keys = (number % 7, number, 1)
        store.insert(keys, 0, (Span(0, 3, (mx.zeros((1, 1, 3, 1)),) * 2),))
    asked = list[Node]()
    monkeypatch.setattr(PrefixStore, "_age", lambda its, node: (asked.append(node), age(its, node))[1])
    store.resize(store.nbytes // 2)
    check_tree(store)
    store.clear()
    assert store.nbytes == 0
    assert len(asked) < 3000


def test_what_is_held_stays_whatever_the_limit() -> None:
    machine = Machine(MIXED)
    machine.conversation(0, range(1, 10))
    machine.store.limit_bytes = machine.store.nbytes
    machine.conversation(1, range(50, 59))
    assert resumable(machine) == {9}
    assert machine.store.lookup((*range(1, 10), 11)).offset == 9
    machine.drop(0)
    machine.conversation(1, range(50, 59))
    assert machine.store.lookup((*range(50, 59), 11)).offset == 9


def test_a_page_larger_than_everything_evicts_nothing() -> None:
    machine = Machine(FULL)
    machine.conversation(0, [1, 2, 3])
    machine.drop(0)
    machine.store.limit_bytes = machine.store.nbytes
    machine.conversation(1, range(10, 30))
    assert machine.store.lookup((1, 2, 3, 4)).offset == 3


def test_a_page_whose_beginning_is_missing_is_not_kept() -> None:
    machine = Machine(FULL)
    machine.read(0, [1, 2, 3, 4], page=False)
    page = machine.memory.snapshot(0, 2)
    assert machine.store.insert((1, 2, 3, 4), 2, page) is None
    assert page_bytes(page) > machine.store.nbytes == 0
