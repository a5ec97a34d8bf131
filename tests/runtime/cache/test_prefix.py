"""The prefix store: whatever was computed, put in, cut, dropped or merged, what a row is given is right."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import hypothesis.strategies as st
import mlx.core as mx
import pytest
from hypothesis import example, given, settings

from runtime.cache.build import LayerMemory, build_memory
from runtime.cache.layout import Chunked, Encoder, Full, LayerSpec, Rotating, Shared, Stateless
from runtime.cache.pages import page_bytes, take_page
from runtime.cache.prefix import PrefixStore
from runtime.cache.snapshot import Span
from runtime.cache.trie import Node, common
from runtime.step import Step
from tests.support.oracle import HEADS, RECURRENT, SIZE, Row, expected, held, run

FULL: tuple[LayerSpec, ...] = (Full(HEADS, SIZE), Shared(0), Stateless(), Full(HEADS, SIZE, value_dim=0))
WINDOWED: tuple[LayerSpec, ...] = (
    Full(HEADS, SIZE),
    Rotating(HEADS, SIZE, window=6),
    Chunked(HEADS, SIZE, chunk=5),
)
MIXED: tuple[LayerSpec, ...] = (*WINDOWED[:2], Stateless(), RECURRENT, Encoder(HEADS, SIZE), Shared(1))
LAYOUTS = {"full": FULL, "windowed": WINDOWED, "mixed": MIXED, "recurrent": (RECURRENT,)}
SLACK = 3
ROOMY = 1 << 40


@dataclass
class Machine:
    """Rows over one store. A row is read in steps, and paged after each."""

    layout: Sequence[LayerSpec]
    limit_bytes: int = ROOMY
    rows: int = 2
    inserted: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])

    def __post_init__(self) -> None:
        self.memory: LayerMemory = build_memory(self.layout, rows=self.rows, slack=SLACK, grain=4)
        self.store = PrefixStore(self.layout, self.limit_bytes)
        self.tokens: list[list[int]] = [[] for _ in range(self.rows)]
        self.kept = [0] * self.rows
        self.held: list[Node | None] = [None] * self.rows

    def begin(self, row: int, prompt: Sequence[int]) -> int:
        """Put the row where the store knows `prompt` from; returns the offset."""
        self.drop(row)
        match = self.store.lookup(prompt)
        self.memory.restore(row, match.pages, match.offset)
        self.tokens[row], self.kept[row] = list(prompt[: match.offset]), match.offset
        self.held[row] = match.node
        self.store.hold(match.node)
        self.check_row(row)
        return match.offset

    def read(self, row: int, tokens: Sequence[int], *, page: bool = True) -> None:
        """One step of the row, every query checked; then a page of all since the last."""
        start = len(self.tokens[row])
        step = Step((start,), (len(tokens),), row)
        self.tokens[row] = [*self.tokens[row], *tokens]
        wanted = self.row(row)
        for spec, cache in zip(self.layout, self.memory, strict=True):
            if cache is not None and not isinstance(spec, Shared):
                assert run(spec, cache, step, [tokens])[0] == expected(spec, wanted, start, len(tokens))
        self.memory.commit(step, step.counts)
        self.memory.evaluate()
        if page:
            self.page(row)

    def page(self, row: int) -> None:
        keys = tuple(self.tokens[row])
        node = self.store.insert(keys, self.kept[row], take_page(self.memory, row, self.kept[row]))
        mx.eval(self.store.changed())
        if node is not None:
            self.inserted.append(keys)
            self.store.hold(node)
            old, self.held[row], self.kept[row] = self.held[row], node, len(keys)
            if old is not None:
                self.store.release(old)
        self.store.check()

    def drop(self, row: int) -> None:
        node, self.held[row] = self.held[row], None
        if node is not None:
            self.store.release(node)
        self.memory.clear(row)
        self.tokens[row], self.kept[row] = [], 0

    def row(self, row: int) -> Row:
        tokens = self.tokens[row]
        return Row(tokens, tokens[0] if tokens else None)

    def check_row(self, row: int) -> None:
        """What the row holds is what having read its tokens leaves behind."""
        length = len(self.tokens[row])
        if not length:
            return
        step = Step((length - 1,), (1,), row)
        for spec, cache in zip(self.layout, self.memory, strict=True):
            if cache is not None and not isinstance(spec, Shared):
                assert cache.lengths[row] == length
                assert held(spec, cache, step) == expected(spec, self.row(row), length - 1, 1)[0]

    def conversation(self, row: int, prompt: Sequence[int], marks: Sequence[int] = ()) -> int:
        """Read a prompt with pages at `marks` and at its end; returns the offset it began at."""
        offset = self.begin(row, prompt)
        for start, stop in pairwise([offset, *(m for m in marks if offset < m < len(prompt)), len(prompt)]):
            self.read(row, prompt[start:stop])
        return offset


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
    machine.store.check()
    assert resumable(machine) == {4}
    assert machine.begin(1, [*range(1, 5), 50]) == 4


def test_a_checkpoint_above_a_stem_can_be_given_up() -> None:
    machine = branched()
    for end in (20, 30):
        machine.begin(0, [*range(1, 9), end, end + 1, 99])
    machine.drop(0)
    machine.store.limit_bytes = machine.store.nbytes + page_bytes_of(machine, [99]) - 1
    machine.conversation(0, [99])
    machine.store.check()
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
    machine.store.check()
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
        machine.store.check()
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
    store.check()
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
    page = take_page(machine.memory, 0, 2)
    assert machine.store.insert((1, 2, 3, 4), 2, page) is None
    assert page_bytes(page) > machine.store.nbytes == 0


def test_clearing_forgets_all_but_what_is_held(machine: Machine) -> None:
    machine.conversation(0, range(1, 9), marks=[4])
    machine.conversation(1, range(20, 29), marks=[25])
    machine.drop(1)
    machine.store.clear()
    machine.store.check()
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
    machine.store.insert(keys, 0, take_page(machine.memory, 0, 0))
    assert machine.store.lookup((*keys, 4)).offset == 3
    assert common(keys, (*keys[:2], 5)) == 2
