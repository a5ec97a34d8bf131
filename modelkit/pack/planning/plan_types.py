"""What a plan consists of: plain values, from the rows read to the tensors and files written.

    Slab, Columns  of one source tensor        where bytes come from (`slabs`)
    Output    one tensor of a written file     what becomes of them
    Planned   one matrix or parameter          a decision: its format, the reason, its outputs
    PlannedFile, Plan

Nothing here reads weights or knows MLX. Equal inputs give equal plans, so a fingerprint can key a cache.
"""

import math
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from modelkit.pack.planning.slabs import Coded, Columns, Factor, Joined, Order, Piece, Slab, packing_label
from modelkit.source.codes import CodeMatrix
from modelkit.source.tensor import BITS
from runtime.quant import Format
from runtime.records import dataclass

_NAMED = 2  # formats that a label names at most

if TYPE_CHECKING:
    import numpy as np

Role = Literal["target", "draft"]


@dataclass(frozen=True, slots=True)
class Output:
    """A tensor to write."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    slabs: tuple[Piece, ...] = ()
    """Where its bytes come from; () for a by-product of the tensor before it."""

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * BITS[self.dtype] // 8


@dataclass(frozen=True, slots=True, eq=False)
class Tuned:
    """Scales and biases that take the place of those that a format makes."""

    digest: str
    """Of all three, in hex: equal plans have equal ones."""
    scales: "np.ndarray | None" = None
    """float32, as the matrix's groups; None where what was written with them is known to be in the store."""
    biases: "np.ndarray | None" = None
    before: "np.ndarray | None" = None
    """The scales that the format makes, to tell that rows are the same ones."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One decision."""

    name: str
    dtype: str
    """Of the values, whatever stores them."""
    shape: tuple[int, ...]
    """Of the values, whatever stores them."""
    encode: Format | None
    """The format that rows are turned into; None where bytes pass as they are (or, from FP8, as BF16)."""
    label: str
    """The format as users read it."""
    reason: str
    """For the user."""
    outputs: tuple[Output, ...]
    plus_one: bool = False
    """Is one added to every value first?"""
    tuned: Tuned | None = None
    blocks: Literal["", "repacked", "kept"] = ""
    """What becomes of GGUF's blocks, and of other tools' codes: the same numbers in MLX's layout, rows of
    blocks as they are, or (where this is empty) floats."""
    exact: bool | None = None
    """Are the numbers exactly those of the source? None: not a question here."""

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def quantized(self) -> bool:
        """Are rows turned into codes here? Those that are codes already may stay as they are."""
        return self.encode is not None and self.encode.quantized

    @property
    def nbytes(self) -> int:
        return sum(output.nbytes for output in self.outputs)

    def fidelity(self) -> dict[str, Any]:
        """For what is quantized already: bits of a weight there and here, and whether it is exact."""
        if self.exact is None:
            return {}
        source = sum(slab.nbytes for slab in self.slabs)
        return {
            "exact": self.exact,
            "source_bits": round(8 * source / self.elements, 4),
            "bits": round(8 * self.nbytes / self.elements, 4),
        }

    @property
    def module(self) -> str:
        return self.name.removesuffix(".weight")

    @property
    def slabs(self) -> tuple[Piece, ...]:
        return tuple(slab for output in self.outputs for slab in output.slabs)

    @property
    def stored_dtype(self) -> str:
        """The source's dtype, lower case: `f8_e4m3` where `dtype` is the BF16 it decodes to."""
        slab = self.slabs[0]
        if isinstance(slab, Slab) and slab.groups is not None:
            return packing_label(slab.groups.bits, slab.groups.group_size, slab.groups.mode)
        if not isinstance(slab, Coded):
            return slab.tensor.dtype.lower()
        return slab.matrix.layout if slab.matrix.is_small_floats else f"int{slab.matrix.bits}"


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A safetensors file of the package."""

    path: str
    """In the package."""
    tensors: tuple[Planned, ...]
    """What is written to it, or what is in the copy."""
    source: Path | None = None
    """The file that it is a copy of; None where the tensors are written out."""
    source_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Every tensor's fate, and the config.json that goes with it."""

    role: Role
    source_kind: str
    format: Format | None
    """What was asked for; None: as the source is."""
    tensors: tuple[Planned, ...]
    files: tuple[PlannedFile, ...]
    """They share out `tensors`, in order."""
    config: dict[str, Any] = field(hash=False)
    notes: tuple[str, ...]
    """Sentences for the user."""

    @property
    def converts(self) -> bool:
        """False when whole files are copied and no tensor is touched."""
        return any(file.source is None for file in self.files)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def elements(self) -> int:
        return sum(tensor.elements for tensor in self.tensors)

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.nbytes / self.elements if self.elements else 0.0

    @property
    def label(self) -> str:
        """The format in a word: more than half of the elements are stored so. `q5+q4` where it takes two to
        be more than half, and `mixed` where it takes more: nothing is called by the name of its smaller part.
        """
        share: dict[str, int] = {}
        for tensor in self.tensors:
            share[tensor.label] = share.get(tensor.label, 0) + tensor.elements
        most = sorted(share, key=lambda label: -share[label])
        for count in range(1, _NAMED + 1):
            if 2 * sum(share[label] for label in most[:count]) > self.elements:
                return "+".join(most[:count])
        return "mixed" if most else ""

    @property
    def quantized(self) -> bool:
        """Is anything stored as codes and scales?"""
        return any(len(tensor.outputs) > 1 or tensor.blocks for tensor in self.tensors)

    @property
    def summary(self) -> str:
        """The format in words: `q4`, or `q8 (q4 was asked for)` where most is stored otherwise."""
        asked = self.format
        if asked is None or not asked.quantized or self.label == asked.name:
            return self.label
        return f"{self.label} ({asked.name} was asked for)"

    def stored(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """name -> (dtype, shape) of every tensor that will be written."""
        return {o.name: (o.dtype, o.shape) for tensor in self.tensors for o in tensor.outputs}

    def rows(self) -> list[dict[str, Any]]:
        """The table for `--dry-run`, one row per decision, in file order; plain JSON values."""
        return [
            {
                "name": tensor.name,
                "shape": list(tensor.shape),
                "source": tensor.stored_dtype,
                "format": tensor.label,
                "size_bytes": tensor.nbytes,
                "reason": tensor.reason,
                **tensor.fidelity(),
            }
            for tensor in self.tensors
        ]

    def to_json(self) -> dict[str, Any]:
        return {
            "role": self.role,
            "source": self.source_kind,
            "format": self.label,
            "size_bytes": self.nbytes,
            "parameters": self.elements,
            "bits_per_weight": round(self.bits_per_weight, 4),
            "tensors": self.rows(),
            "notes": list(self.notes),
        }

    def fingerprint(self) -> list[Any]:
        """What determines the bytes of the written files, given the sources' bytes: JSON without paths."""
        return [
            [file.path, [_tensor_print(tensor) for tensor in file.tensors]]
            for file in self.files
            if file.source is None
        ]


def _tensor_print(tensor: Planned) -> list[Any]:
    outputs = [[o.name, o.dtype, list(o.shape), [_slab_print(s) for s in o.slabs]] for o in tensor.outputs]
    known = [tensor.encode.name if tensor.encode else None, tensor.dtype, list(tensor.shape), outputs]
    more = [*(["plus one"] if tensor.plus_one else []), *([tensor.blocks] if tensor.blocks else [])]
    return [*known, *more, *(["tuned", tensor.tuned.digest] if tensor.tuned else [])]


def _slab_print(slab: Piece) -> list[Any]:
    if isinstance(slab, Order):
        return ["order", slab.tensor.name, slab.matrix.group_size]
    if isinstance(slab, Factor):
        return ["factor", *_factors(slab.matrix), slab.start, slab.step]
    if isinstance(slab, Coded):
        matrix = slab.matrix
        parts = [part and part.name for part in (matrix.codes, matrix.scales, matrix.zeros, matrix.groups)]
        kind = [matrix.layout, matrix.bits, matrix.group_size, matrix.less_one, matrix.symmetric]
        return ["codes", *parts, *_factors(matrix), *kind, slab.start, slab.stop, slab.step]
    if isinstance(slab, Joined):
        return ["joined", *map(_slab_print, slab.parts), list(slab.shape), repr(slab.change)]
    tiles: list[Any] = [slab.tiles.scales.name, *slab.tiles.block] if slab.tiles else []
    if slab.tiles and slab.tiles.shares > 1:
        tiles.append(slab.tiles.shares)
    if isinstance(slab, Columns):
        return [slab.tensor.name, "columns", slab.matrix, slab.start, slab.stop, slab.step, tiles]
    groups = [slab.groups.bits, slab.groups.group_size, slab.groups.mode] if slab.groups else []
    return [slab.tensor.name, slab.start, slab.stop, slab.step, slab.row_bytes, tiles, *groups]


def _factors(matrix: CodeMatrix) -> list[str]:
    named = (("times", matrix.factor), ("over", matrix.over))
    return [text for word, tensor in named if tensor for text in (tensor.name, word)]
