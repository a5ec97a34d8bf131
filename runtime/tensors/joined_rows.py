"""Matrices that files store apart and a network multiplies by at once, stacked along their rows; and the
other way round.
"""

from itertools import accumulate

import mlx.core as mx

from runtime.tensors.experts import Weights
from runtime.tensors.quantizing import REQUESTED, Row


def joined_rows(weights: Weights, parts: tuple[str, ...], whole: str) -> Weights:
    """Tensors whose names differ in one of `parts` only, stacked along their rows in that order.

    A set that is not whole, or of different widths or formats, stays as it is and is reported as surplus.
    """
    kept = dict(weights)
    for name in weights:
        if parts[0] not in name:
            continue
        names = [name.replace(parts[0], part) for part in parts]
        members = [weights[member] for member in names if member in weights]
        if len(members) == len(parts) and len({(m.shape[1:], m.dtype) for m in members}) == 1:
            for member in names:
                del kept[member]
            kept[name.replace(parts[0], whole)] = mx.concatenate(members)
    return kept


def parted_rows(weights: Weights, whole: str, parts: tuple[str, ...], rows: tuple[int, ...]) -> Weights:
    """Tensors with `whole` in their names, cut into so many rows each under names with `parts` instead. One
    of another height stays as it is and is reported as surplus.
    """
    kept: Weights = {}
    for name, array in weights.items():
        if whole not in name or array.shape[:1] != (sum(rows),):
            kept[name] = array
            continue
        cut = mx.split(array, list(accumulate(rows[:-1])))
        kept |= {name.replace(whole, part): piece for part, piece in zip(parts, cut, strict=True)}
    return kept


def alike(parts: tuple[str, ...]) -> Row:
    """Matrices that are joined take the format that was asked for, each of them: rows of two formats are no
    matrix.
    """
    return Row(lambda tensor, _: tensor.has(*parts), REQUESTED, "joined with others")
