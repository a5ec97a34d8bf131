"""Scales and biases that were tuned, in the place of those that a format makes of a block of rows.

They were found on the network's own matrix. That its rows are those of the block is told by the scales that
both started from; where they differ, nothing is written.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace

import mlx.core as mx
import numpy as np

from modelkit.pack.planning.plan_types import Plan, Planned, Tuned
from modelkit.pack.planning.slabs import Columns, Piece, Slab

_NEAR = 0.02  # of a group's scale: other devices round in other ways


def tuned_of(before: np.ndarray, scales: np.ndarray, biases: np.ndarray) -> Tuned:
    """float32 arrays of one shape [..., groups]."""
    digest = hashlib.sha256()
    for array in (before, scales, biases):
        digest.update(np.ascontiguousarray(array, np.float32).tobytes())
    return Tuned(digest.hexdigest(), scales, biases, before)


def plan_with(plan: Plan, tuned: Mapping[str, Tuned]) -> Plan:
    """The plan with these, by the names of tensors."""
    if not tuned:
        return plan

    def marked(tensors: tuple[Planned, ...]) -> tuple[Planned, ...]:
        return tuple(replace(one, tuned=tuned.get(one.name, one.tuned)) for one in tensors)

    files = tuple(replace(file, tensors=marked(file.tensors)) for file in plan.files)
    return replace(plan, tensors=marked(plan.tensors), files=files)


def with_tuned(
    planned: Planned, tuned: Tuned, block: Piece, made: tuple[mx.array, ...]
) -> tuple[mx.array, ...]:
    """Codes, scales and biases of a block of rows, the last two exchanged."""
    codes, scales, biases = made
    assert tuned.scales is not None
    assert tuned.biases is not None
    assert tuned.before is not None
    first = _first_row(planned, block)
    rows = slice(first, first + scales.shape[0])
    groups = scales.shape[-1]
    before, own = (np.asarray(one).reshape(-1, groups)[rows] for one in (tuned.before, tuned.scales))
    if not np.allclose(np.asarray(scales.astype(mx.float32)), before, rtol=_NEAR, atol=1e-8):
        raise AssertionError(f"{planned.name}: the rows that were tuned are not those that are written")
    offsets = np.asarray(tuned.biases).reshape(-1, groups)[rows]
    return codes, mx.array(own).astype(scales.dtype), mx.array(offsets).astype(biases.dtype)


def _first_row(planned: Planned, block: Piece) -> int:
    """Where a block of rows begins in what is written."""
    row = 0
    for piece in planned.slabs:
        within = _within(piece, block)
        if within is not None:
            return row + within
        row += piece.rows
    raise AssertionError(f"{planned.name}: a block of rows that is in no slab")


def _within(piece: Piece, block: Piece) -> int | None:
    """Where a block begins in a slab, in rows; None: elsewhere. Rows that alternate are in several slabs."""
    if not isinstance(piece, Slab | Columns) or not isinstance(block, Slab | Columns):
        return 0 if piece == block else None
    same = type(piece) is type(block) and piece.tensor.name == block.tensor.name and piece.step == block.step
    if not same or _matrix(piece) != _matrix(block) or not piece.start <= block.start < piece.stop:
        return None
    row, rest = divmod(block.start - piece.start, piece.step)
    return None if rest else row


def _matrix(piece: Slab | Columns) -> int:
    return getattr(piece, "matrix", 0)
