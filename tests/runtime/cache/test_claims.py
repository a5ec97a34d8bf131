"""The budget counts what rows have written and give back; a layer that is refused has changed nothing."""

import random
from contextlib import suppress
from operator import le
from typing import Any

import mlx.core as mx
import pytest

from runtime.cache.budget import Budget
from runtime.cache.build import build_memory
from runtime.cache.claims import GRAIN, SPARE
from runtime.cache.layout import Full, LayerSpec, Rotating
from runtime.cache.memory import LayerMemory
from runtime.cache.pages import page_arrays
from runtime.errors import CacheFull
from runtime.step import Step
from tests.support.oracle import RECURRENT

FULL = Full(1, 8)
TOKEN = 2 * 8 * 4
LAYOUT: list[LayerSpec] = [FULL, Rotating(1, 8, window=40), FULL]


def write(memory: LayerMemory, width: int, row: int = 0) -> None:
    step = Step((memory.caches[0].lengths[row],), (width,), row)
    memory.prepare(step)
    for cache in memory.caches:
        layer: Any = cache
        layer.append(step, mx.ones((1, 1, width, 8)), mx.ones((1, 1, width, 8)))
    memory.commit(step, step.counts)


def built(layout: list[LayerSpec], rows: int, tokens: int | None = None) -> LayerMemory:
    """tokens: of one full layer, that the budget has room for."""
    budget = Budget(None if tokens is None else tokens * TOKEN)
    return build_memory(layout, rows=rows, budget=budget, by_pages=True, slack=2)


def test_a_long_row_beside_short_ones_is_counted_once() -> None:
    memory = built([FULL], 8, 5000 + 7 * GRAIN)
    for row in range(7):
        write(memory, 20, row)
    write(memory, 4096, 7)
    assert memory.nbytes == (4096 + 7 * GRAIN) * TOKEN == memory.budget.held_bytes


def test_what_does_not_fit_by_grains_fits_by_tokens() -> None:
    memory = built([FULL], 2, 300)
    write(memory, 120)
    write(memory, 150, 1)
    assert memory.nbytes == 270 * TOKEN
    write(memory, 30)
    with pytest.raises(CacheFull) as refusal:
        write(memory, 1)
    assert refusal.value.wanted_bytes == 301 * TOKEN
    assert memory.caches[0].lengths == (150, 150)
    assert memory.budget.held_bytes == 300 * TOKEN


def test_a_place_keeps_some_pages_when_its_row_ends_until_others_want_them() -> None:
    memory = built([FULL], 2, 3000)
    write(memory, 2900)
    memory.clear(0)
    assert memory.nbytes == SPARE * TOKEN
    write(memory, 2500, 1)
    assert memory.nbytes <= 3000 * TOKEN


def test_another_memory_of_the_same_budget_has_what_an_ended_row_kept() -> None:
    memory = built([FULL], 1, 1200)
    other = build_memory([FULL], budget=memory.budget, by_pages=True)
    write(memory, 1000)
    memory.clear(0)
    write(other, 900)
    assert memory.nbytes + other.nbytes == memory.budget.held_bytes <= 1200 * TOKEN
    write(other, 200)
    assert memory.nbytes == 0


def test_a_row_that_moves_is_not_counted_twice() -> None:
    memory = built([FULL], 2, 2300)
    write(memory, 100)
    write(memory, 2000, 1)
    memory.clear(0)
    memory.move(1, 0)
    assert memory.caches[0].lengths == (2000, 0)
    assert memory.nbytes == memory.budget.held_bytes <= 2300 * TOKEN


def test_a_step_before_which_rows_are_dropped_has_its_claim() -> None:
    memory = built([FULL], 8)
    write(memory, 3)
    memory.prepare(Step((3,), (400,)), rows=1)
    assert memory.rows == 1
    assert memory.claims is not None
    assert memory.claims.tokens[0] >= 403


def test_who_has_enough_does_not_take_what_another_needs() -> None:
    """One of two rows of a step has claimed a grain, of which the other needs a part."""
    memory = built([FULL], 2, 300)
    write(memory, 10)
    write(memory, 30, 1)
    write(memory, 200)
    step = Step((210, 30), (1, 20))
    memory.prepare(step)
    assert memory.claims is not None
    assert memory.claims.tokens[0] >= 230
    assert memory.claims.tokens[1] >= 50
    assert memory.nbytes <= 300 * TOKEN


def test_layers_that_only_fold_claim_nothing() -> None:
    memory = build_memory([RECURRENT], rows=2, budget=Budget(), by_pages=True)
    before = memory.nbytes
    memory.prepare(Step((0,), (300,), 1))
    memory.move(1, 0)
    memory.clear(1)
    memory.resize(1)
    assert memory.nbytes == memory.budget.held_bytes <= before


def test_a_restore_that_does_not_fit_changes_nothing() -> None:
    memory = built([FULL], 2)
    write(memory, 400)
    page = memory.snapshot(0, 0)
    memory.budget.limit_bytes = 700 * TOKEN
    with pytest.raises(CacheFull):
        memory.restore(1, [page], 400)
    assert memory.caches[0].lengths == (400, 0)
    memory.budget.limit_bytes = 800 * TOKEN
    memory.restore(1, [page], 400)


def test_room_that_the_budget_has_not_is_not_made() -> None:
    memory = built([FULL], 1, 1000)
    memory.expect(1001, 1)
    assert memory.caches[0].room == 0
    memory.expect(900, 1)
    assert memory.caches[0].room >= 900


def test_layers_with_a_window_count_its_slots() -> None:
    memory = built([Rotating(1, 8, window=40)], 1)
    write(memory, 3)
    whole = memory.nbytes
    for _ in range(6):
        write(memory, 30)
    assert memory.nbytes == whole <= 60 * TOKEN


@pytest.mark.parametrize("seed", range(8))
def test_the_budget_holds_what_is_claimed_and_no_more_than_it_may(seed: int) -> None:
    dice = random.Random(seed)
    memory = built(LAYOUT, 3, 2500)
    for _ in range(40):
        rows, lengths = memory.rows, memory.caches[0].lengths
        row = dice.randrange(rows)
        with suppress(CacheFull):
            match dice.choice(("write", "write", "write", "clear", "move", "resize", "restore")):
                case "write":
                    write(memory, dice.choice((1, 7, 100, 700)), row)
                case "clear":
                    memory.clear(row)
                case "move" if not lengths[other := dice.randrange(rows)]:
                    memory.move(row, other)
                case "resize":
                    memory.resize(dice.randint(1, 4))
                case "restore" if lengths[row]:
                    page = memory.snapshot(row, 0)
                    mx.eval(page_arrays(page))
                    empty = dice.randrange(rows)
                    memory.clear(empty)
                    memory.restore(empty, [page], page[0].stop if page[0] else 0)
                case _:
                    pass
        assert memory.nbytes == memory.budget.held_bytes <= 2500 * TOKEN
        assert memory.claims is not None
        assert all(map(le, memory.caches[0].lengths, memory.claims.tokens))
