"""Pieces of matrices: which numbers of a tensor one of several ranks has.

A piece is said once for a module and means the same for a plain matrix and a packed one: outputs are rows,
which move whole with their scales; inputs are columns, which are cut between groups that share a scale. What
is added to the outputs of a matrix that is cut by inputs is added once, by the first shard.

Matrices are [out, in], stacks of them [experts, out, in] or [heads, out, in].
"""

from collections.abc import Sequence
from typing import Any, Literal

from runtime.errors import CannotCut
from runtime.records import dataclass

Range = tuple[int, int]
"""[start, stop)"""


@dataclass(frozen=True, slots=True)
class Shard:
    """One of the ranks that share a stage."""

    index: int
    count: int

    def heads(self, heads: int) -> Range:
        """Its heads. CannotCut where they are not as many for each."""
        if heads % self.count:
            raise CannotCut(f"{heads} heads are not a multiple of {self.count}")
        own = heads // self.count
        return self.index * own, (self.index + 1) * own

    def groups(self, groups: int) -> Range:
        """Its groups of heads, of whose keys and values heads read. Fewer than shards: some have the same."""
        if groups % self.count and self.count % groups:
            raise CannotCut(f"{groups} heads of keys and values do not divide among {self.count}")
        if groups >= self.count:
            return self.heads(groups)
        own = self.index * groups // self.count
        return own, own + 1

    def units(self, size: int, unit: int) -> Range:
        """Its part of `size` numbers, as even as whole units let it be."""
        count = size // unit
        if size % unit or count < self.count:
            raise CannotCut(f"{size} columns are {count} groups of {unit}, too few for {self.count}")
        first, last = (count * i // self.count for i in (self.index, self.index + 1))
        return first * unit, last * unit


@dataclass(frozen=True, slots=True)
class Piece:
    """Some of a module's numbers."""

    along: Literal["outputs", "inputs", "stack", "each"]
    """stack: one axis of each of its tensors. each: the same of experts, and of what is added to them."""
    ranges: tuple[Range, ...]
    """One behind the other."""
    size: int
    """How long the whole is along that axis."""
    first: bool = True
    """Is it of the first shard?"""
    axis: int = 0
    """Of a stack: where it is stacked."""

    def share(self, leaf: str) -> float:
        """How much of this tensor of the module it is."""
        if self.along == "inputs" and leaf == "bias":
            return float(self.first)
        return sum(stop - start for start, stop in self.ranges) / self.size

    def has(self, leaf: str) -> bool:
        """Is there a part of this tensor of the module? If not, none of it is here."""
        return self.first or self.along != "inputs" or leaf != "bias"

    def where(self, leaf: str, shape: Sequence[int]) -> tuple[int, tuple[Range, ...]]:
        """The axis of this tensor of the module, and what of it is here."""
        if self.along in ("stack", "each"):
            return self.axis, self.ranges
        if leaf == "bias":
            last = len(shape) - 1
            return last, ((0, shape[last]),) if self.along == "inputs" else self.ranges
        if self.along == "outputs":
            return max(len(shape) - 2, 0), self.ranges
        width = shape[-1]  # fewer than columns where several are packed in one, or share a scale
        return len(shape) - 1, tuple((a * width // self.size, b * width // self.size) for a, b in self.ranges)


def scaled(ranges: Sequence[Range], unit: int) -> tuple[Range, ...]:
    """Ranges of heads as ranges of numbers."""
    return tuple((start * unit, stop * unit) for start, stop in ranges)


def group_of(module: Any) -> int:
    """Columns of a matrix that can only be had together."""
    return module.group_size if "scales" in module else 1


def inputs_of(module: Any) -> int:
    """Columns of a matrix, packed or not."""
    width = module.weight.shape[-1]
    return width * 32 // module.bits if "scales" in module else width
