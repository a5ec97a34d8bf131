"""Taking ranges of tensors: of one that is stored as it is used, nothing but those bytes is read.

MLX reads a tensor whole or not at all, and a view of some rows keeps all of it in memory. So ranges are
copied out of the mapped file. A tensor that its family makes of stored ones (experts to be stacked, filters
to be turned) is made first, and cut then, one at a time.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from runtime.cpu.native.mapped_weights import header_of
from runtime.ranks.pieces import Range
from runtime.records import dataclass
from runtime.weights.files import DTYPES

_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_SAME = frozenset(DTYPES) - {"BOOL"}
"""Types whose bytes MLX holds as they are stored."""


@dataclass(frozen=True, slots=True)
class _Stored:
    path: Path
    start: int
    """Of its bytes in the file."""
    dtype: mx.Dtype
    shape: tuple[int, ...]

    def read(self, axis: int, ranges: Sequence[Range]) -> mx.array:
        words = _WORDS[self.dtype.size]
        whole = np.memmap(self.path, words, "r", self.start, self.shape)
        parts = [whole[(slice(None),) * axis + (slice(*ends),)] for ends in ranges]
        return mx.array(np.concatenate(parts, axis=axis)).view(self.dtype)


class Taking:
    """Takes ranges of tensors."""

    def __init__(self, files: Sequence[Path], stored: Mapping[str, mx.array]) -> None:
        """stored: what MLX gave for the tensors of these files, not read yet."""
        found = {name: one for file in files for name, one in _tensors(file)}
        self._stored = {id(array): found[name] for name, array in stored.items() if name in found}

    def __call__(self, array: mx.array, axis: int, ranges: Sequence[Range]) -> mx.array:
        if list(ranges) == [(0, array.shape[axis])]:
            return array
        known = self._stored.get(id(array))
        if known is not None:
            return known.read(axis, ranges)
        mine = taken(array, axis, ranges)
        mx.eval(mine)  # what it was made of is given back before the next is made
        return mine


def taken(array: mx.array, axis: int, ranges: Iterable[Range]) -> mx.array:
    """Ranges of an axis, one behind the other: a copy, so that the whole need not stay."""
    return mx.take(array, mx.concatenate([mx.arange(*ends) for ends in ranges]), axis=axis)


def _tensors(file: Path) -> list[tuple[str, _Stored]]:
    header, data = header_of(file)
    return [(name, _stored(file, data, said)) for name, said in header.items() if said["dtype"] in _SAME]


def _stored(file: Path, data: int, said: Mapping[str, Any]) -> _Stored:
    return _Stored(file, data + said["data_offsets"][0], DTYPES[said["dtype"]], tuple(said["shape"]))
