"""What every kind of layer memory must do, one claim per test, for each kind in turn."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import pytest

from runtime.cache.attention import KVCache
from runtime.cache.budget import Budget
from runtime.cache.encoder import EncoderCache
from runtime.cache.layout import Chunked, Encoder, Full, LayerSpec, Pooled, Recurrent, Rotating
from runtime.cache.pooled import PooledCache
from runtime.cache.recurrent import RecurrentCache
from runtime.cache.snapshot import Snapshot
from runtime.errors import CacheFull, NotSupported
from runtime.step import Step
from tests.support.oracle import HEADS, RECURRENT, SIZE, Row, expected, held, run

KINDS: dict[str, LayerSpec] = {
    "full": Full(HEADS, SIZE),
    "full, values in keys": Full(HEADS, SIZE, value_dim=0),
    "rotating": Rotating(HEADS, SIZE, window=6),
    "rotating, narrow values": Rotating(HEADS, SIZE, window=4, value_dim=2),
    "chunked": Chunked(HEADS, SIZE, chunk=5),
    "pooled": Pooled(SIZE, 3),
    "recurrent": RECURRENT,
    "encoder": Encoder(HEADS, SIZE),
}
SLACK = 4

every_kind = pytest.mark.parametrize("spec", KINDS.values(), ids=KINDS)


def build(spec: LayerSpec, *, rows: int = 1, budget: Budget | None = None) -> Any:
    match spec:
        case Full() | Rotating() | Chunked():
            return KVCache(spec, rows=rows, slack=SLACK, grain=4, budget=budget)
        case Pooled():
            return PooledCache(spec, rows=rows, grain=1, budget=budget)
        case Recurrent():
            return RecurrentCache(spec, rows=rows, slack=SLACK, budget=budget)
        case Encoder():
            return EncoderCache(spec, rows=rows, budget=budget)
        case _:
            raise AssertionError(spec)


class Driven:
    """A cache, and what each of its rows has read so far."""

    def __init__(self, spec: LayerSpec, *, rows: int = 1, budget: Budget | None = None) -> None:
        self.spec = spec
        self.cache = build(spec, rows=rows, budget=budget)
        self.past: dict[int, Row] = {}

    def feed(self, tokens: Sequence[int], *, row: int = 0, cuts: Sequence[int] = ()) -> None:
        """Append tokens to a row in steps that end at `cuts`, checking what each was shown."""
        start = self.cache.lengths[row]
        past = self.past[row] if start else Row([], tokens[0])
        whole = Row([*past.tokens, *tokens], past.source)
        for a, b in zip([0, *cuts], [*cuts, len(tokens)], strict=True):
            step = Step((start + a,), (b - a,), row)
            found = run(self.spec, self.cache, step, [tokens[a:b]])
            assert found[0] == expected(self.spec, whole, start + a, b - a)
            self.cache.commit(step, [b - a])
        self.past[row] = whole

    def assert_holds(self, row: int, tokens: Sequence[int]) -> None:
        """The row is as if exactly these tokens had been read, now and for what comes after."""
        content = Row(list(tokens), tokens[0] if tokens else None)
        assert self.cache.lengths[row] == len(tokens)
        if tokens:
            step = Step((len(tokens) - 1,), (1,), row)
            assert held(self.spec, self.cache, step) == expected(self.spec, content, len(tokens) - 1, 1)[0]
        self.past[row] = content
        self.feed([901, 902], row=row)


TOKENS = list(range(11, 41))


@every_kind
@pytest.mark.parametrize("cuts", [[], range(1, 30), [1, 2, 20], [13, 14, 15, 16], [4, 8, 12, 16, 20, 24, 28]])
def test_how_a_prompt_is_cut_into_steps_changes_nothing(spec: LayerSpec, cuts: Sequence[int]) -> None:
    driven = Driven(spec)
    driven.feed(TOKENS, cuts=cuts)
    driven.assert_holds(0, TOKENS)


@every_kind
@pytest.mark.parametrize("kept", range(SLACK + 1))
@pytest.mark.parametrize("before", [0, 1, 9, 23])
def test_commit_forgets_any_tail_of_a_short_step(spec: LayerSpec, kept: int, before: int) -> None:
    driven = Driven(spec)
    if before:
        driven.feed(TOKENS[:before])
    step = Step((before,), (SLACK,))
    run(spec, driven.cache, step, [[701, 702, 703, 704]])
    driven.cache.commit(step, [kept])
    past = TOKENS[:before] + [701, 702, 703, 704][:kept]
    driven.assert_holds(0, past)


@every_kind
@pytest.mark.parametrize("width", [1, SLACK, 17])
def test_a_step_that_is_not_committed_never_happened(spec: LayerSpec, width: int) -> None:
    driven = Driven(spec)
    driven.feed(TOKENS)
    for _ in range(3):
        run(spec, driven.cache, Step((30,), (width,)), [[800] * width])
    driven.assert_holds(0, TOKENS)


@every_kind
def test_a_step_may_keep_nothing_whatever_its_width(spec: LayerSpec) -> None:
    driven = Driven(spec)
    driven.feed(TOKENS[:7])
    step = Step((7,), (20,))
    run(spec, driven.cache, step, [[800] * 20])
    driven.cache.commit(step, [0])
    driven.assert_holds(0, TOKENS[:7])


@every_kind
def test_ragged_rows_see_what_they_would_see_alone(spec: LayerSpec) -> None:
    driven = Driven(spec, rows=3)
    lengths = (3, 17, 8)
    for row, length in enumerate(lengths):
        driven.feed(TOKENS[:length], row=row)
    step = Step(lengths, (2, 4, 1))
    new = [[501, 502], [601, 602, 603, 604], [701]]
    found = run(spec, driven.cache, step, new)
    for length, tokens, seen in zip(lengths, new, found, strict=True):
        assert seen == expected(spec, Row(TOKENS[:length] + tokens, TOKENS[0]), length, len(tokens))
    driven.cache.commit(step, (1, 3, 1))
    for row, (length, tokens, kept) in enumerate(zip(lengths, new, (1, 3, 1), strict=True)):
        driven.assert_holds(row, TOKENS[:length] + tokens[:kept])


@every_kind
def test_a_row_fills_while_others_rest(spec: LayerSpec) -> None:
    driven = Driven(spec, rows=2)
    driven.feed(TOKENS[:5], row=0)
    driven.feed(TOKENS, row=1, cuts=[9, 18])
    driven.assert_holds(0, TOKENS[:5])


@every_kind
@pytest.mark.parametrize("length", [1, 3, 7, 30])
def test_a_restored_row_is_the_row_that_was(spec: LayerSpec, length: int) -> None:
    driven = Driven(spec, rows=2)
    driven.feed(TOKENS[:length])
    page = driven.cache.snapshot(0, 0)
    driven.feed([600, 601, 602, 603, 604, 605, 606], cuts=[1, 2])
    driven.cache.restore(1, [page])
    driven.assert_holds(1, TOKENS[:length])


@every_kind
def test_pages_join_into_one_row(spec: LayerSpec) -> None:
    driven, pages = Driven(spec), list[Snapshot]()
    for start, stop in ((0, 4), (4, 5), (5, 12), (12, 30)):
        driven.feed(TOKENS[start:stop])
        pages.append(driven.cache.snapshot(0, start))
    driven.cache.clear(0)
    driven.cache.restore(0, pages)
    driven.assert_holds(0, TOKENS)


@every_kind
def test_a_page_outlives_its_cache_and_counts_its_bytes(spec: LayerSpec) -> None:
    driven = Driven(spec)
    driven.feed(TOKENS[:9])
    page = driven.cache.snapshot(0, 0)
    mx.eval(page.arrays)
    del driven
    assert page.nbytes == sum(array.nbytes for array in page.arrays) > 0
    other = Driven(spec)
    other.cache.restore(0, [page])
    other.assert_holds(0, TOKENS[:9])


@pytest.mark.parametrize("name", ["full", "full, values in keys", "rotating", "chunked", "pooled"])
def test_too_few_pages_are_refused_and_nothing_changes(name: str) -> None:
    driven = Driven(KINDS[name])
    driven.feed(TOKENS[:9])
    last = driven.cache.snapshot(0, 8)
    driven.feed(TOKENS[9:])
    with pytest.raises(NotSupported):
        driven.cache.restore(0, [last])
    driven.assert_holds(0, TOKENS)


@every_kind
def test_move_takes_a_row_along_and_leaves_an_empty_one(spec: LayerSpec) -> None:
    driven = Driven(spec, rows=3)
    driven.feed(TOKENS, row=2)
    driven.feed(TOKENS[:2], row=0)
    driven.cache.move(2, 0, driven.cache.row_copies(2))
    assert driven.cache.lengths == (30, 0, 0)
    driven.assert_holds(0, TOKENS)
    driven.assert_holds(2, [])


@every_kind
def test_a_cleared_row_begins_again(spec: LayerSpec) -> None:
    driven = Driven(spec)
    driven.feed(TOKENS)
    driven.cache.clear(0)
    driven.assert_holds(0, [])


@every_kind
def test_rows_survive_growing_and_shrinking(spec: LayerSpec) -> None:
    driven = Driven(spec)
    driven.feed(TOKENS)
    for rows in (2, 9, 3, 1):
        driven.cache.resize(rows)
        assert driven.cache.lengths == (30, *[0] * (rows - 1))
    driven.assert_holds(0, TOKENS)


@every_kind
def test_no_rows_take_no_memory(spec: LayerSpec) -> None:
    budget = Budget()
    driven = Driven(spec, rows=2, budget=budget)
    driven.feed(TOKENS)
    driven.cache.resize(0)
    assert driven.cache.nbytes == budget.held_bytes == 0


@every_kind
def test_the_end_of_a_row_can_be_removed_where_it_can_be_resumed(spec: LayerSpec) -> None:
    driven = Driven(spec)
    driven.feed(TOKENS, cuts=[25])
    if not driven.cache.can_resume(0, 28):
        with pytest.raises(NotSupported):
            driven.cache.remove(0, 28, 30)
        return
    driven.cache.remove(0, 28, 30)
    driven.assert_holds(0, TOKENS[:28])


@every_kind
def test_nbytes_is_what_the_buffers_take_and_what_the_budget_counts(spec: LayerSpec) -> None:
    budget = Budget()
    driven = Driven(spec, rows=2, budget=budget)
    for row in range(2):
        driven.feed(TOKENS, cuts=[3, 9], row=row)
    assert driven.cache.nbytes == sum(array.nbytes for array in driven.cache.arrays) == budget.held_bytes > 0


@every_kind
def test_a_full_budget_refuses_before_anything_changes(spec: LayerSpec) -> None:
    budget = Budget()
    driven = Driven(spec, budget=budget)
    driven.feed(TOKENS[:3])
    budget.limit_bytes = budget.held_bytes
    with pytest.raises(CacheFull) as refusal:
        _outgrow(spec, driven)
    assert refusal.value.budget_bytes == budget.limit_bytes < refusal.value.wanted_bytes
    assert driven.cache.nbytes == budget.held_bytes == budget.limit_bytes
    budget.limit_bytes = None
    driven.assert_holds(0, TOKENS[:3])


def _outgrow(spec: LayerSpec, driven: Driven) -> None:
    if isinstance(spec, Recurrent):
        driven.cache.resize(2)
    elif isinstance(spec, Encoder):
        driven.cache.resize(2)
        driven.feed(TOKENS, row=1)
    else:
        run(spec, driven.cache, Step((3,), (17,)), [[1] * 17])
