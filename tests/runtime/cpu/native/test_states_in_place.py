"""States that layers fold into stay in their memory, and what was read of them is what they were then."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cpu import native

if native.kernels is None:
    pytest.skip(f"no kernels: {native.status.reason}", allow_module_level=True)

from runtime.cache.recurrent import RecurrentCache
from runtime.loaded import LoadedModel
from runtime.step import Inputs, Step
from tests.support.parity import Reference

FAMILIES = ("mamba", "mamba2", "qwen3_5", "kimi_linear", "recurrent_gemma", "falcon_h1", "granitemoehybrid")
ROWS, STEPS = 3, 6


def folds(memory: Any) -> list[RecurrentCache]:
    return [cache for cache in memory.caches if isinstance(cache, RecurrentCache)]


def steps(model: LoadedModel, *, at_once: bool) -> list[mx.array]:
    """What steps answer, and copies of each row's states between them, which nobody asks for until the end
    (at_once) or all at the time.
    """
    memory, found, done = model.memory(ROWS), list[mx.array](), 0
    for number in range(STEPS):
        width = 3 if number == 2 else 1
        ids = [[(7 * row + 3 * (done + i)) % 50 + 1 for i in range(width)] for row in range(ROWS)]
        step = Step((done,) * ROWS, (width,) * ROWS, inputs=Inputs(mx.array(ids)))
        memory.prepare(step)
        found.append(model.network(step, memory))
        memory.commit(step, step.counts)
        found += [state for cache in folds(memory) for row in range(ROWS) for state in cache.row_copies(row)]
        if not at_once:
            mx.eval(found)
        done += width
    mx.eval(found)
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_copies_between_steps_are_of_the_states_then(name: str, tmp_path: Path) -> None:
    model = Reference(name).load(tmp_path / "m")
    late, each = (steps(model, at_once=at_once) for at_once in (True, False))
    assert len(late) == len(each) > STEPS
    for one, other in zip(late, each, strict=True):
        assert np.array_equal(np.array(one), np.array(other))


def places(memory: Any) -> list[int]:
    """Where the largest state of each layer lies."""
    largest = [max(cache.arrays, key=lambda array: array.nbytes) for cache in folds(memory)]
    mx.eval(largest)
    return [np.array(array, copy=False).__array_interface__["data"][0] for array in largest]


def place_of(array: mx.array) -> int:
    mx.eval(array)
    return np.array(array, copy=False).__array_interface__["data"][0]


def test_a_row_that_joins_costs_no_copy_of_the_others() -> None:
    rows = [mx.random.normal((1, 40, 7), key=mx.random.key(number)) for number in range(5)]
    wanted = np.concatenate([np.array(row) for row in rows])
    together = native.kernels.joined(rows[:2], 4, False)
    first = place_of(together)
    for number in (2, 3):
        together = native.kernels.joined([together, rows[number]], 4, True)
        assert place_of(together) == first
    assert np.array_equal(np.array(together), wanted[:4])
    more = native.kernels.joined([together, rows[4]], 8, True)  # there was room for four
    assert place_of(more) != first
    assert np.array_equal(np.array(more), wanted)
    assert np.array_equal(np.array(together), wanted[:4])


def test_rows_of_somebody_else_are_copied() -> None:
    x = mx.random.normal((2, 40), key=mx.random.key(1))
    together = native.kernels.joined([x, x], 8, True)
    first, said = place_of(together), np.array(together)
    for own in (True, False):  # held here, and seen through elsewhere
        again = native.kernels.joined([together, x], 8, own)
        assert place_of(again) != first
    part = together[1:3]
    assert place_of(native.kernels.joined([part, x], 8, True)) != first + x.nbytes // 2
    assert np.array_equal(np.array(together), said)


def test_unlike_pieces_are_refused() -> None:
    x = mx.zeros((2, 3))
    for pieces, room in (([], 1), ([x, mx.zeros((2, 4))], 9), ([x, x.astype(mx.int32)], 9), ([x, x], 3)):
        with pytest.raises(ValueError, match=r"pieces|room"):
            native.kernels.joined(pieces, room, True)
    with pytest.raises(ValueError, match="pieces"):
        native.kernels.joined([x, mx.zeros((2, 3, 1))], 9, True)


def step_of(model: LoadedModel, memory: Any, done: int) -> None:
    step = Step((done,) * ROWS, (1,) * ROWS, inputs=Inputs(mx.array([[5]] * ROWS)))
    memory.prepare(step)
    hidden = model.network(step, memory)
    memory.commit(step, step.counts)
    mx.eval(hidden, *(array for cache in folds(memory) for array in cache.arrays))


@pytest.mark.parametrize("name", ["mamba", "mamba2", "qwen3_5", "granitemoehybrid"])
def test_a_state_stays_where_it_is_unless_somebody_has_it(name: str, tmp_path: Path) -> None:
    model = Reference(name).load(tmp_path / "m")
    memory = model.memory(ROWS)
    step_of(model, memory, 0)
    before = places(memory)
    step_of(model, memory, 1)
    assert places(memory) == before
    held = [array for cache in folds(memory) for array in cache.arrays]
    said = [np.array(array) for array in held]
    step_of(model, memory, 2)
    assert not set(places(memory)) & set(before)
    for array, then in zip(held, said, strict=True):
        assert np.array_equal(np.array(array), then)
