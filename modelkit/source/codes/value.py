"""What is known of codes from headers and config.json."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from modelkit.source.inventory import Inventory
from modelkit.source.tensor import TensorInfo
from runtime.records import dataclass

Layout = Literal["gptq", "awq", "rows", "bytes"]
"""gptq: a word has inputs of one output, [inputs * bits / 32, outputs]. awq: a word has eight outputs of one
input, [inputs, outputs / 8], in AWQ's order. rows: a word has inputs of one output, [outputs, inputs * bits /
32]. bytes: one signed byte each, [outputs, inputs].
"""


@dataclass(frozen=True, slots=True)
class CodeMatrix:
    """One matrix; its numbers are (code - zero) * scale."""

    name: str
    """As if it were floats: `X.weight`."""
    shape: tuple[int, int]
    """Outputs, inputs."""
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
        return self.shape[1] // self.group_size

    @property
    def nbytes(self) -> int:
        """Of all that is stored of it."""
        parts = (self.codes, self.scales, self.zeros, self.groups)
        return sum(part.nbytes for part in parts if part is not None)


@dataclass(frozen=True, slots=True)
class CodeWeights:
    """All of a checkpoint."""

    tool: str
    """Who has made it: `GPTQ`."""
    matrices: Mapping[str, CodeMatrix]
    """By their names as floats."""
    unused: frozenset[str] = frozenset()
    """Names of tensors that say nothing of weights: shapes, scales of activations."""

    def as_floats(self, inventory: Inventory) -> Inventory:
        """The checkpoint with one tensor in place of each matrix's several: what families know by name."""
        parts = {
            part.name
            for one in self.matrices.values()
            for part in (one.codes, one.scales, one.zeros, one.groups)
            if part is not None
        }
        rest = {
            name: tensor
            for name, tensor in inventory.tensors.items()
            if name not in parts and name not in self.unused
        }
        own = {
            name: replace(one.codes, name=name, dtype=one.scales.dtype, shape=one.shape)
            for name, one in self.matrices.items()
        }
        return replace(inventory, tensors={**rest, **own})
