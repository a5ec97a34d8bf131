"""States in pieces are those of one array, however steps cut rows; and what need not be copied is not."""

import random

import mlx.core as mx
import numpy as np
import pytest

from runtime.cache.pieces import Pieces, States

WIDTH = 3


def zeros(rows: int) -> States:
    return {"state": mx.zeros((rows, WIDTH))}


def filled(rows: int, start: float) -> States:
    return {"state": mx.arange(start, start + rows * WIDTH).reshape(rows, WIDTH)}


@pytest.mark.parametrize("seed", range(20))
def test_they_are_what_one_array_would_be(seed: int) -> None:
    draw = random.Random(seed)
    pieces, whole = Pieces(zeros), np.zeros((0, WIDTH), np.float32)
    for turn in range(60):
        rows = len(whole)
        first = draw.randrange(rows + 1)
        here = slice(first, draw.randint(first, rows))
        match draw.choice(["put", "put", "of", "of", "clear", "row_copies", "resize"]):
            case "put" if here.start < here.stop:
                states = filled(here.stop - here.start, 100.0 * turn)
                pieces.put(here, states)
                whole[here] = np.array(states["state"])
            case "of" if here.start < here.stop:
                assert np.array_equal(np.array(pieces.of(here)["state"]), whole[here])
            case "clear" if first < rows:
                pieces.put(slice(first, first + 1), None)
                whole[first] = 0
            case "row_copies" if first < rows:
                assert np.array_equal(np.array(pieces.row_copies(first)["state"])[0], whole[first])
            case "resize":
                rows = draw.randint(0, 8)
                pieces.resize(rows)
                whole = np.concatenate([whole[:rows], np.zeros((max(rows - len(whole), 0), WIDTH))])
            case _:
                pass
        assert sum(array.shape[0] for array in pieces.arrays) <= len(whole)
    if len(whole):
        assert np.array_equal(np.array(pieces.of(slice(0, len(whole)))["state"]), whole)


def test_rows_that_a_step_takes_again_are_not_copied() -> None:
    pieces = Pieces(zeros)
    pieces.resize(8)
    states, other = filled(5, 1.0), filled(1, 7.0)
    pieces.put(slice(0, 5), states)
    pieces.put(slice(5, 6), other)
    assert pieces.of(slice(0, 5))["state"] is states["state"]
    assert pieces.of(slice(5, 6))["state"] is other["state"]
    assert len(pieces.arrays) == 2, "the other rows take no memory"


def test_what_is_left_keeps_nothing_of_what_went() -> None:
    row_bytes = 1 << 20
    pieces = Pieces(lambda rows: {"state": mx.zeros((rows, row_bytes // 4))})
    pieces.resize(8)
    before = mx.get_active_memory()
    pieces.put(slice(0, 8), {"state": mx.ones((8, row_bytes // 4))})
    mx.eval(pieces.arrays)
    pieces.resize(1)
    mx.eval(pieces.arrays)
    assert mx.get_active_memory() - before < 2 * row_bytes


def test_what_something_was_seen_through_is_not_ones_own() -> None:
    """Until other states take its place: a copy of a row may be made later than the next step's states."""
    pieces = Pieces(zeros)
    pieces.resize(4)
    pieces.put(slice(0, 3), filled(3, 1.0))
    assert pieces.own(slice(0, 3))
    assert not pieces.own(slice(0, 2))  # there is no such piece
    pieces.row_copies(1)
    assert not pieces.own(slice(0, 3))
    pieces.put(slice(0, 3), filled(3, 2.0))
    assert pieces.own(slice(0, 3))
    for part in (slice(0, 2), slice(2, 3)):
        pieces.of(part)
        assert not pieces.own(part)  # both lie in the memory of the three
    pieces.of(slice(0, 4))
    assert pieces.own(slice(0, 4))  # put together anew
