"""An adapter's numbers taken from the network's modules back to where a checkpoint has the matrices.

`filled` the other way: rows are asked where they are (`fusion_sites.Way`), and what was joined, cut, stacked
or scaled on the way is undone. A matrix whose rows are in several modules gets their pairs side by side, and
one that all share once; ranks of zeros, which only filled up, are left out. Numbers move; computed in float32
is what a family multiplies on the way, and scales that differ within one matrix.

Dimensions: E matrices in a tensor, R rows, C columns, r the rank.
"""

from collections.abc import Iterator, Mapping

import mlx.core as mx
import numpy as np

from modelkit.pack.adapters.fusion_sites import Way, Ways
from runtime.nn.adapters.low_rank import LowRank, LowRanks
from runtime.records import dataclass

Shape = tuple[int, ...]


class Untold(ValueError):
    """What cannot be taken back; its text goes behind a name."""


@dataclass(frozen=True, slots=True)
class _Block:
    """What one pair adds to one matrix."""

    left: mx.array
    """[R, r]"""
    right: mx.array
    """[C, r]"""
    scale: float


def pair_of(way: Way, shape: Shape, known: Ways, brought: LowRanks, shared: set[int]) -> LowRank | None:
    """Of the tensor of this shape, outputs first, whose rows go that way; None if it has none. shared: which
    parameters have rows of other tensors, too. Raises Untold.
    """
    count = shape[0] if len(shape) > 2 else 1
    matrices = [list(_blocks(way, rows, known, brought)) for rows in np.split(np.arange(way.row.size), count)]
    blocks = [block for matrix in matrices for block in matrix]
    places = {int(place) for place in np.unique(way.parameter)}
    pairs = {known.parameters[place]: brought.pairs.get(_module(known, place)) for place in places - {-1}}
    dora = any(pair is not None and pair.magnitude is not None for pair in pairs.values())
    empty = not any(block.left.any().item() for block in blocks)
    if not blocks or (empty and not dora and places & shared):
        return None
    scale = max((block.scale for block in blocks), key=abs)
    lefts, rights = zip(*(_matrix(matrix, shape, scale, whole=empty) for matrix in matrices), strict=True)
    left, right = _stacked(lefts, shape), _stacked(rights, shape)
    tables = set(pairs) & known.tables
    if tables:
        (pair,) = pairs.values()
        magnitude = pair.magnitude if pair else None
        return LowRank(left, right.swapaxes(-1, -2), scale, magnitude)
    magnitude = _vector(way, known, brought, "magnitude", scale) if dora else None
    bias = _vector(way, known, brought, "bias", scale)
    return LowRank(right, left.swapaxes(-1, -2), scale, magnitude, bias)


def whole_of(way: Way, shape: Shape, known: Ways, brought: LowRanks) -> mx.array | None:
    """The tensor's own numbers where the adapter brings them whole; None if it brings none."""
    places = {int(place) for place in np.unique(way.parameter)}
    names = {place: known.parameters[place] for place in places - {-1}}
    if not any(name in brought.whole for name in names.values()):
        return None
    if -1 in places or any(name not in brought.whole for name in names.values()):
        raise Untold("is brought in parts")
    rows = mx.zeros((way.row.size, int(np.prod(shape)) // way.row.size))
    moved = (way.times != 1).any() or (way.plus != 0).any()
    if not moved:
        rows = rows.astype(brought.whole[next(iter(names.values()))].dtype)
    for place, name in names.items():
        mine = np.flatnonzero(way.parameter == place)
        values = brought.whole[name].reshape(-1, rows.shape[-1])[mx.array(way.row[mine])]
        if moved:
            plus, times = (mx.array(one[mine])[:, None] for one in (way.plus, way.times))
            values = (values.astype(mx.float32) - plus) / times
        rows[mx.array(mine)] = values
    return rows.reshape(shape)


def _module(known: Ways, place: int) -> str:
    return known.parameters[place].rpartition(".")[0]


def _blocks(way: Way, rows: np.ndarray, known: Ways, brought: LowRanks) -> Iterator[_Block]:
    """Those of the matrix that has these rows."""
    for place in dict.fromkeys(way.parameter[rows].tolist()):
        pair = brought.pairs.get(_module(known, place)) if place >= 0 else None
        if pair is None or not known.parameters[place].endswith(".weight"):
            continue
        table = known.parameters[place] in known.tables
        ups = pair.down if table else pair.up.swapaxes(-1, -2).reshape(-1, pair.up.shape[-2])
        down = pair.up.T if table else pair.down
        at = np.flatnonzero(way.parameter[rows] == place)
        row, times = way.row[rows][at], way.times[rows][at]
        stacks = row // known.shapes[place][-2] if down.ndim > 2 else np.zeros(row.size, np.int64)
        for stack in dict.fromkeys(stacks.tolist()):
            mine = stacks == stack
            values = ups[mx.array(row[mine])]
            if (times[mine] != 1).any():
                values = values.astype(mx.float32) / mx.array(times[mine])[:, None]
            left = mx.zeros((rows.size, values.shape[-1]), values.dtype)
            left[mx.array(at[mine])] = values
            yield _Block(left, down[stack] if down.ndim > 2 else down, pair.scale)


def _matrix(blocks: list[_Block], shape: Shape, scale: float, *, whole: bool) -> tuple[mx.array, mx.array]:
    """left and right of one matrix. whole: zeros, too."""
    merged: list[_Block] = []
    for block in blocks:
        for place, other in enumerate(merged):
            same = other.scale == block.scale and other.right.shape == block.right.shape
            if same and mx.array_equal(other.right, block.right).item():
                merged[place] = _Block(other.left + block.left, other.right, block.scale)
                break
        else:
            merged.append(block)
    lefts, rights = [mx.zeros((shape[-2], 0))][: not merged], [mx.zeros((shape[-1], 0))][: not merged]
    for block in merged:
        kept = np.flatnonzero(np.array(mx.any(block.left != 0, axis=0)) | whole)
        left = block.left[:, mx.array(kept)]
        if block.scale != scale:
            left = left.astype(mx.float32) * (block.scale / scale)
        lefts.append(left)
        rights.append(block.right[:, mx.array(kept)])
    return mx.concatenate(lefts, axis=1), mx.concatenate(rights, axis=1)


def _stacked(matrices: tuple[mx.array, ...], shape: Shape) -> mx.array:
    """Ranks are filled up with zeros."""
    if len(shape) < 3:
        return matrices[0]
    rank = max(one.shape[-1] for one in matrices)
    return mx.stack([mx.pad(one, [(0, 0), (0, rank - one.shape[-1])]) for one in matrices])


def _vector(way: Way, known: Ways, brought: LowRanks, leaf: str, scale: float) -> mx.array | None:
    """[R]: magnitudes or biases; None where there are none."""
    found: dict[int, tuple[mx.array, float]] = {}
    for place in np.unique(way.parameter).tolist():
        pair = brought.pairs.get(_module(known, place)) if place >= 0 else None
        values: mx.array | None = getattr(pair, leaf, None)
        if pair is not None and values is not None:
            found[place] = values.reshape(-1), pair.scale / scale if leaf == "bias" else 1.0
    if not found:
        return None
    if leaf == "magnitude" and not np.isin(way.parameter, list(found)).all():
        raise Untold("has magnitudes for some of its rows alone")
    exact = (way.times == 1).all() and all(share == 1 for _, share in found.values())
    out = mx.zeros((way.row.size,), next(iter(found.values()))[0].dtype if exact else mx.float32)
    for place, (values, share) in found.items():
        mine = np.flatnonzero(way.parameter == place)
        times = way.times[mine] if leaf == "bias" else np.abs(way.times[mine])
        its = values[mx.array(way.row[mine])]
        out[mx.array(mine)] = its if exact else its.astype(mx.float32) * mx.array(share / times)
    return out


def shared_places(ways: Mapping[str, Way]) -> set[int]:
    """Which parameters have rows of several tensors."""
    seen = [int(place) for way in ways.values() for place in np.unique(way.parameter) if place >= 0]
    return {place for place in seen if seen.count(place) > 1}
