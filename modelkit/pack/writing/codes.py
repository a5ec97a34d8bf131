"""Rows of whole-number codes: in MLX's layout, codes bit for bit as they were, or as floats.

    number  (code - zero) * scale, as the tool has it
    MLX     code * scale + bias, bias = -zero * scale

The middle of a code's range is a power of two, so biases of symmetric matrices are exact in the scales' own
type. Other zero points take up to `bits` more digits than a scale has: `bias_dtype` says what holds them.

Dimensions: R rows, C inputs, G = C / group size.
"""

import numpy as np

from modelkit.errors import MalformedFile
from modelkit.pack.planning.code_forms import bias_dtype, format_of
from modelkit.pack.planning.slabs import Coded, Columns, Slab
from modelkit.pack.writing.reader import Reader
from modelkit.source.codes import CodeMatrix
from modelkit.source.tensor import TensorInfo
from runtime.records import dataclass

_WORD_BITS = 32
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # which of eight outputs is the nth four bits of a word
_DAMAGED = "The file is damaged. Fetch it again."


@dataclass(frozen=True, slots=True)
class Rows:
    """What is stored of rows."""

    words: np.ndarray
    """uint32 [R, C * bits / 32]: codes, lowest bits first."""
    scales: np.ndarray
    """float32 [R, G]."""
    zeros: np.ndarray
    """int32 [R, G]."""


def repacked(slab: Coded, reader: Reader) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes, scales and biases of the rows, as `format_of` and `bias_dtype` say. Raises MalformedFile."""
    matrix, found = slab.matrix, read_rows(slab, reader)
    target = format_of(matrix)
    assert target is not None
    words = found.words
    if matrix.ordered:
        words = _words_of(_unpacked(words, matrix.bits)[:, order_of(matrix, reader)], matrix.bits)
    elif matrix.groups is not None:
        _group_of_each(matrix, reader)  # in order, or it says so
    times = matrix.group_size // target.group_size
    scales = np.repeat(found.scales, times, axis=1)
    biases = np.repeat(-found.scales * found.zeros.astype(np.float32), times, axis=1)  # exact in float32
    return (
        words,
        _narrowed(scales, bias_dtype(matrix)),
        _narrowed(biases, bias_dtype(matrix), matrix.codes),
    )


def order_of(matrix: CodeMatrix, reader: Reader) -> np.ndarray:
    """uint32 [C]: the inputs, group after group. Raises MalformedFile for groups of several sizes."""
    group = _group_of_each(matrix, reader)
    order = np.argsort(group, kind="stable").astype(np.uint32)
    stored = matrix.groups
    if stored is not None and not np.array_equal(group[order], np.arange(len(order)) // matrix.group_size):
        raise MalformedFile(
            f"{stored.path.name}: `{stored.name}` has groups of other sizes than {matrix.group_size}",
            hint="-q f16 unpacks it, if it is meant so.",
        )
    return order


def numbers_of(slab: Coded, reader: Reader) -> np.ndarray:
    """float32 [R, C], exact."""
    matrix, found = slab.matrix, read_rows(slab, reader)
    group = _group_of_each(matrix, reader)
    codes = _unpacked(found.words, matrix.bits)
    return (codes - found.zeros[:, group]).astype(np.float32) * found.scales[:, group]


def read_rows(slab: Coded, reader: Reader) -> Rows:
    """Raises MalformedFile for scales that are not numbers, and zero points that config.json denies."""
    matrix, start, stop = slab.matrix, slab.start, slab.stop
    words = _words(slab, reader)
    scales = floats(_grid(matrix.scales, matrix, start, stop, reader), matrix.scales.dtype)
    if not np.isfinite(scales).all():
        raise MalformedFile(
            f"{matrix.scales.path.name}: `{matrix.scales.name}` has numbers that are NaN or infinite",
            hint=_DAMAGED,
        )
    return Rows(words, scales, _zeros(slab, reader))


def _words(slab: Coded, reader: Reader) -> np.ndarray:
    matrix, start, stop = slab.matrix, slab.start, slab.stop
    match matrix.layout:
        case "gptq":
            return _grid(matrix.codes, matrix, start, stop, reader)
        case "rows":
            return _grid(matrix.codes, matrix, start, stop, reader)
        case "bytes":
            signed = _by_rows(matrix.codes, start, stop, reader)
            return (signed ^ 0x80).view(np.uint32)  # -128 is the code 0
        case "awq":
            return _packed(_awq(matrix.codes, start, stop, reader))
        case _:
            raise AssertionError(f"{matrix.layout} is `small_floats`' business")


def _awq(tensor: TensorInfo, start: int, stop: int, reader: Reader) -> np.ndarray:
    """uint8 [R, inputs or groups], one number each."""
    first = start // 8
    words = _turned(tensor, first, -(-stop // 8), reader)
    found = np.empty((len(words), 8, words.shape[1]), np.uint8)
    for place, output in enumerate(_AWQ_ORDER):
        found[:, output] = (words >> np.uint32(4 * place)) & np.uint32(15)
    return found.reshape(-1, words.shape[1])[start - 8 * first : stop - 8 * first]


def _packed(codes: np.ndarray) -> np.ndarray:
    """Codes of four bits, eight to a word."""
    return (codes[:, 0::2] | codes[:, 1::2] << np.uint8(4)).view(np.uint32)


def _unpacked(words: np.ndarray, bits: int) -> np.ndarray:
    """int32 [R, C]."""
    if _WORD_BITS % bits == 0:
        shifts = np.arange(0, _WORD_BITS, bits, dtype=np.uint32)
        spread = (words[:, :, None] >> shifts) & np.uint32((1 << bits) - 1)
        return spread.reshape(len(words), -1).astype(np.int32)
    stream = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little").reshape(len(words), -1, bits)
    return stream @ (1 << np.arange(bits, dtype=np.int32))


def _words_of(codes: np.ndarray, bits: int) -> np.ndarray:
    """The reverse: uint32 [R, C * bits / 32]."""
    stream = np.unpackbits(codes.astype(np.uint8)[:, :, None], axis=2, count=bits, bitorder="little")
    return np.packbits(stream.reshape(len(codes), -1), axis=1, bitorder="little").view(np.uint32)


def _plus_one(words: np.ndarray, bits: int) -> np.ndarray:
    """One more for every code of a word, carried on: a zero point of 0 had borrowed of the next one."""
    return words + np.uint32(sum(1 << place for place in range(0, _WORD_BITS, bits)))


def _filled(words: np.ndarray, bits: int) -> np.ndarray:
    """With so many words that whole codes fill them."""
    missing = -words.shape[1] % (1 if _WORD_BITS % bits == 0 else bits)
    return np.ascontiguousarray(np.pad(words, ((0, 0), (0, missing))))


def _zeros(slab: Coded, reader: Reader) -> np.ndarray:
    """int32 [R, G]."""
    matrix, start, stop = slab.matrix, slab.start, slab.stop
    middle = 1 << (matrix.bits - 1)
    if matrix.zeros is None:
        return np.full((stop - start, matrix.per_row), middle, np.int32)
    if matrix.layout == "awq":
        found = _awq(matrix.zeros, start, stop, reader).astype(np.int32)
    elif matrix.zeros.dtype == "I8":
        found = _by_rows(matrix.zeros, start, stop, reader).view(np.int8).astype(np.int32) + middle
    else:
        found = _packed_zeros(matrix, matrix.zeros, start, stop, reader)
    if matrix.symmetric and not (found == middle).all():
        raise MalformedFile(
            f"{matrix.zeros.path.name}: `{matrix.zeros.name}` has zero points other than {middle}, and "
            "config.json says that the quantization is symmetric",
            hint="Correct config.json, or fetch it again.",
        )
    return np.ascontiguousarray(found)


def _packed_zeros(matrix: CodeMatrix, zeros: TensorInfo, start: int, stop: int, reader: Reader) -> np.ndarray:
    """Outputs are packed, in words of their own: [G, words] of GPTQ, [words, G] of the other. [R, G]."""
    bits = matrix.bits
    whole = start - start % _WORD_BITS  # so many outputs fill whole words, whatever their bits
    first, last = whole * bits // _WORD_BITS, -(-stop * bits // _WORD_BITS)
    if matrix.by_columns:
        words = _turned(zeros, first, last, reader)
    else:
        words = _by_rows(zeros, first, last, reader).view(np.uint32)
    if matrix.less_one and _WORD_BITS % bits == 0:
        words = _plus_one(words, bits)
    found = _unpacked(_filled(words.T, bits), bits).T[start - whole : stop - whole]
    if matrix.less_one and _WORD_BITS % bits:
        found = (found + 1) & ((1 << bits) - 1)
    return found


def _group_of_each(matrix: CodeMatrix, reader: Reader) -> np.ndarray:
    """int64 [C]: the group of each input. Raises MalformedFile for groups that there are not, and for another
    order where config.json knows of none.
    """
    size, inputs = matrix.group_size, matrix.shape[1]
    plain = np.arange(inputs) // size
    stored = matrix.groups
    if stored is None:
        return plain
    found = np.frombuffer(reader.read_range(stored.path, stored.start, stored.stop), np.int32)
    if (found == -1).all() and not matrix.by_activation:  # compressed-tensors: not in use
        return plain
    if found.min() < 0 or found.max() >= matrix.per_row:
        raise MalformedFile(
            f"{stored.path.name}: `{stored.name}` names groups beyond 0 to {matrix.per_row - 1}",
            hint=_DAMAGED,
        )
    if not matrix.by_activation and not np.array_equal(found, plain):
        raise MalformedFile(
            f"{stored.path.name}: `{stored.name}` has inputs in another order than config.json says "
            "(desc_act and static_groups, actorder)",
            hint="Correct config.json, or fetch it again.",
        )
    return found.astype(np.int64)


def _grid(tensor: TensorInfo, matrix: CodeMatrix, start: int, stop: int, reader: Reader) -> np.ndarray:
    """Rows of outputs, whichever way they are stored, as words of the tensor's size."""
    if matrix.by_columns:
        return _turned(tensor, start, stop, reader)
    return _by_rows(tensor, start, stop, reader).view(f"u{_item(tensor)}")


def _by_rows(tensor: TensorInfo, start: int, stop: int, reader: Reader) -> np.ndarray:
    """uint8 [rows, bytes]."""
    row_bytes = tensor.nbytes // tensor.shape[0]
    raw = reader.read(Slab(tensor, start, stop, 1, row_bytes))
    return np.frombuffer(raw, np.uint8).reshape(stop - start, row_bytes)


def _turned(tensor: TensorInfo, start: int, stop: int, reader: Reader) -> np.ndarray:
    """Columns as rows, laid out anew."""
    columns = Columns(tensor, 0, start, stop, 1)
    grid = np.frombuffer(reader.read(columns), f"u{columns.item_bytes}").reshape(columns.height, -1)
    return np.ascontiguousarray(grid.T)


def _item(tensor: TensorInfo) -> int:
    return 2 if tensor.dtype in ("F16", "BF16") else 4


def floats(words: np.ndarray, dtype: str) -> np.ndarray:
    """float32, of words of the type's size."""
    if dtype == "BF16":
        return (words.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return words.view(np.float16 if dtype == "F16" else np.float32).astype(np.float32)


def _narrowed(values: np.ndarray, dtype: str, named: TensorInfo | None = None) -> np.ndarray:
    """As the bytes of that type. named: whose numbers they are where they may be too large for it."""
    if dtype == "BF16":
        return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    if dtype == "F32":
        return values
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float16)
    if named is not None and not np.isfinite(narrow).all():
        raise MalformedFile(
            f"{named.path.name}: `{named.name}` has a zero point and a scale too large for float16",
            hint=_DAMAGED,
        )
    return narrow
