"""GGUF files made on the spot, byte by byte, so that wrong ones can be made as well as right ones."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runtime.blocks.types import BLOCK_TYPES

_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9


@dataclass(frozen=True)
class Typed:
    """A value whose type is said, where the one that Python's type suggests is not meant."""

    kind: int
    value: Any
    items: int | None = None
    """Of an array's items."""


@dataclass
class Tensor:
    """A tensor to write. What is left as None is made right."""

    name: str | bytes
    type: str | int = "f32"
    shape: Sequence[int] = (4,)
    """Slowest dimension first."""
    data: bytes | None = None
    offset: int | None = None

    @property
    def content(self) -> bytes:
        if self.data is not None:
            return self.data
        kind = BLOCK_TYPES[self.type] if isinstance(self.type, str) else BLOCK_TYPES["f32"]
        rows = 1
        for size in self.shape[:-1]:
            rows *= size
        return bytes(rows * (self.shape[-1] // kind.weights) * kind.nbytes)


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def _payload(kind: int, value: Any) -> bytes:
    return text(value) if kind == STRING else struct.pack(f"<{_CODES[kind]}", value)


def _kind(value: Any) -> int:
    return {bool: BOOL, int: U32, float: F32, str: STRING, bytes: STRING}[type(value)]


def pair(key: str | bytes, value: Any) -> bytes:
    """One key and its value."""
    if isinstance(value, bytes):
        value = Typed(STRING, value)
    if isinstance(value, (list, tuple)):
        value = Typed(ARRAY, value, _kind(value[0]) if value else STRING)
    if not isinstance(value, Typed):
        value = Typed(_kind(value), value)
    head = text(key) + struct.pack("<I", value.kind)
    if value.kind != ARRAY:
        return head + _payload(value.kind, value.value)
    items = b"".join(_payload(value.items or 0, item) for item in value.value)
    return head + struct.pack("<IQ", value.items or 0, len(value.value)) + items


@dataclass
class Gguf:
    """A file to write, right in all that is not said."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    tensors: Sequence[Tensor] = ()
    magic: bytes = b"GGUF"
    version: int = 3
    alignment: int = 32
    pairs: Sequence[bytes] = ()
    """Further pairs, as bytes."""
    key_count: int | None = None
    tensor_count: int | None = None
    tail: bytes = b""

    def header(self) -> bytes:
        pairs = [*(pair(key, value) for key, value in self.metadata.items()), *self.pairs]
        counts = (
            len(self.tensors) if self.tensor_count is None else self.tensor_count,
            len(pairs) if self.key_count is None else self.key_count,
        )
        start = self.magic + struct.pack("<I", self.version) + struct.pack("<QQ", *counts)
        return start + b"".join(pairs) + b"".join(self._entries())

    def _entries(self) -> list[bytes]:
        offset, entries = 0, []
        for tensor in self.tensors:
            kind = tensor.type if isinstance(tensor.type, int) else BLOCK_TYPES[tensor.type].number
            sizes = tuple(tensor.shape)[::-1]
            placed = offset if tensor.offset is None else tensor.offset
            entries.append(
                text(tensor.name)
                + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
                + struct.pack("<IQ", kind, placed)
            )
            offset += self._padded(len(tensor.content))
        return entries

    def _padded(self, size: int) -> int:
        return -(-size // self.alignment) * self.alignment

    def __bytes__(self) -> bytes:
        parts = [self.header()]
        for part in (tensor.content for tensor in self.tensors):
            before = sum(map(len, parts))
            parts.append(bytes(self._padded(before) - before))
            parts.append(part)
        before = sum(map(len, parts))
        parts.append(bytes(self._padded(before) - before))
        return b"".join(parts) + self.tail
