"""Pieces of tensors, and that no others are read."""

import json
import resource
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from runtime.errors import CannotCut
from runtime.ranks.pieces import Piece, Shard
from runtime.ranks.ranges import Taking


@pytest.fixture
def matrix() -> mx.array:
    return mx.random.normal((12, 128), key=mx.random.key(1)).astype(mx.bfloat16)


def taking(folder: Path, tensors: dict[str, mx.array]) -> tuple[Taking, dict[str, mx.array]]:
    """Of a file with these tensors; and those as MLX gives them."""
    file = folder / "model.safetensors"
    mx.save_safetensors(str(file), tensors)
    stored = mx.load(str(file))
    assert isinstance(stored, dict)
    return Taking([file], stored), stored


@pytest.mark.parametrize("axis", [0, 1])
def test_ranges_of_a_stored_tensor(tmp_path: Path, matrix: mx.array, axis: int) -> None:
    take, stored = taking(tmp_path, {"a": mx.arange(3), "matrix": matrix})
    got = take(stored["matrix"], axis, [(2, 4), (7, 11)])
    expected = mx.take(matrix, mx.array([2, 3, 7, 8, 9, 10]), axis=axis)
    assert got.dtype == mx.bfloat16
    assert mx.array_equal(got, expected)


def test_of_a_stored_tensor_no_other_bytes_are_read(tmp_path: Path) -> None:
    """A file with holes, of 16 GB: whoever read all of it would need as much memory."""
    rows, columns = 1 << 18, 1 << 15
    said = {"matrix": {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [0, 2 * rows * columns]}}
    header = json.dumps(said).encode()
    file = tmp_path / "model.safetensors"
    with file.open("wb") as opened:
        opened.write(len(header).to_bytes(8, "little") + header)
        opened.truncate(8 + len(header) + 2 * rows * columns)
    stored = mx.load(str(file))
    assert isinstance(stored, dict)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    got = Taking([file], stored)(stored["matrix"], 0, [(1000, 1016)])
    assert (got.shape, got.dtype) == ((16, columns), mx.bfloat16)
    assert mx.all(got == 0)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100 << (20 if sys.platform == "darwin" else 10)


def test_a_tensor_that_was_made_is_cut_afterwards(tmp_path: Path, matrix: mx.array) -> None:
    take, stored = taking(tmp_path, {"matrix": matrix})
    turned = stored["matrix"].T
    assert mx.array_equal(take(turned, 0, [(1, 5)]), matrix.T[1:5])


@pytest.mark.parametrize(("bits", "mode"), [(4, "affine"), (3, "affine"), (8, "affine"), (4, "mxfp4")])
def test_columns_of_a_packed_matrix(tmp_path: Path, matrix: mx.array, bits: int, mode: str) -> None:
    group = 32
    packed = mx.quantize(matrix, group, bits, mode=mode)
    tensors = dict(zip(("weight", "scales", "biases"), packed, strict=False))
    take, stored = taking(tmp_path, tensors)
    piece = Piece("inputs", ((32, 96),), 128)
    mine = [take(one, *piece.where(leaf, one.shape)) for leaf, one in stored.items()]
    by_name = dict(zip(stored, mine, strict=True))
    ordered = [by_name[leaf] for leaf in ("weight", "scales", "biases") if leaf in by_name]
    got = mx.dequantize(*ordered, group_size=group, bits=bits, mode=mode)
    whole = mx.dequantize(*packed, group_size=group, bits=bits, mode=mode)
    assert np.array_equal(np.array(got.astype(mx.float32)), np.array(whole[:, 32:96].astype(mx.float32)))


def test_a_bias_behind_a_sum_is_added_once() -> None:
    first, second = (Piece("inputs", ((0, 64),), 128, first=shard == 0) for shard in (0, 1))
    assert [piece.has("bias") for piece in (first, second)] == [True, False]
    assert [piece.share("bias") for piece in (first, second)] == [1, 0]
    assert second.has("weight")


def test_heads_of_keys_and_values_are_split_or_the_same_for_several() -> None:
    assert [Shard(i, 2).groups(4) for i in range(2)] == [(0, 2), (2, 4)]
    assert [Shard(i, 4).groups(2) for i in range(4)] == [(0, 1), (0, 1), (1, 2), (1, 2)]
    with pytest.raises(CannotCut, match="3 heads of keys and values do not divide among 2"):
        Shard(0, 2).groups(3)


def test_columns_are_split_between_groups_as_evenly_as_can_be() -> None:
    assert [Shard(i, 3).units(320, 32) for i in range(3)] == [(0, 96), (96, 192), (192, 320)]
    with pytest.raises(CannotCut, match="64 columns are 1 groups of 64, too few for 2"):
        Shard(0, 2).units(64, 64)
