"""The header of a GGUF file to be written: metadata, and where each tensor will lie.

Values have the types that llama.cpp's converter gives them: whole numbers are u32 (i32 in lists, u64 in
`Longs`), others f32. The same values give the same bytes.
"""

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from modelkit.source.gguf.architectures.numbers import Longs
from modelkit.source.gguf.header import ALIGNMENT
from runtime.blocks.types import BlockType
from runtime.records import dataclass

_U8, _U32, _I32, _F32, _BOOL, _STRING, _ARRAY, _U64, _I64 = 0, 4, 5, 6, 7, 8, 9, 10, 11
_VERSION = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor to be written."""

    name: str
    type: BlockType
    shape: tuple[int, ...]
    """Slowest dimension first, in numbers."""

    @property
    def rows(self) -> int:
        return math.prod(self.shape[:-1])

    @property
    def row_bytes(self) -> int:
        return self.type.row_bytes(self.shape[-1])

    @property
    def nbytes(self) -> int:
        return self.rows * self.row_bytes


def header_bytes(metadata: Mapping[str, Any], entries: Sequence[Entry]) -> bytes:
    """All that comes before the data, padding included. Tensors follow in order, each `padded`."""
    parts = [b"GGUF", struct.pack("<IQQ", _VERSION, len(entries), len(metadata))]
    for key, value in metadata.items():
        parts += [_text(key), _value(value)]
    offset = 0
    for entry in entries:
        dimensions = struct.pack(f"<I{len(entry.shape)}Q", len(entry.shape), *reversed(entry.shape))
        parts += [_text(entry.name), dimensions, struct.pack("<IQ", entry.type.number, offset)]
        offset += padded(entry.nbytes)
    head = b"".join(parts)
    return head + bytes(padded(len(head)) - len(head))


def padded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _text(value: str) -> bytes:
    data = value.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", _BOOL, value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    if isinstance(value, int):
        kind, code = _whole(value)
        return struct.pack(f"<I{code}", kind, value)
    if isinstance(value, float):
        return struct.pack("<If", _F32, value)
    return struct.pack("<I", _ARRAY) + _array(value)


def _whole(value: int) -> tuple[int, str]:
    if 0 <= value < 2**32:
        return _U32, "I"
    if -(2**31) <= value < 0:
        return _I32, "i"
    return (_U64, "Q") if value > 0 else (_I64, "q")


def _array(values: bytes | Iterable[Any]) -> bytes:
    if isinstance(values, bytes):
        return struct.pack("<IQ", _U8, len(values)) + values
    items = list(values)
    if isinstance(values, Longs):
        return struct.pack(f"<IQ{len(items)}Q", _U64, len(items), *items)
    if all(isinstance(item, str) for item in items):
        return struct.pack("<IQ", _STRING, len(items)) + b"".join(map(_text, items))
    if all(isinstance(item, bool) for item in items):
        return struct.pack(f"<IQ{len(items)}?", _BOOL, len(items), *items)
    kind, code = (_I32, "i") if all(type(item) is int for item in items) else (_F32, "f")
    return struct.pack(f"<IQ{len(items)}{code}", kind, len(items), *items)
