"""Rows of source tensors -> the bytes of output tensors. With `fp4` and `blocks` all here that touches MLX.

Every transform is row by row, so any block of rows gives the same bytes wherever tensors are cut; what is
stored the other way round is turned over block by block first. Arithmetic
runs on the CPU backend whatever the device: the same source must give the same digest on every machine. MLX
quantizes on one core per stream, so each worker thread has a stream of its own.
"""

from typing import TypeAlias

import mlx.core as mx
import numpy as np

from modelkit.errors import MalformedFile, SourceError
from modelkit.pack.part import Change
from modelkit.pack.planning.plan_types import Planned
from modelkit.pack.planning.slabs import (
    Coded,
    Columns,
    Factor,
    Groups,
    Joined,
    Order,
    Piece,
    Slab,
    Stored,
    Tiles,
)
from modelkit.pack.writing import codes, small_floats
from modelkit.pack.writing.blocks import changed, check_floats, numbers_of, stored_blocks
from modelkit.pack.writing.fp4 import quantize_fp4
from modelkit.pack.writing.numbers import DAMAGED, fault_of
from modelkit.pack.writing.nvfp4_range import Nvfp4Range
from modelkit.pack.writing.reader import Reader
from modelkit.pack.writing.tuning import with_tuned
from modelkit.source.tensor import TensorInfo
from runtime.blocks.finite import all_finite
from runtime.blocks.types import BLOCK_TYPES
from runtime.cpu.native.quantize import quantize
from runtime.quant import Format

Bytes: TypeAlias = memoryview | bytearray

_FLOATS = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}
_SLOW_ELEMENTS = 1 << 18
_STRIP_ROWS = 128


def transform(
    planned: Planned,
    slab: Piece,
    reader: Reader,
    fusion: Change | None = None,
    reach: Nvfp4Range | None = None,
) -> tuple[Bytes, ...]:
    """One block of rows: the bytes of the output that has the slab, then of each of its by-products. reach:
    is told what became of the numbers.

    Everything returned is evaluated and may change threads.
    """
    if isinstance(slab, Order):
        return (_raw(codes.order_of(slab.matrix, reader)),)
    if isinstance(slab, Factor):
        return (_raw(small_floats.factor_of(slab, reader)),)
    if stored := _as_stored(planned, slab, reader):
        return stored
    change = fusion if fusion is not None and fusion.touches(slab) else None
    raw = bytearray() if isinstance(slab, Joined | Coded) else _checked(planned, slab, reader)
    if isinstance(slab, Slab | Columns) and change is None and _passes(planned, slab):
        return (every_row(raw, slab),)
    with mx.stream(mx.cpu):
        values = _numbers(planned, slab, raw, reader, change)
        arrays = (values,) if planned.encode is None else _encode(values, planned.encode)
        if not planned.quantized:
            _check_range(planned, values, arrays[0])
        if planned.tuned is not None:
            arrays = with_tuned(planned, planned.tuned, slab, arrays)
        mx.eval(*arrays)
        if planned.quantized and reach is not None:
            reach.look(planned, values, arrays)
        return tuple(_bytes(array) for array in arrays)


def measure(planned: Planned, slab: Piece, reader: Reader, fusion: Change) -> None:
    """Show `fusion` one block of rows as they are stored."""
    if not isinstance(slab, Order | Factor):
        raw = bytearray() if isinstance(slab, Joined | Coded) else _checked(planned, slab, reader)
        with mx.stream(mx.cpu):
            fusion.measure(slab, _values(planned, slab, raw, reader))


def _as_stored(planned: Planned, slab: Stored | Joined | Coded, reader: Reader) -> tuple[Bytes, ...]:
    """Codes that stay the same ones, in MLX's layout or in their own; () where numbers are wanted."""
    if isinstance(slab, Slab) and planned.blocks:
        return stored_blocks(planned.blocks, every_row(reader.read(slab), slab), slab)
    if isinstance(slab, Slab) and slab.groups is None and slab.tensor.dtype == "U32":
        return (every_row(reader.read(slab), slab),)
    if isinstance(slab, Coded) and planned.blocks:
        room = small_floats if slab.matrix.is_small_floats else codes
        return tuple(_raw(part.reshape(-1)) for part in room.repacked(slab, reader))
    return ()


def _checked(planned: Planned, slab: Stored, reader: Reader) -> bytearray:
    """What is read for a slab. Raises MalformedFile where it is floats that no model has."""
    raw = reader.read(slab)
    if planned.exact is not None and slab.tiles is None:  # of a GGUF file, all of which is the model's
        check_floats(raw, slab)
    elif slab.tensor.dtype in _FLOATS and not planned.quantized:  # else the format's own check has them
        _check_numbers(planned, raw, slab.tensor.dtype)
    return raw


def _passes(planned: Planned, slab: Stored) -> bool:
    """Are its bytes written as they are?"""
    coded = slab.tiles is not None or (isinstance(slab, Slab) and slab.groups is not None)
    return planned.encode is None and not coded and not planned.plus_one


def _numbers(
    planned: Planned, slab: Stored | Joined | Coded, raw: bytearray, reader: Reader, change: Change | None
) -> mx.array:
    """What is to be stored, [rows, width], in the order in which it will lie."""
    values = _values(planned, slab, raw, reader)
    if change is not None:
        values = change.apply(slab, values)
    if change is None or planned.encode is None or planned.quantized:
        values = values.astype(_FLOATS[planned.dtype])  # else it is rounded once, to what is written
    if planned.quantized:
        if isinstance(slab, Slab) and slab.groups is not None and slab.groups.order is not None:
            values = mx.take_along_axis(values, _orders(slab, slab.groups.order, reader), axis=-1)
        _check_finite(planned, values)
    return values.astype(mx.float32) + 1 if planned.plus_one else values


def _check_finite(planned: Planned, values: mx.array) -> None:
    """A format has no code for NaN or infinity: it would store other numbers in their place."""
    dtype = next(name for name, kind in _FLOATS.items() if kind == values.dtype)
    if not all_finite(np.asarray(values.view(mx.uint8)).reshape(-1), dtype):
        raise MalformedFile(
            f"`{planned.name}` has numbers that are NaN or infinite, which {planned.label} cannot store",
            hint=DAMAGED,
        )


def _check_numbers(planned: Planned, raw: "Bytes | np.ndarray", dtype: str) -> None:
    """Every answer of a model with such numbers among its weights is lost."""
    if fault := fault_of(raw, dtype, planned.name, planned.shape):
        raise MalformedFile(f"`{planned.name}` has numbers that are {fault}", hint=DAMAGED)


def _check_range(planned: Planned, values: mx.array, written: mx.array) -> None:
    """Raise SourceError where a narrower float type loses a number: float16 ends at 65504."""
    dtype = next(name for name, kind in _FLOATS.items() if kind == written.dtype)
    raw = np.asarray(written.view(mx.uint8)).reshape(-1)
    if not all_finite(raw, dtype) and bool(mx.any(mx.isinf(written) & ~mx.isinf(values)).item()):
        raise SourceError(
            f"`{planned.name}` has numbers that are too large for {planned.label}",
            hint="Take a format with a wider range: bf16, f32, or a quantized one such as q8.",
        )
    _check_numbers(planned, raw, dtype)


def release_memory() -> None:
    """Give MLX's free buffers back to the system; called when a conversion has ended."""
    mx.clear_cache()


def every_row(raw: bytearray, slab: Slab | Columns) -> Bytes:
    """The slab's own rows, out of all that was read for it; those of float64 as float32."""
    rows = _own_rows(raw, slab)
    return _narrowed(rows, slab.tensor) if slab.tensor.dtype == "F64" else rows


def _narrowed(rows: Bytes, tensor: TensorInfo) -> Bytes:
    wide = np.frombuffer(rows, np.float64)
    with np.errstate(over="ignore", under="ignore"):
        narrow = wide.astype(np.float32)
    if (np.isinf(narrow) & ~np.isinf(wide)).any():
        raise SourceError(f"`{tensor.name}` has numbers that are too large for float32")
    if fault := fault_of(narrow, "F32", tensor.name, tensor.shape):
        raise MalformedFile(f"`{tensor.name}` has numbers that are {fault}", hint=DAMAGED)
    return narrow.view(np.uint8).data


def _own_rows(raw: bytearray, slab: Slab | Columns) -> Bytes:
    if isinstance(slab, Columns):
        kept = _turned_over(_grid(raw, slab)[:, :: slab.step])
    elif slab.step == 1:
        return raw
    else:
        kept = np.frombuffer(raw, np.uint8).reshape(-1, slab.row_bytes)[:: slab.step]
    return np.ascontiguousarray(kept).reshape(-1).view(np.uint8).data


def _grid(raw: bytearray, slab: Columns) -> "np.ndarray":
    """[height, columns read], elements as words of their size."""
    return np.frombuffer(raw, f"u{slab.item_bytes}").reshape(slab.height, -1)


def _turned_over(grid: "np.ndarray") -> "np.ndarray":
    """The transpose, laid out anew. In strips that stay in a core's cache: five times faster than at once."""
    turned = np.empty(grid.shape[::-1], grid.dtype)
    for row in range(0, grid.shape[0], _STRIP_ROWS):
        turned[:, row : row + _STRIP_ROWS] = grid[row : row + _STRIP_ROWS].T
    return turned


def _values(planned: Planned, slab: Stored | Joined | Coded, raw: bytearray, reader: Reader) -> mx.array:
    """The rows as floats, [rows, width]: exact, in whichever type that takes."""
    if isinstance(slab, Coded):
        room = small_floats if slab.matrix.is_small_floats else codes
        return mx.array(room.numbers_of(slab, reader))
    if isinstance(slab, Joined):
        parts = [numbers_of(every_row(reader.read(part), part), part) for part in slab.parts]
        return changed(parts, slab)
    if isinstance(slab, Slab) and slab.groups is not None:
        return _unpacked(slab, slab.groups, raw, reader)
    if isinstance(slab, Slab) and slab.tensor.dtype in BLOCK_TYPES:
        return numbers_of(every_row(raw, slab), slab)
    if slab.tiles is not None:
        return _decoded(slab, slab.tiles, raw, reader)
    kind = _FLOATS[planned.dtype]
    words = np.frombuffer(every_row(raw, slab), np.uint32 if kind == mx.float32 else np.uint16)
    return mx.array(words.reshape(slab.rows, -1)).view(kind)


def _unpacked(slab: Slab, groups: Groups, raw: bytearray, reader: Reader) -> mx.array:
    """The numbers that codes stand for, float32; of formats without biases bfloat16 holds them exactly."""
    codes = mx.array(np.frombuffer(raw, np.uint32).reshape(slab.rows, -1))
    scales, biases = _group_rows(slab, groups.scales, reader), None
    if groups.biases is not None:
        scales = scales.astype(mx.float32)
        biases = _group_rows(slab, groups.biases, reader).astype(mx.float32)
    packing = groups.group_size, groups.bits, groups.mode
    numbers = mx.dequantize(codes, scales, biases, *packing)
    if groups.order is None:
        return numbers
    back = mx.argsort(_orders(slab, groups.order, reader), axis=-1)
    return mx.take_along_axis(numbers, back, axis=-1)


def _orders(slab: Slab, order: TensorInfo, reader: Reader) -> mx.array:
    """The order of each row's inputs, uint32 [rows, in]."""
    words = np.frombuffer(reader.read_range(order.path, order.start, order.stop), np.uint32)
    matrix = np.arange(slab.start, slab.stop) // slab.tensor.shape[-2]
    return mx.array(words.reshape(-1, order.shape[-1])[matrix])


def _group_rows(slab: Slab, part: TensorInfo, reader: Reader) -> mx.array:
    """The rows of scales or biases that belong to the slab's."""
    kind = _FLOATS.get(part.dtype, mx.uint8)
    row_bytes = part.shape[-1] * kind.size
    start = part.start + slab.start * row_bytes
    raw = reader.read_range(part.path, start, start + (slab.stop - slab.start) * row_bytes)
    return mx.array(np.frombuffer(raw, np.uint8).reshape(-1, row_bytes)).view(kind)


def _decoded(slab: Slab | Columns, tiles: Tiles, raw: bytearray, reader: Reader) -> mx.array:
    """FP8 codes and the scales of their tiles, as bfloat16."""
    assert slab.step == 1, "rows that alternate are stored in other formats"
    if isinstance(slab, Columns):
        codes = mx.array(_grid(raw, slab))
        scales = _matrix_scales(slab, tiles, reader)
        return mx.contiguous((mx.from_fp8(codes, mx.float32) * scales).astype(mx.bfloat16).T)
    codes = mx.array(np.frombuffer(raw, np.uint8).reshape(slab.rows, -1))
    scales = _tile_scales(slab, tiles, codes.shape[1], reader)
    return (mx.from_fp8(codes, mx.float32) * scales).astype(mx.bfloat16)


def _matrix_scales(slab: Columns, tiles: Tiles, reader: Reader) -> mx.array:
    """The scale of every element of the slab's columns, float32 [height, columns]."""
    height, breadth = tiles.block
    down, across = -(-slab.height // height), -(-slab.width // breadth)
    grid = _read_grid(tiles, slab.matrix * down, down, across, reader)
    rows, columns = np.arange(slab.height) // height, np.arange(slab.start, slab.stop) // breadth
    return grid[mx.array(rows)][:, mx.array(columns)]


def _tile_scales(slab: Slab, tiles: Tiles, width: int, reader: Reader) -> mx.array:
    """The scale of every element of the slab's rows, float32 [rows, width].

    Rows count through all matrices of a stack; the tiles of each matrix start afresh.
    """
    height, breadth = tiles.block
    matrix_rows = slab.tensor.shape[-2] // tiles.shares
    down, across = -(-matrix_rows // height), -(-width // breadth)
    row = np.arange(slab.start, slab.stop)
    tile_row = row // matrix_rows * down + row % matrix_rows // height
    first, last = int(tile_row[0]), int(tile_row[-1])
    grid = _read_grid(tiles, first, last - first + 1, across, reader)
    by_row = grid[mx.array(tile_row - first)]
    return mx.repeat(by_row, breadth, axis=1)[:, :width]


def _read_grid(tiles: Tiles, first: int, count: int, across: int, reader: Reader) -> mx.array:
    """`count` rows of tiles from the one numbered `first` on, float32 [count, across]."""
    kind = _FLOATS.get(tiles.scales.dtype, mx.uint8)
    start = tiles.scales.start + first * across * kind.size
    raw = reader.read_range(tiles.scales.path, start, start + count * across * kind.size)
    if kind == mx.uint8:  # powers of two
        powers = np.frombuffer(raw, np.uint8).astype(np.int32) - 127
        if (powers == 128).any():
            raise MalformedFile(f"`{tiles.scales.name}` has scales that are NaN", hint=DAMAGED)
        return mx.array(np.ldexp(np.float32(1), powers).reshape(-1, across))
    words = np.frombuffer(raw, np.uint32 if kind == mx.float32 else np.uint16)
    return mx.array(words.reshape(-1, across)).view(kind).astype(mx.float32)


def _encode(values: mx.array, target: Format) -> tuple[mx.array, ...]:
    if target.mode is None:
        return (values.astype(_FLOATS[target.name.upper()]),)
    if target.mode == "affine" or target.bits != 4:
        return _quantize(values, target)
    return quantize_fp4(values, target) or _quantize_slowly(values, target)


def _quantize(values: mx.array, target: Format) -> tuple[mx.array, ...]:
    assert target.mode is not None
    return quantize(values, target.group_size, target.bits, target.mode)


def _quantize_slowly(values: mx.array, target: Format) -> tuple[mx.array, ...]:
    """A few rows at a time: MLX's 4-bit floats take 64 times the memory of the weights."""
    count = max(_SLOW_ELEMENTS // values.shape[1], 1)
    pieces: list[tuple[mx.array, ...]] = []
    for start in range(0, values.shape[0], count):
        pieces.append(_quantize(values[start : start + count], target))
        mx.eval(*pieces[-1])
    return tuple(mx.concatenate(list(parts)) for parts in zip(*pieces, strict=True))


def _raw(array: "np.ndarray") -> memoryview:
    return array.view(np.uint8).data


def _bytes(array: mx.array) -> memoryview:
    return np.asarray(array.reshape(-1).view(mx.uint8)).data
