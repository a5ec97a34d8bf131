"""Blocks of keys: the last ones before a query, and every so many of the others."""

import mlx.core as mx
import numpy as np

from runtime.nn.attention.block_sparse import BlockSparse


def seen(blocks: BlockSparse, query: int, keys: int) -> list[list[int]]:
    """Of each head, the blocks of two keys that a query sees."""
    bias = np.array(blocks.between(mx.array([[query]], mx.int32), mx.arange(keys, dtype=mx.int32)))[0, :, 0]
    return [sorted({key // 2 for key in np.flatnonzero(head == 0).tolist()}) for head in bias]


def test_each_head_keeps_other_blocks() -> None:
    blocks = BlockSparse((0, 1, 2), size=2, local=2, stride=3)
    assert seen(blocks, 13, 14) == [[2, 5, 6], [1, 4, 5, 6], [0, 3, 5, 6]]


def test_a_rank_has_those_of_its_heads() -> None:
    blocks = BlockSparse((0, 1, 2), size=2, local=1, stride=3)
    assert seen(blocks.of_heads(1, 3), 13, 14) == seen(blocks, 13, 14)[1:]
    assert blocks.of_heads(1, 3) is blocks.of_heads(1, 3)
