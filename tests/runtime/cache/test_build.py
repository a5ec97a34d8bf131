"""A model's memory as a whole: sharing, the budget, and all layers or none."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import pytest

from runtime import host
from runtime.cache.budget import Budget
from runtime.cache.build import build_memory
from runtime.cache.layout import (
    Encoder,
    Full,
    LayerSpec,
    Rotating,
    Shared,
    Stateless,
    bytes_per_token,
    donors,
    misfits,
    sequence_bytes,
)
from runtime.cache.memory import MUCH_BYTES, LayerMemory
from runtime.cache.pages import page_arrays
from runtime.errors import CacheFull, NotSupported
from runtime.step import Step
from tests.support.oneshot import build_one_shot
from tests.support.oracle import HEADS, RECURRENT, SIZE, fold

FULL, WINDOW = Full(HEADS, SIZE), Rotating(HEADS, SIZE, window=8)
LAYOUT: list[LayerSpec] = [FULL, WINDOW, Stateless(), Shared(1), Shared(3), RECURRENT]
TOKEN_BYTES = 2 * HEADS * SIZE * 4


def write(memory: LayerMemory, width: int, *, row: int = 0) -> None:
    length = memory.caches[0].lengths[row]
    step = Step((length,), (width,), row)
    memory.prepare(step)
    for spec, cache in zip(memory.layout, memory, strict=True):
        x = mx.ones((1, HEADS, width, SIZE))
        layer: Any = cache
        if isinstance(spec, Full | Rotating):
            layer.append(step, x, x)
        elif spec is RECURRENT:
            layer.scan(step, fold, mx.ones((1, width), dtype=mx.int32))
    memory.commit(step, step.counts)


def test_shared_layers_get_their_donors_own_memory() -> None:
    memory = build_memory(LAYOUT)
    assert memory[3] is memory[1]
    assert memory[4] is memory[1]
    assert memory[2] is None
    assert len(memory) == len(LAYOUT)
    assert len(memory.caches) == 3


def test_donors_of_donors_are_found() -> None:
    assert donors(LAYOUT) == [0, 1, 2, 1, 1, 5]


def test_one_shot_memory_has_the_same_places() -> None:
    caches = build_one_shot(LAYOUT)
    assert caches[3] is caches[1]
    assert caches[2] is None


def test_all_layers_together_are_refused_before_any_grows() -> None:
    memory = build_memory([FULL, FULL, FULL], budget=Budget(limit_bytes=25 * TOKEN_BYTES))
    with pytest.raises(CacheFull) as refusal:
        memory.reserve(9)
    assert refusal.value.wanted_bytes == 27 * TOKEN_BYTES
    assert memory.nbytes == 0
    memory.reserve(8)
    assert memory.nbytes == 24 * TOKEN_BYTES


def test_more_rows_are_refused_before_any_layer_grows() -> None:
    memory = build_memory([FULL, RECURRENT], grain=4)
    write(memory, 4)
    memory.budget.limit_bytes = memory.nbytes + 10
    with pytest.raises(CacheFull):
        memory.resize(2)
    assert [cache.rows for cache in memory.caches] == [1, 1]
    assert memory.rows == 1


def test_after_prepare_no_layer_allocates() -> None:
    memory = build_memory([FULL, WINDOW], grain=4)
    for width in (3, 1, 1, 30, 1, 2):
        step = Step((memory.caches[0].lengths[0],), (width,))
        memory.prepare(step)
        held = memory.nbytes
        write(memory, width)
        assert memory.nbytes == held


def test_new_rows_get_no_room_that_only_an_earlier_row_needed() -> None:
    memory = build_memory([FULL, Rotating(HEADS, SIZE, window=200)], grain=4)
    write(memory, 400)
    memory.clear(0)
    write(memory, 5)
    memory.resize(8)
    assert memory.nbytes <= 8 * (8 + 8) * TOKEN_BYTES
    assert memory.nbytes == memory.budget.held_bytes
    write(memory, 3)
    assert memory.caches[0].lengths == (8, *[0] * 7)


def test_more_rows_fit_where_an_earlier_one_was_long() -> None:
    memory = build_memory([FULL], grain=4)
    write(memory, 40)
    memory.clear(0)
    memory.budget.limit_bytes = memory.nbytes
    memory.resize(4)
    write(memory, 5, row=3)


def test_rows_that_nobody_wants_do_not_grow() -> None:
    memory = build_memory([FULL, RECURRENT], rows=8, grain=4)
    write(memory, 3)
    write(memory, 3, row=1)
    step = Step((3,), (400,), 1)
    memory.prepare(step, 2)
    assert memory.rows == 2
    assert memory.caches[0].lengths == (3, 3)
    assert memory.caches[0].nbytes <= 2 * 512 * TOKEN_BYTES


def test_room_for_what_is_to_come_is_made_at_once_or_not_at_all() -> None:
    memory = build_memory([FULL], rows=8, grain=4, budget=Budget(limit_bytes=100 * TOKEN_BYTES))
    memory.expect(50, 1)
    assert memory.rows == 1
    held = memory.nbytes
    write(memory, 50)
    assert memory.nbytes == held >= 50 * TOKEN_BYTES
    memory.expect(101, 1)
    assert memory.nbytes == held


@pytest.mark.parametrize("how", ["move", "restore"])
def test_a_row_is_put_into_buffers_that_are_in_use(how: str) -> None:
    """By a write in place: copying them whole would take as much memory again."""
    memory = build_memory([FULL] * 6, rows=8, grain=16384)
    write(memory, 9, row=7)
    page = memory.snapshot(7, 0)
    mx.eval(page_arrays(page))
    long = mx.ones((1500, 1500))  # products of it take a while, and what comes behind them holds the buffers
    mx.eval(long @ long)
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    mx.async_eval(long @ long)
    write(memory, 1)
    mx.async_eval([array for cache in memory.caches for array in cache.arrays])
    if how == "move":
        memory.move(7, 3)
    else:
        memory.restore(3, [page], 9)
    memory.evaluate()
    assert mx.get_peak_memory() - before < long.nbytes + memory.nbytes / 6


@pytest.mark.parametrize("stop", [4, 9])
def test_a_restore_that_one_layer_cannot_do_changes_none(stop: int) -> None:
    memory = build_memory([FULL, RECURRENT], rows=2)
    write(memory, 9)
    pages = [memory.snapshot(0, 0)]
    mx.eval(page_arrays(pages[0]))
    pages = pages if stop == 4 else [(pages[0][0], None)]
    write(memory, 2, row=1)
    with pytest.raises(NotSupported, match="layer 1"):
        memory.restore(1, pages, stop)
    assert all(cache.lengths == (9, 2) for cache in memory.caches)


@pytest.mark.parametrize("rotates", [None, [lambda keys, shift: keys] * 2, [lambda keys, shift: keys, None]])
def test_a_cut_that_one_layer_cannot_do_changes_none(rotates: Sequence[Any] | None) -> None:
    memory = build_memory([FULL, RECURRENT if rotates and rotates[1] else FULL])
    write(memory, 9)
    with pytest.raises(NotSupported, match="layer"):
        memory.remove(0, 2, 5, rotates)
    assert all(cache.lengths == (9,) for cache in memory.caches)


def test_a_commit_that_one_layer_cannot_do_changes_none() -> None:
    memory = build_memory([FULL, RECURRENT], slack=2)
    step = Step((0,), (5,))
    caches: Any = memory
    caches[0].append(step, mx.ones((1, HEADS, 5, SIZE)), mx.ones((1, HEADS, 5, SIZE)))
    caches[1].scan(step, fold, mx.ones((1, 5), dtype=mx.int32))
    with pytest.raises(NotSupported):
        memory.commit(step, (3,))
    assert all(cache.lengths == (0,) for cache in memory.caches)


def test_snapshots_have_a_place_for_every_layer() -> None:
    memory = build_memory(LAYOUT)
    write(memory, 5)
    page = memory.snapshot(0, 0)
    assert [snapshot is None for snapshot in page] == [False, False, True, True, True, False]


def test_nbytes_stays_near_what_the_layout_predicts() -> None:
    memory = build_memory([FULL, WINDOW, RECURRENT], slack=2, grain=1)
    for _ in range(100):
        write(memory, 1)
    predicted = sequence_bytes(memory.layout, 100, element_bytes=4, slack=2)
    assert predicted <= memory.nbytes <= 1.3 * predicted


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
@pytest.mark.parametrize("kept", [None, "f32", "f16", "bf16", "q8", "q4"])
def test_bytes_per_token_are_what_a_format_takes(kept: str | None, dtype: mx.Dtype) -> None:
    for spec in (Full(2, 64), Full(1, 96, 32), Full(1, 64, 0), Rotating(2, 32, window=200)):
        memory = build_memory([spec], dtype=dtype, kept_format=kept, grain=1, slack=1)
        step = Step((0,), (100,))
        keys = mx.ones((1, spec.kv_heads, 100, spec.head_dim), dtype=dtype)
        size = spec.head_dim if spec.value_dim is None else spec.value_dim
        values = mx.ones((1, spec.kv_heads, 100, size), dtype=dtype) if size else None
        memory.caches[0].append(step, keys, values)
        memory.commit(step, (100,))
        (page,) = memory.snapshot(0, 0)
        assert page is not None
        assert page.nbytes == 100 * bytes_per_token(spec, dtype.size, kept)


def test_layers_that_a_format_cannot_hold_are_named() -> None:
    layout = [Full(2, 64), Rotating(1, 48, window=9, value_dim=32), Full(1, 96, 24), RECURRENT]
    assert misfits(layout, None) == misfits(layout, "f16") == []
    assert misfits(layout, "q8") == [
        "layer 1 (rotating) has keys of 48 elements, which is not a multiple of 32",
        "layer 2 (full) has values of 24 elements, which is not a multiple of 32",
    ]


def test_encoder_rows_count_when_they_hold_something() -> None:
    memory = build_memory([Encoder(HEADS, SIZE)])
    assert memory.nbytes == 0


def test_layers_grow_one_after_the_other() -> None:
    """So that never all of them have what they had beside what they get."""
    memory = build_memory([Full(HEADS, 64)] * 16)
    memory.reserve(1024)
    memory.evaluate()
    held = memory.nbytes
    mx.reset_peak_memory()
    memory.reserve(2048)
    memory.evaluate()
    assert memory.nbytes >= 2 * held
    assert mx.get_peak_memory() - mx.get_active_memory() < held // 4


def test_what_growing_layers_had_goes_back_as_they_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[None] = []
    monkeypatch.setattr(host, "trim", lambda: given.append(None))
    memory = build_memory([Full(HEADS, 64)] * 6)
    slots = MUCH_BYTES // (memory.caches[0].wanted_bytes(256, 1) // 256)
    for tokens in (256, 512, slots):
        memory.reserve(tokens)
    assert not given, "they had nothing, or little"
    memory.reserve(2 * slots)
    assert len(given) == 6
