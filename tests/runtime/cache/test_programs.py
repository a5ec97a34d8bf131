"""Random programs over all kinds of memory at once, against rows that are lists of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import mlx.core as mx
import pytest
from hypothesis import HealthCheck, given, settings

from runtime.cache.budget import Budget
from runtime.cache.build import build_memory
from runtime.cache.layout import Chunked, Encoder, Full, LayerSpec, Pooled, Rotating, Shared, Stateless
from runtime.cache.memory import LayerMemory, Mark
from runtime.cache.pages import Page, page_arrays
from runtime.cache.recurrent import RecurrentCache
from runtime.cache.snapshot import resumable
from runtime.errors import NotSupported
from runtime.step import Step
from tests.support.oracle import (
    HEADS,
    RECURRENT,
    SIZE,
    Row,
    brings_source,
    expected,
    held,
    rotate,
    run,
    shown,
)

ATTENTION: tuple[LayerSpec, ...] = (
    Full(HEADS, SIZE),
    Rotating(HEADS, SIZE, window=6),
    Shared(1),
    Chunked(HEADS, SIZE, chunk=5),
    Full(HEADS, SIZE, value_dim=0),
    Rotating(HEADS, SIZE, window=1, value_dim=3),
)
MIXED: tuple[LayerSpec, ...] = (*ATTENTION[:4], Stateless(), RECURRENT, Encoder(HEADS, SIZE), Pooled(SIZE, 3))
LAYOUTS = {"attention": ATTENTION, "mixed": MIXED}
SLACK = 3

number = st.integers(0, 10**6)
operation = st.tuples(
    st.sampled_from(
        ["step"] * 6
        + ["abort", "page", "page", "restore", "move", "clear", "resize", "cut"]
        + ["mark", "mark", "rewind", "rewind"]
    ),
    st.lists(number, min_size=14, max_size=14),
)


@dataclass
class Machine:
    """The memory under test, and the rows as they should be. Operations choose by their `dice`."""

    layout: Sequence[LayerSpec]
    memory: LayerMemory
    rows: list[Row]
    pages: list[list[Page]] = field(default_factory=list[list[Page]])
    saved: list[tuple[Row, list[Page]]] = field(default_factory=list[tuple[Row, list[Page]]])
    marks: dict[int, list[tuple[Mark, Row]]] = field(default_factory=dict[int, list[tuple[Mark, Row]]])
    most: dict[int, int] = field(default_factory=dict[int, int])
    """How long rows have been: windows have moved on with them."""
    next_token: int = 1

    def step(self, dice: list[int], *, committed: bool = True) -> None:
        first = dice[0] % len(self.rows)
        count = 1 + dice[1] % (len(self.rows) - first)
        wide = 1 + dice[2] % SLACK if dice[3] % 3 else 4 + dice[2] % 20
        counts = tuple(1 + die % wide for die in dice[4 : 4 + count])
        starts = tuple(len(row.tokens) for row in self.rows[first : first + count])
        step = Step(starts, counts, first)
        tokens = [[self._token() for _ in range(n)] for n in counts]
        grown = [self._grown(row, new, step) for row, new in zip(self.rows[first:], tokens, strict=False)]
        self._forward(step, tokens, grown)
        if not committed:
            return
        kept = tuple(die % (n + 1) for die, n in zip(dice[8:], counts, strict=False))
        if dice[12] % 2 or (step.width > SLACK and self.layout is MIXED):
            kept = counts
        self.memory.commit(step, kept)
        for row, new, start, n in zip(step.rows, grown, starts, kept, strict=True):
            if n:
                self.rows[row] = new.prefix(start + n)
                self.most[row] = max(self.most.get(row, 0), start + n)

    def _forward(self, step: Step, tokens: list[list[int]], grown: list[Row]) -> None:
        self.memory.prepare(step)
        for layer, cache in zip(self.layout, self.memory, strict=True):
            if isinstance(layer, Stateless):
                continue
            shared = isinstance(layer, Shared)
            spec = self.layout[layer.layer] if shared else layer
            found = shown(step, _view(cache, step)) if shared else run(spec, cache, step, tokens)
            for row, start, n, seen in zip(grown, step.starts, step.counts, found, strict=True):
                assert seen == expected(spec, row, start, n), (spec, step)

    def _grown(self, row: Row, new: list[int], step: Step) -> Row:
        source = new[0] if brings_source(step) else row.source
        return Row([*row.tokens, *new], source)

    def _token(self) -> int:
        self.next_token += 1
        return self.next_token

    def abort(self, dice: list[int]) -> None:
        self.step(dice, committed=False)

    def page(self, dice: list[int]) -> None:
        row = dice[0] % len(self.rows)
        length, done = len(self.rows[row].tokens), self._paged(row)
        if done < length:
            page = self.memory.snapshot(row, done)
            mx.eval(page_arrays(page))
            self.pages[row] = [*self.pages[row], page]
            self.saved.append((self.rows[row].prefix(length), list(self.pages[row])))

    def restore(self, dice: list[int]) -> None:
        if not self.saved:
            return
        row, (past, pages) = dice[0] % len(self.rows), self.saved[dice[1] % len(self.saved)]
        if dice[2] % 2:
            pages = _recut(pages, dice[3])
        length = len(past.tokens)
        stop = length if dice[4] % 3 else 1 + dice[5] % length
        columns = [[page[i] for page in pages] for i in range(len(self.layout))]
        possible = all(
            resumable(spec, column, stop) for spec, column in zip(self.layout, columns, strict=True)
        )
        assert possible or stop < length
        if not possible:
            with pytest.raises(NotSupported):
                self.memory.restore(row, pages, stop)
            return
        self.memory.restore(row, pages, stop)
        self.rows[row], self.pages[row] = past.prefix(stop), []
        self._unmark(row)

    def mark(self, dice: list[int]) -> None:
        row = dice[0] % len(self.rows)
        self.marks.setdefault(row, []).append((self.memory.mark(row), self.rows[row]))

    def rewind(self, dice: list[int]) -> None:
        """To any length: there, where the layers say so, or else to a mark that is near enough, or to 0."""
        row = dice[0] % len(self.rows)
        past, marks = self.rows[row], self.marks.get(row, [])
        held = len(past.tokens)
        length = dice[1] % (held + 2) if dice[2] % 2 else max(held - dice[1] % (2 * SLACK), 0)
        exact = held <= length or self.memory.can_resume(row, length)
        most = max(held, self.most.get(row, 0))
        near = [mark.length for mark, _ in marks if most - SLACK <= mark.length <= length]
        found = self.memory.rewind(row, length, [mark for mark, _ in marks])
        assert found in ({min(held, length)} if exact else {0, *(mark.length for mark, _ in marks)})
        assert max(near, default=0) <= found <= length
        then = next((then for mark, then in marks if mark.length == found), past)
        self.rows[row] = (past if exact else then).prefix(found)
        self.marks[row] = [(mark, then) for mark, then in marks if mark.length <= found]
        if found < held:
            self.pages[row] = []

    def move(self, dice: list[int]) -> None:
        src, dst = dice[0] % len(self.rows), dice[1] % len(self.rows)
        self.memory.move(src, dst)
        if src != dst:
            self._unmark(src)
            self._unmark(dst)
            self.rows[dst], self.rows[src] = self.rows[src], Row()
            self.pages[dst], self.pages[src] = self.pages[src], []

    def clear(self, dice: list[int]) -> None:
        row = dice[0] % len(self.rows)
        self.memory.clear(row)
        self.rows[row], self.pages[row] = Row(), []
        self._unmark(row)

    def resize(self, dice: list[int]) -> None:
        rows = 1 + dice[0] % 4
        self.memory.resize(rows)
        self.marks = {row: marks for row, marks in self.marks.items() if row < rows}
        more = rows - len(self.rows)
        self.rows = self.rows[:rows] + [Row() for _ in range(more)]
        self.pages = self.pages[:rows] + [[] for _ in range(more)]

    def cut(self, dice: list[int]) -> None:
        row = dice[0] % len(self.rows)
        past = self.rows[row]
        length = len(past.tokens)
        start = dice[1] % (length + 1)
        stop = length if dice[2] % 3 == 0 else start + dice[2] % (length - start + 1)
        turns = [rotate] * len(self.layout)
        if not all(cache.can_remove(row, start, stop) for cache in self.memory.caches):
            with pytest.raises(NotSupported):
                self.memory.remove(row, start, stop, turns)
            return
        self.memory.remove(row, start, stop, turns)
        left = past.tokens[:start] + past.tokens[stop:]
        self.rows[row], self.pages[row] = Row(left, past.source if left else None), []
        self._unmark(row)

    def _unmark(self, row: int) -> None:
        self.marks.pop(row, None)
        self.most.pop(row, None)

    def _paged(self, row: int) -> int:
        stops = [page.stop for page in self.pages[row][-1] if page is not None] if self.pages[row] else [0]
        return stops[0]

    def check(self) -> None:
        lengths = tuple(len(row.tokens) for row in self.rows)
        for cache in self.memory.caches:
            assert cache.lengths == lengths
            taken = sum(array.nbytes for array in cache.arrays)
            assert taken <= cache.nbytes if isinstance(cache, RecurrentCache) else taken == cache.nbytes
        assert self.memory.budget.held_bytes == self.memory.nbytes
        for number, row in enumerate(self.rows):
            self._check_row(number, row)

    def _check_row(self, number: int, row: Row) -> None:
        """What the row's last token saw is still there, and what a drafter would be shown."""
        length = len(row.tokens)
        if length == 0:
            return
        step = Step((length - 1,), (1,), number)
        for spec, cache in zip(self.layout, self.memory, strict=True):
            if not isinstance(spec, Shared | Stateless):
                assert held(spec, cache, step) == expected(spec, row, length - 1, 1)[0], spec


def _view(cache: Any, step: Step) -> Any:
    return cache.view(step)


def _recut(pages: list[Page], die: int) -> list[Page]:
    """The same pages, one of them split in two."""
    at = die // 2 % len(pages)
    start, stop = next((page.start, page.stop) for page in pages[at] if page is not None)
    if stop - start < 2:
        return pages
    halves = [(None, None) if p is None else p.split(start + 1 + die % (stop - start - 1)) for p in pages[at]]
    return [*pages[:at], tuple(a for a, _ in halves), tuple(b for _, b in halves), *pages[at + 1 :]]


@pytest.mark.parametrize("name", LAYOUTS)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=st.integers(1, 3), by_pages=st.booleans(), program=st.lists(operation, min_size=5, max_size=25))
def test_any_program_shows_what_the_token_lists_say(
    name: str, rows: int, by_pages: bool, program: list[tuple[str, list[int]]]
) -> None:
    layout = LAYOUTS[name]
    memory = build_memory(layout, rows=rows, slack=SLACK, grain=4, budget=Budget(), by_pages=by_pages)
    machine = Machine(layout, memory, [Row() for _ in range(rows)], [[] for _ in range(rows)])
    for operation_name, dice in program:
        getattr(machine, operation_name)(dice)
        machine.check()
    machine.step([0, len(machine.rows) - 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0])
