"""What is known of codes from headers and config.json."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from modelkit.source.inventory import Inventory
from modelkit.source.tensor import TensorInfo
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.source.fp8 import Fp8Weights

Layout = Literal["gptq", "awq", "rows", "bytes", "mxfp4", "mxfp8", "nvfp4"]
"""gptq: a word has inputs of one output, [inputs * bits / 32, outputs]. awq: a word has eight outputs of one
input, [inputs, outputs / 8], in AWQ's order. rows: a word has inputs of one output, [outputs, inputs * bits /
32]. bytes: one signed byte each, [outputs, inputs]. The others are small floats: bytes of [outputs, inputs *
bits / 8].
"""


@dataclass(frozen=True, slots=True)
class CodeMatrix:
    """One matrix, or of small floats a stack; its numbers are (code - zero) * scale, of small floats code *
    scale * factor / over.
    """

    name: str
    """As if it were floats: `X.weight`."""
    shape: tuple[int, ...]
    """Outputs, inputs; in front of a stack's, how many."""
    layout: Layout
    bits: int
    group_size: int
    """How many inputs of a row share a scale."""
    codes: TensorInfo
    scales: TensorInfo
    zeros: TensorInfo | None = None
    """None: all are the middle of the codes' range."""
    less_one: bool = False
    """Are zeros stored less one?"""
    symmetric: bool = True
    """Does config.json say that all zeros are the middle?"""
    groups: TensorInfo | None = None
    """The group of each input; None: they stand in order."""
    by_activation: bool = False
    """May they stand in another order?"""
    factor: TensorInfo | None = None
    """Of small floats: one for all; of a stack perhaps one for each matrix, or two where each holds two."""
    over: TensorInfo | None = None
    """Of small floats, as a factor."""
    largest: float = 1.0
    """What all numbers are divided by besides: a factor may say what the largest of them is."""

    @property
    def is_small_floats(self) -> bool:
        return self.layout in ("mxfp4", "mxfp8", "nvfp4")

    @property
    def dtype(self) -> str:
        """Of its numbers, as floats."""
        if not self.is_small_floats:
            return self.scales.dtype
        return "F32" if self.factored else "BF16"

    @property
    def factored(self) -> bool:
        """Has it a factor, or what its numbers are divided by?"""
        return self.factor is not None or self.over is not None

    @property
    def rows(self) -> int:
        """Of all its matrices."""
        return math.prod(self.shape[:-1])

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """All that is stored of it."""
        parts = (self.codes, self.scales, self.zeros, self.groups, self.factor, self.over)
        return tuple(part for part in parts if part is not None)

    @property
    def by_columns(self) -> bool:
        """Are its tensors stored inputs first?"""
        return self.layout in ("gptq", "awq")

    @property
    def ordered(self) -> bool:
        """Do groups stand in the order of activations?"""
        return self.by_activation and self.groups is not None

    @property
    def per_row(self) -> int:
        """Scales of a row."""
        return self.shape[-1] // self.group_size

    @property
    def nbytes(self) -> int:
        """Of all that is stored of it."""
        return sum(part.nbytes for part in self.tensors)


@dataclass(frozen=True, slots=True)
class CodeWeights:
    """All of a checkpoint."""

    tool: str
    """Who has made it: `GPTQ`."""
    matrices: Mapping[str, CodeMatrix]
    """By their names as floats."""
    unused: frozenset[str] = frozenset()
    """Names of tensors that say nothing of weights: shapes, scales of activations."""
    fp8: "Fp8Weights | None" = None
    """Those beside them that are FP8."""

    def as_floats(self, inventory: Inventory) -> Inventory:
        """The checkpoint with one tensor in place of each matrix's several: what families know by name."""
        parts = {part.name for one in self.matrices.values() for part in one.tensors}
        rest = {
            name: tensor
            for name, tensor in inventory.tensors.items()
            if name not in parts and name not in self.unused
        }
        own = {
            name: replace(one.codes, name=name, dtype=one.dtype, shape=one.shape)
            for name, one in self.matrices.items()
        }
        return replace(inventory, tensors={**rest, **own})
