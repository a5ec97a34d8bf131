"""A decision -> the tensors that are written, in MLX's layout and under its names."""

from collections.abc import Mapping
from dataclasses import replace

from modelkit.pack.planning.matrix import Matrix
from modelkit.pack.planning.plan_types import Output, Planned
from modelkit.pack.planning.policy import Choice
from modelkit.pack.planning.slabs import Groups, packing_label, whole
from modelkit.source.prequantized import Packing
from modelkit.source.tensor import TensorInfo
from runtime.blocks.types import BlockType
from runtime.quant import FORMATS, Format

_F32 = next(row for row in FORMATS if row.name == "f32")


def decide(matrix: Matrix, choice: Choice) -> Planned:
    """A matrix stored as chosen; bytes pass as they are where the choice is what it already is.

    What 1 is added to becomes float32: 16 bits would round what the source says exactly.
    """
    target = _F32 if matrix.plus_one else choice.format
    if target is None or target.name == matrix.dtype.lower():
        output = Output(matrix.name, matrix.dtype, matrix.shape, matrix.slabs)
        label = matrix.dtype.lower()
        return Planned(
            matrix.name, matrix.dtype, matrix.shape, None, label, choice.reason, (output,), matrix.plus_one
        )
    outputs = _quantized(matrix, target) if target.quantized else _cast(matrix, target)
    return Planned(
        matrix.name, matrix.dtype, matrix.shape, target, target.name, choice.reason, outputs, matrix.plus_one
    )


def _cast(matrix: Matrix, target: Format) -> tuple[Output, ...]:
    return (Output(matrix.name, target.name.upper(), matrix.shape, matrix.slabs),)


def _quantized(matrix: Matrix, target: Format) -> tuple[Output, ...]:
    """MLX's layout: codes in 32-bit words, then scales, then (affine) biases, named after the module."""
    *leading, width = matrix.shape
    module = matrix.name.removesuffix(".weight")
    groups = (*leading, width // target.group_size)
    codes = Output(f"{module}.weight", "U32", (*leading, width * target.bits // 32), matrix.slabs)
    if target.mode != "affine":
        return codes, Output(f"{module}.scales", "U8", groups)
    scale = Output(f"{module}.scales", matrix.dtype, groups)
    return codes, scale, Output(f"{module}.biases", matrix.dtype, groups)


def packed_module(module: str, packing: Packing, tensors: Mapping[str, TensorInfo]) -> Planned:
    """A module that is quantized already, under one row: its codes, scales, biases and the order of its
    inputs pass as they are.
    """
    leaves = ("weight", "scales", "biases", "order")
    parts = [tensors[name] for leaf in leaves if (name := f"{module}.{leaf}") in tensors]
    codes, scales = parts[0], parts[1]
    shape = (*codes.shape[:-1], scales.shape[-1] * packing.group_size)
    outputs = tuple(Output(part.name, part.dtype, part.shape, (whole(part),)) for part in parts)
    dtype = scales.dtype if packing.mode == "affine" else "BF16"
    return Planned(codes.name, dtype, shape, None, packing_label(*packing), "already quantized", outputs)


def repacked_module(module: str, packing: Packing, tensors: Mapping[str, TensorInfo]) -> Planned:
    """The same, where its numbers change: unpacked, and packed again in the same way."""
    same = packed_module(module, packing, tensors)
    leaves = ("weight", "scales", "biases", "order")
    codes, scales, biases, order = (tensors.get(f"{module}.{leaf}") for leaf in leaves)
    assert codes is not None
    assert scales is not None
    row = next(row for row in FORMATS if (row.bits, row.group_size, row.mode) == tuple(packing))
    slab = replace(whole(codes), groups=Groups(scales, biases, *packing, order=order))
    matrix = Matrix(codes.name, codes.name, same.dtype, same.shape, (slab,))
    made = decide(matrix, Choice(row, "an adapter is added; packed again"))
    kept = tuple(one for one in same.outputs if order and one.name == order.name)
    return replace(made, outputs=made.outputs + kept)


def block_module(module: str, kind: BlockType, tensors: Mapping[str, TensorInfo]) -> Planned:
    """A module that is kept in GGUF's blocks: they pass as they are, a factor beside them too."""
    parts = [tensors[name] for leaf in ("weight", "factor") if (name := f"{module}.{leaf}") in tensors]
    *leading, row_bytes = parts[0].shape
    shape = (*leading, row_bytes // kind.nbytes * kind.weights)
    outputs = tuple(Output(part.name, part.dtype, part.shape, (whole(part),)) for part in parts)
    return Planned(parts[0].name, "F32", shape, None, kind.name, "kept in GGUF's blocks", outputs)


def single(tensor: TensorInfo) -> Matrix:
    """One tensor by itself, whatever its name."""
    return Matrix(tensor.name, tensor.name, tensor.dtype, tensor.shape, (whole(tensor),))
