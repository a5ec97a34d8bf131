"""Rows of source tensors -> the bytes of output tensors. With `fp4` all of this room that touches MLX.

Every transform is row by row, so any block of rows gives the same bytes wherever tensors are cut. Arithmetic
runs on the CPU backend whatever the device: the same source must give the same digest on every machine. MLX
quantizes on one core per stream, so each worker thread has a stream of its own.
"""

import threading
from typing import TypeAlias

import mlx.core as mx
import numpy as np

from modelkit.pack.fp4 import quantize_fp4
from modelkit.pack.planned import Planned, Slab, Tiles
from modelkit.pack.reader import Reader
from runtime.quant import Format

Bytes: TypeAlias = memoryview | bytearray

_FLOATS = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}
_THREAD = threading.local()
_SLOW_ELEMENTS = 1 << 18


def transform(planned: Planned, slab: Slab, reader: Reader) -> tuple[Bytes, ...]:
    """One block of rows: the bytes of the output that has the slab, then of each of its by-products.

    Everything returned is evaluated and may change threads.
    """
    raw = reader.read(slab)
    if planned.encode is None and slab.tiles is None:
        return (_every(raw, slab),)
    with mx.stream(_stream()):
        values = _values(planned, slab, raw, reader)
        arrays = (values,) if planned.encode is None else _encode(values, planned.encode)
        mx.eval(*arrays)
        return tuple(_bytes(array) for array in arrays)


def release_memory() -> None:
    """Give MLX's free buffers back to the system; called when a conversion has ended."""
    mx.clear_cache()


def _stream() -> mx.Stream:
    if not hasattr(_THREAD, "stream"):
        _THREAD.stream = mx.new_stream(mx.cpu)
    return _THREAD.stream


def _every(raw: bytearray, slab: Slab) -> Bytes:
    if slab.step == 1:
        return raw
    rows = np.frombuffer(raw, np.uint8).reshape(-1, slab.row_bytes)
    return np.ascontiguousarray(rows[:: slab.step]).reshape(-1).data


def _values(planned: Planned, slab: Slab, raw: bytearray, reader: Reader) -> mx.array:
    """The rows as floats of `planned.dtype`, [rows, width]."""
    assert slab.step == 1, "rows that alternate are only ever copied"
    rows = slab.stop - slab.start
    if slab.tiles is not None:
        codes = mx.array(np.frombuffer(raw, np.uint8).reshape(rows, -1))
        scales = _tile_scales(slab, slab.tiles, codes.shape[1], reader)
        return (mx.from_fp8(codes, mx.float32) * scales).astype(mx.bfloat16)
    kind = _FLOATS[planned.dtype]
    words = np.frombuffer(raw, np.uint32 if kind == mx.float32 else np.uint16)
    return mx.array(words.reshape(rows, -1)).view(kind)


def _tile_scales(slab: Slab, tiles: Tiles, width: int, reader: Reader) -> mx.array:
    """The scale of every element of the slab's rows, float32 [rows, width].

    Rows count through all matrices of a stack; the tiles of each matrix start afresh.
    """
    height, breadth = tiles.block
    matrix_rows = slab.tensor.shape[-2]
    down, across = -(-matrix_rows // height), -(-width // breadth)
    row = np.arange(slab.start, slab.stop)
    tile_row = row // matrix_rows * down + row % matrix_rows // height
    first, last = int(tile_row[0]), int(tile_row[-1])
    kind = _FLOATS[tiles.scales.dtype]
    start = tiles.scales.start + first * across * kind.size
    raw = reader.read_range(tiles.scales.path, start, start + (last - first + 1) * across * kind.size)
    words = np.frombuffer(raw, np.uint32 if kind == mx.float32 else np.uint16)
    grid = mx.array(words.reshape(-1, across)).view(kind).astype(mx.float32)
    by_row = grid[mx.array(tile_row - first)]
    return mx.repeat(by_row, breadth, axis=1)[:, :width]


def _encode(values: mx.array, target: Format) -> tuple[mx.array, ...]:
    if target.mode is None:
        return (values.astype(_FLOATS[target.name.upper()]),)
    if target.mode == "affine" or target.bits != 4:
        return _quantize(values, target)
    return quantize_fp4(values, target) or _quantize_slowly(values, target)


def _quantize(values: mx.array, target: Format) -> tuple[mx.array, ...]:
    assert target.mode is not None
    return tuple(mx.quantize(values, group_size=target.group_size, bits=target.bits, mode=target.mode))


def _quantize_slowly(values: mx.array, target: Format) -> tuple[mx.array, ...]:
    """A few rows at a time: MLX's 4-bit floats take 64 times the memory of the weights."""
    count = max(_SLOW_ELEMENTS // values.shape[1], 1)
    pieces: list[tuple[mx.array, ...]] = []
    for start in range(0, values.shape[0], count):
        pieces.append(_quantize(values[start : start + count], target))
        mx.eval(*pieces[-1])
    return tuple(mx.concatenate(list(parts)) for parts in zip(*pieces, strict=True))


def _bytes(array: mx.array) -> memoryview:
    return np.asarray(array.reshape(-1).view(mx.uint8)).data
