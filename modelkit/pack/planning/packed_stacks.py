"""Experts that a checkpoint has one by one in MXFP4, two codes in a byte (DeepSeek V4), as MLX's stacks.

MLX has the same codes in the same order, so bytes only move; or they are unpacked for another format.
"""

from collections.abc import Mapping
from dataclasses import replace

from modelkit.pack.planning.experts import gather
from modelkit.pack.planning.matrix import Matrix
from modelkit.pack.planning.plan_types import Output, Planned
from modelkit.pack.planning.slabs import Groups, Slab
from modelkit.source.tensor import TensorInfo
from runtime.tensors.checkpoint import Checkpoint

_BITS, _GROUP, _MODE = 4, 32, "mxfp4"


def packed_stacks(
    packed: Mapping[str, str], tensors: Mapping[str, TensorInfo], files: Checkpoint
) -> list[Matrix]:
    """packed: weight -> its scales. What they stand for, whose rows are unpacked when they are read."""

    def slab(name: str) -> Slab:
        codes = tensors[name]
        groups = Groups(tensors[packed[name]], None, _BITS, _GROUP, _MODE)
        return Slab(codes, 0, codes.shape[0], 1, codes.shape[1], groups=groups)

    codes = [tensors[name] for name in packed]
    numbers = [replace(one, shape=(one.shape[0], 2 * one.shape[1])) for one in codes]
    return [
        replace(matrix, dtype="BF16", slabs=tuple(slab(one.name) for one in matrix.slabs))
        for matrix in gather(numbers, files, {})
    ]


def kept_stack(matrix: Matrix) -> Planned:
    """As it is."""
    *leading, width = matrix.shape
    slabs = [slab for slab in matrix.slabs if isinstance(slab, Slab) and slab.groups is not None]
    scales = [slab.groups.scales for slab in slabs if slab.groups is not None]
    outputs = (
        Output(
            matrix.name,
            "U32",
            (*leading, width * _BITS // 32),
            tuple(replace(slab, groups=None) for slab in slabs),
        ),
        Output(
            f"{matrix.name.removesuffix('weight')}scales",
            "U8",
            (*leading, width // _GROUP),
            tuple(Slab(one, 0, one.shape[0], 1, one.shape[1]) for one in scales),
        ),
    )
    return Planned(matrix.name, "BF16", matrix.shape, None, _MODE, "already MXFP4", outputs)
