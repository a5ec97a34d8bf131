"""Protocol buffers as they are coded, without their schemas: numbered fields, one after the other."""

import struct
from collections.abc import Iterator

from modelkit.errors import MalformedFile

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


def fields(data: bytes, label: str) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each. Raises MalformedFile for what is no such coding."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at, label)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(data, at, label)
        else:
            size = {_EIGHT: 8, _FOUR: 4}.get(kind)
            if kind == _BYTES:
                size, at = _varint(data, at, label)
            if size is None or number == 0 or size > len(data) - at:
                raise MalformedFile(f"{label} is not a SentencePiece model, or is cut off")
            value, at = data[at : at + size], at + size
        yield number, value


def _varint(data: bytes, at: int, label: str) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return value, at
    raise MalformedFile(f"{label} is not a SentencePiece model, or is cut off")


def number(value: int | bytes) -> int:
    """An int32 or a bool; 0 for another kind of field."""
    if isinstance(value, bytes):
        return 0
    return value - (1 << 64) if value >> 63 else value


def real(value: int | bytes) -> float:
    """A float; NaN for another kind of field."""
    return struct.unpack("<f", value)[0] if isinstance(value, bytes) and len(value) == 4 else float("nan")


def text(value: int | bytes) -> bytes:
    return value if isinstance(value, bytes) else b""
