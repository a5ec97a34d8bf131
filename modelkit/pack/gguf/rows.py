"""Rows of a package's tensors as rows of GGUF blocks.

Rows are read in pieces of a few megabytes and written in the order of the file, so that memory stays bounded
whatever the tensor's size. Only what changes columns or numbers (`Change`) takes a tensor whole.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any, TypeAlias

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from modelkit.pack.gguf.tensors import Part, Stored
from modelkit.pack.gguf.type_choice import Scales, TypeChoice, middle_of
from modelkit.pack.planning.slabs import Stored as Slab
from modelkit.pack.writing.reader import Reader
from modelkit.pack.writing.transform import every_row
from modelkit.source.gguf.architectures import Origin, Run
from modelkit.source.gguf.architectures.apply import apply
from modelkit.source.gguf.architectures.changes import Columns
from modelkit.source.prequantized import Packing
from runtime.blocks import encode
from runtime.blocks.decode import decoded
from runtime.blocks.types import BlockType
from runtime.records import dataclass

Array: TypeAlias = NDArray[Any]

_PIECE_BYTES = 8 << 20
_DTYPES = {"F32": "<f4", "U32": "<u4", "F16": "<f2", "BF16": "<u2", "U8": "u1", "I32": "<i4", "I64": "<i8"}
_E2M1 = np.array((0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6), dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of a tensor."""

    data: Array
    """Floats as they are stored, or words of codes."""
    scales: Array | None
    biases: Array | None


def pieces(origin: Origin, tensors: Mapping[str, Stored], reader: Reader) -> Iterator[Piece]:
    """All rows that a tensor of the file is made of, in its order."""
    names, rows = _sources(origin)
    parts = tensors[origin.tensors[0]]
    of = {run.tensor: run.of for run in origin.runs}
    row_bytes = max(_row_bytes(parts.data, of[parts.name]), 1)
    count = max(_PIECE_BYTES // row_bytes, 1)
    for start in range(0, len(rows), count):
        yield _piece(names[start : start + count], rows[start : start + count], origin, tensors, of, reader)


def _sources(origin: Origin) -> tuple[Array, Array]:
    """For each row of the file's tensor: the number of its tensor, and its row there."""
    order = {name: number for number, name in enumerate(origin.tensors)}
    rows = [np.arange(run.start, run.stop, run.step, dtype=np.int64) for run in origin.runs]
    names = [np.full(run.rows, order[run.tensor], dtype=np.int32) for run in origin.runs]
    return np.concatenate(names), np.concatenate(rows)


def _piece(
    names: Array,
    rows: Array,
    origin: Origin,
    tensors: Mapping[str, Stored],
    of: Mapping[str, int],
    reader: Reader,
) -> Piece:
    found: dict[str, Array] = {}
    for number in np.unique(names):
        stored = tensors[origin.tensors[int(number)]]
        here = names == number
        for part in ("data", "scales", "biases"):
            info: Part | None = getattr(stored, part)
            if info is not None:
                read = _rows(info, of[stored.name], rows[here], reader)
                whole = found.setdefault(part, np.empty((len(rows), read.shape[1]), dtype=read.dtype))
                whole[here] = read
    return Piece(found["data"], found.get("scales"), found.get("biases"))


def _row_bytes(info: Part, of: int) -> int:
    return info.nbytes // of


def _rows(part: Part, of: int, rows: Array, reader: Reader) -> Array:
    """Those rows of a part that is cut into `of`. All between the first and the last are read."""
    first, last = int(rows.min()), int(rows.max()) + 1
    size = _row_bytes(part, of)
    raw = _read(part, first * size, last * size, reader)
    return np.frombuffer(raw, dtype=_DTYPES[part.dtype]).reshape(last - first, -1)[rows - first]


def _read(part: Part, start: int, stop: int, reader: Reader) -> bytearray | memoryview:
    """Bytes start .. stop of all rows of a part."""
    found: list[memoryview] = []
    at, row_bytes = 0, part.nbytes // sum(slab.rows for slab in part.slabs)
    for slab in part.slabs:
        size = slab.rows * row_bytes
        low, high = max(start - at, 0), min(stop - at, size)
        at += size
        if low < high:
            found.append(_read_slab(slab, row_bytes, low, high, reader))
    return found[0] if len(found) == 1 else bytearray(b"".join(found))


def _read_slab(slab: Slab, row_bytes: int, low: int, high: int, reader: Reader) -> memoryview:
    first, last = low // row_bytes, -(-high // row_bytes)
    start = slab.start + first * slab.step
    piece = replace(slab, start=start, stop=min(slab.start + last * slab.step, slab.stop))
    return memoryview(every_row(reader.read(piece), piece))[
        low - first * row_bytes : high - first * row_bytes
    ]


def floats(values: Array | None) -> Array:
    """Stored floats as float32; bfloat16 comes as uint16."""
    assert values is not None
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def numbers(piece: Piece, stored: Stored) -> Array:
    """What the rows stand for."""
    packing = stored.packing
    if packing is None:
        return floats(piece.data)
    if isinstance(packing, BlockType):
        return np.array(decoded(mx.array(piece.data), packing))
    words = piece.data.view(np.uint32)
    if packing.mode == "affine":
        codes = encode.codes_of(words, packing.bits)
        return encode.dequantized(codes, floats(piece.scales), floats(piece.biases))
    assert piece.scales is not None
    scale = _e8m0(piece.scales) if packing.mode != "nvfp4" else _e4m3(piece.scales)
    codes = encode.codes_of(words, packing.bits)
    values = _e4m3(codes) if packing.mode == "mxfp8" else _E2M1[codes]
    return (values.reshape(*scale.shape, -1) * scale[..., None]).reshape(codes.shape)


def values(stored: Stored, reader: Reader) -> list[float]:
    """All numbers of a small tensor, in order."""
    of = prod(stored.shape[:-1]) if len(stored.shape) > 1 else 1
    whole = Origin(stored.name, stored.shape, (Run(stored.name, of, 0, of),))
    found = [numbers(piece, stored) for piece in pieces(whole, {stored.name: stored}, reader)]
    return np.concatenate(found).ravel().tolist()


def part_values(part: Part, reader: Reader) -> list[float]:
    """The numbers of a small part."""
    return floats(_flat(part, 0, part.nbytes, reader)).tolist()


def _e8m0(codes: Array) -> Array:
    return np.ldexp(np.float32(1), codes.astype(np.int32) - 127).astype(np.float32)


def _e4m3(codes: Array) -> Array:
    bits = codes.astype(np.int32)
    exponent, fraction = bits >> 3 & 15, (bits & 7).astype(np.float32)
    size = np.where(exponent == 0, fraction * 2.0**-9, np.ldexp(1 + fraction / 8, exponent - 7))
    return np.where(bits & 128, -size, size).astype(np.float32)


def scan(origin: Origin, tensors: Mapping[str, Stored], reader: Reader) -> Scales:
    """What the scales of the packed matrices that a tensor is made of are like. Reads no codes."""
    half = middle = plain = True
    largest = 0.0
    for name in origin.tensors:
        stored = tensors[name]
        packing, info = stored.packing, stored.scales
        assert isinstance(packing, Packing)
        assert info is not None
        for start, stop in _spans(info.nbytes):
            scales = _flat(info, start, stop, reader)
            if stored.biases is None:
                plain = plain and not bool((scales.view(np.uint8) >= 0x7F).any())
                continue
            value, offset = floats(scales), floats(_flat(stored.biases, start, stop, reader))
            half = half and encode.fits_half(value) and encode.fits_half(offset)
            zero = middle_of(packing.bits)
            middle = middle and zero is not None and bool((offset == -np.float32(zero) * value).all())
            ends = np.maximum(np.abs(offset), np.abs(value) * (2**packing.bits - 1))
            largest = max(largest, float(ends.max(initial=0)))  # NaN stays, and fits nothing
    return Scales(half, middle, largest, plain)


def _spans(nbytes: int) -> Iterator[tuple[int, int]]:
    for start in range(0, nbytes, _PIECE_BYTES):
        yield start, min(start + _PIECE_BYTES, nbytes)


def _flat(part: Part, start: int, stop: int, reader: Reader) -> Array:
    return np.frombuffer(_read(part, start, stop, reader), dtype=_DTYPES[part.dtype])


def blocks(
    origin: Origin, choice: TypeChoice, tensors: Mapping[str, Stored], reader: Reader
) -> Iterator[memoryview]:
    """The bytes of one tensor of the file, piece after piece."""
    first = tensors[origin.tensors[0]]
    if origin.change is not None and not _moves_groups(origin, first):
        changed = _changed(origin, tensors, reader)
        yield _bytes(_encode_numbers(changed, choice.type))
        return
    alike = all(tensors[name].packing == first.packing for name in origin.tensors)
    for piece in pieces(origin, tensors, reader) if alike else _expanded(origin, tensors, reader):
        yield _bytes(_encoded(piece, first if alike else None, origin, choice))


def _moves_groups(origin: Origin, stored: Stored) -> bool:
    """Can packed columns move, since whole groups stay together?"""
    change = origin.change
    return (
        isinstance(change, Columns)
        and isinstance(stored.packing, Packing)
        and change.group % stored.packing.group_size == 0
    )


def _encoded(piece: Piece, stored: Stored | None, origin: Origin, choice: TypeChoice) -> Array:
    if choice.how == "copied":
        return piece.data
    if stored is None or stored.packing is None:
        return _encode_numbers(piece.data if choice.type == "i32" else floats(piece.data), choice.type)
    if choice.type in ("f32", "f16", "bf16", "q8_0") and not (choice.type == "q8_0" and choice.exact):
        return _encode_numbers(_with_columns(numbers(piece, stored), origin), choice.type)
    return _packed_blocks(piece, stored.packing, origin, choice.type)


def _packed_blocks(piece: Piece, packing: Packing | BlockType, origin: Origin, kind: str) -> Array:
    assert isinstance(packing, Packing)
    assert piece.scales is not None
    words = piece.data.view(np.uint32)
    if origin.change is None and kind == "mxfp4":
        return encode.mxfp4(words, piece.scales)
    if origin.change is None and kind in ("q4_0", "q4_1") and packing.bits == 4:
        biases = floats(piece.biases) if kind == "q4_1" else None
        return encode.four_bits(words, floats(piece.scales), biases)
    codes = _with_columns(encode.codes_of(words, packing.bits), origin)
    if kind in ("mxfp4", "nvfp4"):
        scales = _with_columns(piece.scales, origin, packing.group_size)
        return encode.nvfp4(codes, scales) if kind == "nvfp4" else encode.mxfp4(_words(codes), scales)
    scales = _with_columns(floats(piece.scales), origin, packing.group_size)
    biases = _with_columns(floats(piece.biases), origin, packing.group_size)
    return affine_blocks(kind, codes, scales, biases, packing.bits)


def _words(codes: Array) -> Array:
    """Codes of four bits as MLX packs them."""
    return (codes[:, ::2] | codes[:, 1::2] << 4).view(np.uint32)


def affine_blocks(
    kind: str, codes: encode.Bytes, scales: encode.Floats, biases: encode.Floats, bits: int
) -> encode.Bytes:
    match kind:
        case "q4_1" | "q5_1":
            return encode.with_offsets(codes, scales, biases, five=kind == "q5_1")
        case "q4_0" | "q5_0":
            return encode.around_zero(codes, scales, five=kind == "q5_0")
        case "q8_0":
            return encode.bytes_around_zero(codes + np.uint8(96) if bits == 6 else codes, scales)
        case "q2_0":
            return encode.two_bits_around_one(codes, scales)
        case _:
            return encode.signs(codes, scales)


def _with_columns(array: Array, origin: Origin, group: int = 1) -> Array:
    """Columns in the file's order; of scales, one stands for `group` columns."""
    change = origin.change
    if not isinstance(change, Columns):
        return array
    *outer, last = change.sizes
    place = change.order.index(len(outer))
    assert place == len(outer)
    return Columns((*outer, last // group), change.order).apply(array, np)


def _encode_numbers(values: Array, kind: str) -> Array:
    match kind:
        case "i32":
            return values.astype("<i4")
        case "f32":
            return values.astype("<f4")
        case "f16":
            return values.astype("<f2")
        case "bf16":
            return encode.bfloat16(values)
        case _:
            return encode.nearest_bytes(values.reshape(len(values), -1))


def _expanded(origin: Origin, tensors: Mapping[str, Stored], reader: Reader) -> Iterator[Piece]:
    """Rows of tensors that are packed in different ways, as float32."""
    for run in origin.runs:
        alone = Origin(origin.name, origin.shape, (run,))
        for piece in pieces(alone, tensors, reader):
            yield Piece(numbers(piece, tensors[run.tensor]), None, None)


def _changed(origin: Origin, tensors: Mapping[str, Stored], reader: Reader) -> Array:
    """A whole tensor with its numbers changed: [rows, width]."""

    def whole(name: str) -> Array:
        stored = tensors[name]
        of = prod(stored.shape[:-1]) if len(stored.shape) > 1 else 1
        alone = Origin(name, stored.shape, (Run(name, of, 0, of),))
        return np.concatenate([numbers(piece, stored) for piece in pieces(alone, tensors, reader)])

    made = apply(origin, whole, np)
    return made.reshape(-1, origin.shape[-1])


def _bytes(array: Array) -> memoryview:
    return np.ascontiguousarray(array).data.cast("B")
