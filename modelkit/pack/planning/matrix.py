"""What the policy decides about: a matrix or parameter under MLX's name, and where its rows come from.

Also those that are no experts: one tensor each, renamed, halved or turned over as the record of
the family says (`Checkpoint`). All of it is names and slabs; nothing is read.
"""

import re
from collections.abc import Iterable

from modelkit.pack.planning.slabs import Piece, Slab, Tiles, turned, whole
from modelkit.source.tensor import TensorInfo
from runtime.records import dataclass
from runtime.tensors.checkpoint import Checkpoint

_LESS_ONE = re.compile(r"(?!.*\.linear_attn\.norm\.).*norm\w*\.weight", re.ASCII)


@dataclass(frozen=True, slots=True)
class Matrix:
    """One matrix or parameter to decide about."""

    name: str
    known_as: str
    """The name that the policy judges."""
    dtype: str
    shape: tuple[int, ...]
    slabs: tuple[Piece, ...]
    """Where its rows come from, in order."""
    plus_one: bool = False
    """Is it stored less one, and written whole?"""


def decoded_dtype(tensor: TensorInfo, tile: Tiles | None) -> str:
    """The dtype of a tensor's values: FP8 counts as BF16, and float64, which MLX has not, as F32."""
    return "BF16" if tile else "F32" if tensor.dtype == "F64" else tensor.dtype


def alone(
    tensor: TensorInfo, files: Checkpoint, tile: Tiles | None, *, input_first: bool, less_one: bool
) -> list[Matrix]:
    """What is not an expert: one matrix, or two that stand in one, under MLX's names.

    input_first: the checkpoint is one that has its family's `input_first` matrices the other way round.
    less_one: it has norms less one, where its family is one that may.
    """
    for fused, parts in (*files.halved, *files.paired):
        if fused in tensor.name and len(tensor.shape) == 2 and tensor.shape[0] % 2 == 0:
            return _halves(tensor, fused, parts, tile, in_turn=(fused, parts) in files.paired)
    name, shape = _named(tensor.name, files), tensor.shape
    slabs: tuple[Piece, ...] = (whole(tensor, tile),)
    if input_first and len(shape) == 2 and name.endswith(files.input_first):
        shape, slabs = shape[::-1], turned(tensor, tile)
    if files.settled and name.endswith("conv1d.weight") and len(shape) == 3 and shape[1] == 1:
        shape = (shape[0], shape[2], 1)
    plus_one = less_one and files.settled and _LESS_ONE.fullmatch(name) is not None
    return [Matrix(name, tensor.name, decoded_dtype(tensor, tile), shape, slabs, plus_one)]


def stored_input_first(tensors: Iterable[TensorInfo], files: Checkpoint) -> bool:
    """Does the checkpoint have its family's `input_first` matrices so? MLX's conversions do not."""
    shapes = [tensor.shape for tensor in tensors if tensor.name.endswith(".c_attn.weight")]
    return bool(files.input_first) and any(len(s) == 2 and s[1] == 3 * s[0] for s in shapes)


def stored_less_one(tensors: Iterable[TensorInfo]) -> bool:
    """Does the checkpoint have its norms less one, as published? MLX's conversions, and what is made of
    GGUF, have put that right, and filters too: they are [channels, taps, 1] there.
    """
    filters = [tensor.shape for tensor in tensors if tensor.name.endswith("conv1d.weight")]
    return not any(len(shape) == 3 and shape[-1] == 1 for shape in filters)


def _named(name: str, files: Checkpoint) -> str:
    for theirs, ours in files.renamed:
        name = name.replace(theirs, ours)
    if files.prefix and not name.startswith("lm_head."):
        return files.prefix + name.removeprefix(files.prefix).removeprefix("transformer.")
    return name


def _halves(
    tensor: TensorInfo, fused: str, parts: tuple[str, str], tile: Tiles | None, *, in_turn: bool
) -> list[Matrix]:
    rows, width = tensor.shape
    middle, row_bytes = rows // 2, whole(tensor, tile).row_bytes
    places = ((0, rows, 2), (1, rows, 2)) if in_turn else ((0, middle, 1), (middle, rows, 1))
    return [
        Matrix(
            tensor.name.replace(fused, part),
            tensor.name,
            decoded_dtype(tensor, tile),
            (middle, width),
            (Slab(tensor, *place, row_bytes, tile),),
        )
        for part, place in zip(parts, places, strict=True)
    ]
