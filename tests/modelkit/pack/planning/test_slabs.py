"""Cutting what is read: all of it once, in pieces of a bounded size."""

import math
from pathlib import Path

import pytest

from modelkit.pack.planning.slabs import Columns, turned, whole
from modelkit.source.tensor import BITS, TensorInfo


def tensor(*shape: int, dtype: str = "BF16") -> TensorInfo:
    nbytes = math.prod(shape) * BITS[dtype] // 8
    return TensorInfo("x", dtype, shape, Path("x"), 0, nbytes)


@pytest.mark.parametrize("step", [1, 2])
def test_blocks_of_columns_follow_on_and_lose_none(step: int) -> None:
    (slab,) = turned(tensor(64, 10_001), start=step - 1, step=step)
    blocks = list(slab.blocks(64 * 2 * 3000))
    assert len(blocks) > 2
    columns = [column for block in blocks for column in range(block.start, block.stop, block.step)]
    assert columns == list(range(step - 1, 10_001, step))
    assert sum(block.rows for block in blocks) == slab.rows


def test_blocks_of_columns_read_no_more_than_asked() -> None:
    (slab,) = turned(tensor(64, 100_000))
    assert max(block.read_bytes for block in slab.blocks(1 << 20)) <= 1 << 20


def test_no_piece_of_a_row_is_narrower_than_a_page() -> None:
    (slab,) = turned(tensor(10_000, 5000))
    first, *_ = slab.blocks(1000)
    assert (first.stop - first.start) * first.item_bytes == 4096


def test_a_stack_is_turned_matrix_by_matrix() -> None:
    slabs = turned(tensor(3, 64, 128), start=64)
    assert [(slab.matrix, slab.start, slab.stop) for slab in slabs] == [(i, 64, 128) for i in range(3)]


@pytest.mark.parametrize("shape", [(0, 64), (64, 0)])
def test_nothing_gives_no_blocks(shape: tuple[int, int]) -> None:
    assert not list(Columns(tensor(*shape), 0, 0, shape[1], 1).blocks(1000))


def test_a_slab_reads_what_lies_between_its_rows() -> None:
    slab = whole(tensor(10, 4))
    assert (slab.rows, slab.read_bytes) == (10, 80)
