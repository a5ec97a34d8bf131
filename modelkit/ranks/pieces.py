"""Where a file has the numbers of a slice, and in which amounts they are sent."""

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from modelkit.ranks.streaming import Ranges, SliceBytes
from modelkit.source.tensor import TensorInfo
from runtime.ranks.slices import Slice
from runtime.records import dataclass

PIECE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """Numbers of a slice that are sent at once: of some rows, [start, stop), ranges of bytes."""

    rows: tuple[int, int]
    ranges: Ranges
    width: int
    """Bytes of a row in the file."""

    @property
    def nbytes(self) -> int:
        start, stop = self.rows
        return (stop - start) * sum(last - first for first, last in self.ranges)

    def read(self, tensor: TensorInfo) -> np.ndarray:
        """Its bytes. Raises OSError, and ValueError where the file has become shorter."""
        start, stop = self.rows
        place = tensor.start + start * self.width
        whole = np.memmap(tensor.path, np.uint8, "r", place, (stop - start, self.width))
        return np.concatenate([whole[:, slice(*ends)] for ends in self.ranges], axis=1).reshape(-1)


def bytes_of(one: Slice, tensor: TensorInfo) -> SliceBytes:
    """Where the file has them."""
    whole = tensor.stop - tensor.start
    rows, inner, chosen = 1, whole, ((0, 1),)
    if one.ranges:
        rows, chosen = math.prod(tensor.shape[: one.axis]), one.ranges
        inner = whole // (rows * tensor.shape[one.axis])
    return SliceBytes(rows, tuple((start * inner, stop * inner) for start, stop in chosen), whole // rows)


def pieces_of(one: Slice, tensor: TensorInfo) -> Iterator[Piece]:
    """In the order of its numbers; none is of more than PIECE_BYTES."""
    found = bytes_of(one, tensor)
    rows, ranges, width = found.rows, found.ranges, found.width
    mine = sum(stop - start for start, stop in ranges)
    if mine <= PIECE_BYTES:
        step = PIECE_BYTES // max(mine, 1)
        for row in range(0, rows if mine else 0, step):
            yield Piece((row, min(row + step, rows)), ranges, width)
        return
    for row in range(rows):
        for start, stop in ranges:
            for ends in pairwise([*range(start, stop, PIECE_BYTES), stop]):
                yield Piece((row, row + 1), (ends,), width)
