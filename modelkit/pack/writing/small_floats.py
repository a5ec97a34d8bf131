"""Rows of small floats: in MLX's layout or in GGUF's blocks, codes bit for bit as they were, or as floats.

    MXFP4, MXFP8   MLX's formats of these names: the same bytes
    NVFP4          MLX's where it has no factor; with one GGUF's blocks, which take it beside them

Dimensions: R rows, C inputs, G = C / group size.
"""

from functools import cache

import numpy as np

from modelkit.errors import MalformedFile
from modelkit.pack.planning.slabs import Coded, Factor, Slab
from modelkit.pack.writing.codes import floats
from modelkit.pack.writing.reader import Reader
from modelkit.source.tensor import BITS, TensorInfo
from runtime.blocks import encode

_DAMAGED = "The file is damaged. Fetch it again."
_FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def repacked(slab: Coded, reader: Reader) -> tuple[np.ndarray, ...]:
    """Codes and scales of the rows, or their blocks. Raises MalformedFile."""
    codes, scales = _read(slab, reader)
    return (encode.nvfp4(_nibbles(codes), scales),) if slab.matrix.factored else (codes, scales)


def numbers_of(slab: Coded, reader: Reader) -> np.ndarray:
    """float32 [R, C]."""
    matrix = slab.matrix
    codes, scales = _read(slab, reader)
    values = _fp8()[codes] if matrix.bits == 8 else _FP4[_nibbles(codes)]
    times = _fp8()[scales] if matrix.layout == "nvfp4" else np.ldexp(np.float32(1), scales.astype(int) - 127)
    found = values * np.repeat(times, matrix.group_size, axis=1)
    return found * factor_of(slab, reader) if matrix.factored else found


def factor_of(slab: Coded | Factor, reader: Reader) -> np.ndarray:
    """float32 [1]. Raises MalformedFile for what is not a number, or none to divide by."""
    matrix, stored = slab.matrix, slab.matrix.over or slab.matrix.factor
    assert stored is not None
    times, over = (_number(one, slab, reader) for one in (matrix.factor, matrix.over))
    with np.errstate(divide="ignore", invalid="ignore"):
        found = times / over / np.float32(matrix.largest)
    if not np.isfinite(found).all():
        raise _damaged(stored, "is not a number that a matrix can be multiplied by")
    return found


def _number(stored: TensorInfo | None, slab: Coded | Factor, reader: Reader) -> np.ndarray:
    """float32 [1]: of those stored, that of the rows; 1 where there is none."""
    if stored is None:
        return np.ones(1, np.float32)
    raw = np.frombuffer(reader.read_range(stored.path, stored.start, stored.stop), np.uint8)
    found = floats(raw.view(f"u{BITS[stored.dtype] // 8}"), stored.dtype)
    height = slab.matrix.shape[-2]
    owner, row = divmod(slab.start, height)
    each = len(found) * height // slab.matrix.rows
    half = row % 2 if slab.step == 2 else 2 * row // height
    place = (0, owner, 2 * owner + half)[each]
    return found[place : place + 1]


def _read(slab: Coded, reader: Reader) -> tuple[np.ndarray, np.ndarray]:
    """uint8: codes [R, C * bits / 8], scales [R, G]. Raises MalformedFile for what is not a number."""
    matrix = slab.matrix
    codes, scales = (_rows(tensor, slab, reader) for tensor in (matrix.codes, matrix.scales))
    if matrix.bits == 8 and ((codes & 0x7F) == 0x7F).any():
        raise _damaged(matrix.codes, "has numbers that are NaN")
    if (scales > 0x7E if matrix.layout == "nvfp4" else scales == 0xFF).any():
        raise _damaged(matrix.scales, "has scales that are NaN or below 0")
    return codes, scales


def _rows(tensor: TensorInfo, slab: Coded, reader: Reader) -> np.ndarray:
    width = tensor.shape[-1]
    raw = reader.read(Slab(tensor, slab.start, slab.stop, 1, width))
    return np.frombuffer(raw, np.uint8).reshape(-1, width)[:: slab.step]


def _nibbles(codes: np.ndarray) -> np.ndarray:
    """uint8 [R, C], one code each."""
    return np.stack((codes & np.uint8(15), codes >> np.uint8(4)), axis=-1).reshape(len(codes), -1)


@cache
def _fp8() -> np.ndarray:
    """What each F8_E4M3 stands for, float32."""
    codes = np.arange(256)
    exponent, digits = (codes >> 3 & 15).astype(int), (codes & 7).astype(np.float32)
    sizes = np.where(exponent > 0, np.ldexp(1 + digits / 8, exponent - 7), np.ldexp(digits, np.full(256, -9)))
    sizes[(codes & 0x7F) == 0x7F] = np.nan
    return np.where(codes & 0x80, -sizes, sizes).astype(np.float32)


def _damaged(tensor: TensorInfo, fault: str) -> MalformedFile:
    return MalformedFile(f"{tensor.path.name}: `{tensor.name}` {fault}", hint=_DAMAGED)
