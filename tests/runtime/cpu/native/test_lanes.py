"""Writing into the memory of keys and values where it lies."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.build import LayerMemory, build_memory
from runtime.cache.layout import Rotating, bytes_per_token, sequence_bytes, wide_step_bytes
from runtime.cache.protocol import by_layout
from runtime.cpu import native
from runtime.step import Inputs, Step

pytestmark = pytest.mark.skipif(native.kernels is None, reason=f"no kernels: {native.status.reason}")
kernels: Any = native.kernels
LANE = np.arange(3 * 2 * 9 * 4).reshape(3, 2, 9, 4)


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.uint8])
def test_what_is_placed_stands_there_and_nothing_else_changes(dtype: mx.Dtype) -> None:
    whole = mx.random.randint(0, 99, (2, 5, 2, 4)).astype(dtype)
    part = whole.swapaxes(1, 2)[:, :, 1:4]
    lane = mx.array(LANE % 100).astype(dtype)
    expected = mx.array(lane)
    expected[1:3, :, 5:8] = part
    assert mx.array_equal(kernels.placed(lane, part, 1, 5), expected)


@pytest.mark.parametrize(("slot", "count"), [(1, 8), (3, 2), (6, 3), (0, 9), (4, 0)])
def test_what_is_moved_up_stands_in_the_first_slots(slot: int, count: int) -> None:
    expected = LANE.copy()
    expected[1:, :, :count] = LANE[1:, :, slot : slot + count]
    assert np.array_equal(np.array(kernels.moved_up(mx.array(LANE), 1, 2, slot, count)), expected)


def test_who_else_holds_the_lane_sees_no_change() -> None:
    lane = mx.array(LANE)
    view = lane[:, :, 2:]
    mx.eval(
        kernels.placed(lane, mx.zeros((1, 2, 3, 4), lane.dtype), 0, 0), kernels.moved_up(lane, 0, 3, 4, 2)
    )
    assert np.array_equal(np.array(lane), LANE)
    assert np.array_equal(np.array(view), LANE[:, :, 2:])


@pytest.mark.parametrize(
    ("shape", "first", "slot"),
    [((3, 2, 1, 4), 1, 0), ((1, 2, 4, 4), 0, 6), ((1, 1, 1, 4), 0, 0), ((1, 2, 1, 3), 0, 0)],
)
def test_what_has_no_place_is_refused(shape: tuple[int, ...], first: int, slot: int) -> None:
    with pytest.raises(ValueError, match="lane"):
        kernels.placed(mx.array(LANE), mx.zeros(shape, mx.int64), first, slot)
    with pytest.raises(ValueError, match="lane"):
        kernels.moved_up(mx.array(LANE), 0, 1, 5, 5)


LAYERS = (Rotating(2, 64, 512),) * 8


def reading() -> tuple[LayerMemory, Callable[[int, int], None]]:
    """Memory of these layers, and what reads so many tokens from a start on, without waiting."""
    memory = build_memory(LAYERS)

    def read(start: int, width: int) -> None:
        step = Step((start,), (width,), inputs=Inputs(mx.zeros((1, width), mx.int32)))
        memory.prepare(step)
        for cache in by_layout(memory):
            cache.append(step, mx.zeros((1, 2, width, 64)), mx.zeros((1, 2, width, 64)))
        memory.commit(step, step.counts)

    return memory, read


def beside(memory: LayerMemory, read: Callable[[], object]) -> int:
    """What is held at most beyond what is held before."""
    memory.evaluate()
    held = mx.get_active_memory()
    mx.reset_peak_memory()
    read()
    memory.evaluate()
    return mx.get_peak_memory() - held


def test_layers_whose_window_moves_take_no_memory_twice() -> None:
    """A copy of each lane would be as much again, in all layers at once, as one step writes them all."""
    memory, read = reading()
    read(0, 512)
    written = 256 * sum(bytes_per_token(layer, 4) for layer in LAYERS)
    taken = beside(memory, lambda: [read(start, 8) for start in range(512, 768, 8)])
    assert taken < written + memory.nbytes // 4


def test_what_a_wide_step_holds_beside_is_foreseen() -> None:
    memory, read = reading()
    read(0, 512)
    foreseen = wide_step_bytes(LAYERS, 1024, 512, 4)
    assert foreseen <= beside(memory, lambda: read(512, 512)) < 2 * foreseen  # zeros are made on the way
    assert memory.nbytes == sequence_bytes(LAYERS, 1024, 4)


def test_steps_that_fit_behind_a_window_hold_nothing_beside() -> None:
    for tokens, width in ((1024, 64), (592, 512)):
        assert wide_step_bytes(LAYERS, tokens, width, 4) == 0
    assert wide_step_bytes(LAYERS, 1024, 65, 4) > 0
