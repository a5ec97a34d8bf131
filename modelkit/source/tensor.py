"""One tensor's entry in a safetensors header, checked on its own: name, dtype, shape, span of bytes.

Arithmetic is in Python's integers, which do not wrap; the limits keep it inside what 64-bit readers compute.
"""

import json
import math
from pathlib import Path
from typing import Any

from modelkit.errors import MalformedFile
from runtime.quoting import shown
from runtime.records import dataclass

MAX_DIMENSIONS = 8
MAX_DIMENSION = 2**31 - 1
MAX_NAME_BYTES = 512
MAX_ELEMENTS = 2**62

BITS: dict[str, int] = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
FLOATS = ("F32", "F16", "BF16")
"""Types of weights that are computed with as they are."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor in a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    start: int
    """Absolute byte offset in the file."""
    stop: int
    """Absolute byte offset in the file."""

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


def read_entry(name: str, entry: object, path: Path, data: int, label: str) -> TensorInfo:
    """The tensor that one entry describes; `data` is the file offset that its offsets count from."""
    _check_name(name, label)
    where = f"{label}: tensor `{name}`"
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise MalformedFile(f"{where} must have exactly dtype, shape and data_offsets")
    dtype, shape = entry["dtype"], _shape(entry["shape"], where)
    start, stop = _offsets(entry["data_offsets"], where)
    bits = BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        raise MalformedFile(f"{where} has the unknown dtype {shown(json.dumps(dtype))}")
    needed = _product(shape, where) * bits
    if needed != 8 * (stop - start):
        raise MalformedFile(
            f"{where} spans {stop - start:,} bytes; {dtype} {list(shape)} takes {needed / 8:,.10g}"
        )
    return TensorInfo(name, dtype, shape, path, data + start, data + stop)


def _check_name(name: str, label: str) -> None:
    plain = name.isprintable() and ".." not in name.split("/")
    if not plain or not 1 <= len(encoded(name, label)) <= MAX_NAME_BYTES:
        raise MalformedFile(
            f"{label}: `{shown(name)}` is not a tensor name; 1 to {MAX_NAME_BYTES} printable bytes "
            "without `..` between slashes were expected"
        )


def encoded(text: str, label: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise MalformedFile(f"{label}: the header holds half a surrogate pair in `{shown(text)}`") from error


def _shape(value: object, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MAX_DIMENSIONS:
        raise MalformedFile(f"{where}: shape must be a list of at most {MAX_DIMENSIONS} sizes")
    for size in value:
        if not _is_natural(size) or size > MAX_DIMENSION:
            raise MalformedFile(
                f"{where}: {shown(json.dumps(size))} is not a dimension; 0 to {MAX_DIMENSION:,} was expected"
            )
    return tuple(value)


def _offsets(value: Any, where: str) -> tuple[int, int]:
    pair = isinstance(value, list) and len(value) == 2 and all(map(_is_natural, value))
    if not pair or value[0] > value[1]:
        raise MalformedFile(f"{where}: data_offsets must be the bytes where it starts and, not before, stops")
    return value[0], value[1]


def _is_natural(value: object) -> bool:
    return type(value) is int and value >= 0  # type(), because True is an int


def _product(shape: tuple[int, ...], where: str) -> int:
    """The number of elements. The limit holds even where one size is 0: other readers multiply in order,
    and overflow before they come to it."""
    elements = math.prod(size or 1 for size in shape)
    if elements >= MAX_ELEMENTS:
        raise MalformedFile(f"{where}: the shape {list(shape)} has more elements than any file can hold")
    return elements if 0 not in shape else 0
