"""Packages that keep GGUF's blocks as they are: `X.weight` uint8 [rows, bytes of a row], and in config.json's
`quantization` block {"mode": "gguf", "type": "q4_k"} for the module X. `X.factor` [1], or one for each
expert, multiplies all numbers of a weight; only NVFP4 has it.

What is made of them is lazy, so that names and shapes can be compared before anything is computed. Where
blocks may stay, an array without numbers stands in for each weight while a family brings tensors under its
own names; a family that does more to one than name it gets the numbers.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from typing import Any, Literal

import mlx.core as mx

from runtime.blocks.decode import Packed, decoded, packed, packed_type
from runtime.blocks.forms import EXACT_IN_F32, NEAREST, Form
from runtime.blocks.types import BlockType
from runtime.errors import WeightMismatch
from runtime.quoting import quoted
from runtime.records import dataclass

MODE = "gguf"

Floats = Literal["none", "inexact", "all"]
"""Which blocks become floats: those that MLX has no exact form for, or all. The rest are packed."""

# Numbers that are decoded together; the steps between take several times their memory.
_PIECE = 1 << 22


@dataclass(frozen=True, slots=True)
class KeptBlocks:
    """A weight whose blocks stay as they lie."""

    module: str
    """Whose it is in the file."""
    rows: mx.array
    """uint8 [..., rows, bytes of a row]."""
    kind: BlockType
    stand_in: mx.array
    """Lazy, of the shape and type of the numbers; all of it is NaN."""

    @property
    def numbers(self) -> mx.array:
        """float32 [..., rows, width], exactly."""
        return _numbers(self.rows, self.kind, None)


@dataclass(frozen=True, slots=True)
class Unfolded:
    """Weights with no block left among them."""

    weights: dict[str, mx.array]
    types: Mapping[str, BlockType]
    """Of the modules that were blocks."""
    nearest: tuple[str, ...] = field(default=())
    """Modules that became MLX's nearest form, which is not exact."""
    kept: Mapping[int, KeptBlocks] = field(default_factory=dict[int, KeptBlocks])
    """By the id of what stands in for them among the weights."""

    def changed(self, fitted: Iterable[mx.array]) -> set[str]:
        """Modules whose stand-ins are not among these arrays as they were: their numbers are needed."""
        left = self.kept.keys() - {id(array) for array in fitted}
        return {self.kept[one].module for one in left}

    @property
    def notes(self) -> tuple[str, ...]:
        if not self.nearest:
            return ()
        names = ", ".join(sorted({self.types[module].name.upper() for module in self.nearest}))
        count = len(self.nearest)
        return (
            f"{count} {'matrix' if count == 1 else 'matrices'} of {names} run as {NEAREST.bits}-bit codes in "
            f"groups of {NEAREST.group_size}, the nearest form that MLX has",
        )


def stored_types(config: Mapping[str, Any]) -> dict[str, BlockType]:
    """The modules that config.json says are kept as GGUF's blocks. Raises WeightMismatch for other types."""
    block = config.get("quantization")
    entries = block.items() if isinstance(block, Mapping) else ()
    found: dict[str, BlockType] = {}
    for module, entry in entries:
        if isinstance(entry, Mapping) and entry.get("mode") == MODE:
            kind = packed_type(str(entry.get("type")))
            if kind is None:
                raise WeightMismatch([f"{module} is stored as {quoted(entry.get('type'))}, an unknown type"])
            found[module] = kind
    return found


def unfolded(
    weights: Mapping[str, mx.array],
    config: Mapping[str, Any],
    *,
    floats: Floats,
    stay: Collection[str] = (),
    but: Collection[str] = (),
) -> Unfolded:
    """Blocks as floats (float32, exactly), or in MLX's packed form; those of the types `stay` as they are, if
    their modules are not among `but`.

    Raises WeightMismatch for weights that are not whole blocks.
    """
    types = {module: kind for module, kind in stored_types(config).items() if f"{module}.weight" in weights}
    made = dict(weights)
    nearest: list[str] = []
    kept: dict[int, KeptBlocks] = {}
    for module, kind in types.items():
        rows, factor = made.pop(f"{module}.weight"), made.pop(f"{module}.factor", None)
        _check(module, kind, rows)
        if kind.name in stay and factor is None and module not in but:
            width = rows.shape[-1] // kind.nbytes * kind.weights
            stand_in = mx.full((*rows.shape[:-1], width), math.nan, mx.float32)
            kept[id(stand_in)] = KeptBlocks(module, rows, kind, stand_in)
            made[f"{module}.weight"] = stand_in
            continue
        exact = affine_form(kind, factor=factor is not None)[1]
        if floats == "all" or (floats == "inexact" and not exact):
            made[f"{module}.weight"] = _numbers(rows, kind, factor)
            continue
        if not exact:
            nearest.append(module)
        parts = as_affine(rows, kind, factor)
        made[f"{module}.weight"] = parts.codes
        made[f"{module}.scales"] = parts.scales
        made[f"{module}.biases"] = parts.biases
    return Unfolded(made, types, tuple(nearest), kept)


def affine_form(kind: BlockType, *, factor: bool) -> tuple[Form, bool]:
    """MLX's affine form of blocks, with a factor beside them or not; does it say exactly the same?"""
    exact = None if factor else EXACT_IN_F32.get(kind.name)
    return (NEAREST, False) if exact is None else (exact, True)


def as_affine(rows: mx.array, kind: BlockType, factor: mx.array | None) -> Packed:
    """Blocks uint8 [..., rows, bytes of a row] in `affine_form`, with float32 scales."""
    _, exact = affine_form(kind, factor=factor is not None)
    if exact:
        return Packed(*_in_pieces(rows, kind, lambda part: packed(part, kind)))
    numbers = _numbers(rows, kind, factor)
    return Packed(*mx.quantize(numbers, group_size=NEAREST.group_size, bits=NEAREST.bits))


def _check(module: str, kind: BlockType, rows: mx.array) -> None:
    if rows.dtype != mx.uint8 or rows.ndim < 2 or not rows.size or rows.shape[-1] % kind.nbytes:
        raise WeightMismatch(
            [
                f"{module} is {rows.dtype} {list(rows.shape)}; rows of whole {kind.name.upper()} blocks of "
                f"{kind.nbytes:,} bytes were expected"
            ]
        )


def _numbers(rows: mx.array, kind: BlockType, factor: mx.array | None) -> mx.array:
    (found,) = _in_pieces(rows, kind, lambda part: (decoded(part, kind),))
    if factor is None:
        return found
    return found * factor.astype(mx.float32).reshape(-1, *([1] * (rows.ndim - 1)))


def _in_pieces(
    rows: mx.array, kind: BlockType, make: Callable[[mx.array], Iterable[mx.array]]
) -> list[mx.array]:
    """What `make` makes of some rows of bytes, of all of them: one piece after the other, so that what lies
    between is let go before the next one's is there.
    """
    *leading, row_bytes = rows.shape
    flat = rows.reshape(-1, row_bytes)
    count = max(_PIECE // (row_bytes // kind.nbytes * kind.weights), 1)
    pieces: list[list[mx.array]] = []
    for start in range(0, flat.shape[0], count):
        part = flat[start : start + count]
        if pieces:
            (part,) = mx.depends([part], pieces[-1])
        pieces.append(list(make(part)))
    whole = (list(parts) for parts in zip(*pieces, strict=True))
    return [(mx.concatenate(parts) if pieces[1:] else parts[0]).reshape(*leading, -1) for parts in whole]
