"""What only recurrent memory promises: dtypes, replay, and states that stand on their own."""

from typing import Any

import mlx.core as mx
import pytest

from runtime.cache.build import build_memory
from runtime.cache.layout import Recurrent, State, growing_bytes
from runtime.cache.protocol import by_layout
from runtime.cache.recurrent import RecurrentCache
from runtime.errors import NotSupported
from runtime.step import Step
from tests.support.oracle import RECURRENT, fold


def tokens(rows: int, width: int) -> mx.array:
    return mx.arange(1, 1 + rows * width).reshape(rows, width)


def _ints(x: Any) -> list[int]:
    return x.tolist()


def test_states_begin_at_zero_in_their_own_dtypes() -> None:
    cache = RecurrentCache(RECURRENT, rows=2, dtype=mx.bfloat16)
    assert cache.arrays == [], "what nobody has written takes no memory"
    conv, state = cache.row_copies(1)
    assert (conv.dtype, state.dtype) == (mx.bfloat16, mx.float32)
    assert not mx.any(conv).item()
    assert not mx.any(state).item()


def test_a_level_step_is_told_that_nothing_is_padding() -> None:
    told: list[mx.array | None] = []

    def spy(states: dict[str, mx.array], x: mx.array, *, counts: mx.array | None) -> Any:
        told.append(counts)
        return fold(states, x, counts=counts)

    cache = RecurrentCache(RECURRENT, rows=2)
    cache.scan(Step((0, 0), (3, 3)), spy, tokens(2, 3))
    cache.scan(Step((0, 0), (3, 1)), spy, tokens(2, 3))
    assert told[0] is None
    assert told[1] is not None
    assert told[1].tolist() == [3, 1]


def test_keeping_everything_never_runs_the_layer_again() -> None:
    calls = 0

    def counted(states: dict[str, mx.array], x: mx.array, *, counts: mx.array | None) -> Any:
        nonlocal calls
        calls += 1
        return fold(states, x, counts=counts)

    cache = RecurrentCache(RECURRENT)
    step = Step((0,), (3,))
    cache.scan(step, counted, tokens(1, 3))
    cache.commit(step, (3,))
    assert calls == 1


def test_rows_kept_whole_are_not_computed_again() -> None:
    """So a row's numbers do not depend on how many drafts its neighbours accepted."""
    cache, seen = RecurrentCache(RECURRENT, rows=3), list[list[int]]()

    def spy(states: dict[str, mx.array], x: mx.array, *, counts: mx.array | None) -> Any:
        seen.append([] if counts is None else _ints(counts))
        return fold(states, x, counts=counts)

    step = Step((0, 0, 0), (3, 3, 3))
    cache.scan(step, spy, tokens(3, 3))
    cache.commit(step, (3, 2, 0))
    assert seen[1] == [0, 2, 0]
    assert cache.lengths == (3, 2, 0)


def test_part_of_a_wide_step_cannot_be_kept_and_nothing_changes() -> None:
    cache = RecurrentCache(RECURRENT, slack=4)
    step = Step((0,), (5,))
    cache.scan(step, fold, tokens(1, 5))
    with pytest.raises(NotSupported):
        cache.commit(step, (2,))
    assert cache.lengths == (0,)
    cache.commit(step, (5,))
    assert cache.lengths == (5,)


def test_a_middle_range_cannot_be_taken_out_of_a_fold() -> None:
    cache = RecurrentCache(RECURRENT)
    step = Step((0,), (5,))
    cache.scan(step, fold, tokens(1, 5))
    cache.commit(step, (5,))
    with pytest.raises(NotSupported):
        cache.remove(0, 1, 3)
    assert not cache.can_resume(0, 3)


def test_from_a_step_to_its_commit_states_are_there_twice_in_all_layers() -> None:
    """The network has computed the whole step before any of them is replaced, as is foreseen."""
    layout = (Recurrent({"state": State((64, 1024), "float32")}),) * 4
    memory = build_memory(layout, rows=2)
    made: list[mx.array] = []

    def more(states: dict[str, mx.array], x: mx.array, *, counts: mx.array | None) -> Any:
        made.append(states["state"] + x)
        return x, {"state": made[-1]}

    def scanned(start: int) -> Step:
        step = Step((start, start), (1, 1))
        for cache in by_layout(memory):
            cache.scan(step, more, mx.ones((2, 1, 1)))
        mx.eval(made)
        return step

    first = scanned(0)
    memory.commit(first, first.counts)
    made.clear()
    held = mx.get_active_memory()
    scanned(1)
    foreseen = growing_bytes(layout, 1, 4)
    assert 2 * foreseen <= mx.get_active_memory() - held < 2.5 * foreseen
    assert memory.growing_bytes == 2 * foreseen == memory.nbytes
