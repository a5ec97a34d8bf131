"""The header of a GGUF file: metadata, and where each tensor lies. Either exactly what the format allows, or
an error that names what is wrong, before anybody reads a byte of data.

Whoever reads by `GgufTensor.start` and `.stop` stays inside the file, and two tensors never share a byte.
Stricter than llama.cpp in a few points: no empty dimension, alignments of 8 to 65,536, no nested arrays.
Source: docs/gguf.md of ggml, and llama.cpp's gguf.cpp (MIT).
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.gguf.cursor import Cursor
from modelkit.source.gguf.types import block_type
from modelkit.source.gguf.values import Metadata, read_metadata
from modelkit.source.safetensors import Identity
from modelkit.source.sniff import HEAD_BYTES, describe, refuse_other_weights, refuse_stand_in
from modelkit.source.tree import open_regular
from runtime.blocks.types import BlockType
from runtime.quoting import quoted, shown
from runtime.records import dataclass

MAX_TENSORS = 65_536
MAX_DIMENSIONS = 4
MAX_NAME_BYTES = 64
MAX_ELEMENTS = 2**62
ALIGNMENT = 32
"""Of tensors, where `general.alignment` does not say another."""

_NAME = re.compile(rb"[!-~]{1,%d}" % MAX_NAME_BYTES)
_VERSIONS = (2, 3)
_OTHER_ORDER = {version << 24 for version in (1, *_VERSIONS)}
_LEAST_BYTES = 24


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor in a file."""

    name: str
    """As llama.cpp calls it."""
    type: BlockType
    shape: tuple[int, ...]
    """Slowest dimension first, as in numpy; files have it the other way round. In numbers, not in blocks."""
    path: Path
    start: int
    """Absolute byte offset in the file."""
    stop: int
    """Absolute byte offset in the file."""

    @property
    def nbytes(self) -> int:
        return self.stop - self.start

    @property
    def row_bytes(self) -> int:
        """Of one row along the last dimension."""
        return self.type.row_bytes(self.shape[-1])


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """A valid header of one file."""

    metadata: Metadata
    tensors: Mapping[str, GgufTensor]
    """In the order of their bytes."""
    alignment: int
    identity: Identity
    """The file that it was read from."""
    notes: tuple[str, ...]
    """Sentences about what is odd and does no harm."""

    def unchanged(self, descriptor: int) -> bool:
        """Is the opened file the one that was validated, in the same state?"""
        return Identity.of(descriptor) == self.identity


def read_gguf_header(path: Path, label: str) -> GgufHeader:
    """Read and check the header of one file; `label` names it in messages.

    Raises MalformedFile when any rule is broken, UnsupportedSource for big-endian files, other versions,
    types that are gone, or other weights under a false name.
    """
    with open_regular(path, label) as file:
        identity = Identity.of(file.fileno())
        layout = read_layout(Cursor(file, identity.nbytes, label), path)
    tensors = {each.name: each for each in layout.tensors}
    return GgufHeader(layout.metadata, tensors, layout.alignment, identity, layout.notes)


@dataclass(frozen=True, slots=True)
class Layout:
    """What a header says of one file."""

    metadata: Metadata
    tensors: Sequence[GgufTensor]
    """In the order of their bytes."""
    alignment: int
    notes: tuple[str, ...]


def read_layout(cursor: Cursor, path: Path) -> Layout:
    """The same of a file that a cursor reads from its first byte on; `path` is where tensors will be."""
    label = cursor.label
    _check_start(cursor, cursor.file_bytes)
    tensor_count, key_count = cursor.u64("the number of tensors"), cursor.u64("the number of keys")
    if tensor_count > MAX_TENSORS:
        raise MalformedFile(f"{label} announces {tensor_count:,} tensors; at most {MAX_TENSORS:,} are read")
    metadata = read_metadata(cursor, key_count)
    alignment = _alignment(metadata, label)
    entries = _entries(cursor, tensor_count)
    data = -(-cursor.at // alignment) * alignment
    tensors = sorted(
        (_placed(entry, data, alignment, path, label) for entry in entries), key=lambda each: each.start
    )
    notes = _check_spans(tensors, data, alignment, cursor.file_bytes, label)
    return Layout(metadata, tensors, alignment, notes)


def _check_start(cursor: Cursor, file_bytes: int) -> None:
    label = cursor.label
    cursor.need(min(file_bytes, HEAD_BYTES), "the header")
    head = bytes(cursor.data[:HEAD_BYTES])
    refuse_stand_in(head, label)
    if file_bytes < _LEAST_BYTES:
        raise MalformedFile(f"{label} has {file_bytes:,} bytes; the smallest GGUF file has {_LEAST_BYTES:,}")
    magic = head[:4]
    if magic == b"FUGG":
        raise _wrong_order(label)
    if magic != b"GGUF":
        refuse_other_weights(head, label, wanted="GGUF")
        raise MalformedFile(f"{label} is not a GGUF file; it starts with `{describe(head)}`")
    cursor.skip(4, "the magic number")
    version = cursor.u32("the version")
    if version in _OTHER_ORDER:
        raise _wrong_order(label)
    if version == 1:
        raise UnsupportedSource(
            f"{label} is GGUF version 1, of August 2023; versions 2 and 3 are read",
            hint="Convert the model again with a current llama.cpp.",
        )
    if version not in _VERSIONS:
        raise UnsupportedSource(f"{label} is GGUF version {version}; versions 2 and 3 are read")


def _wrong_order(label: str) -> UnsupportedSource:
    return UnsupportedSource(
        f"{label} is a big-endian GGUF file, made for machines like IBM's; little-endian ones are read",
        hint="llama.cpp's gguf_convert_endian.py turns it round.",
    )


def _alignment(metadata: Metadata, label: str) -> int:
    value = metadata.get("general.alignment", ALIGNMENT)
    if type(value) is not int or not 8 <= value <= 65_536 or value & (value - 1):
        raise MalformedFile(
            f"{label}: `general.alignment` is {quoted(value)}; a power of two from 8 to 65,536 was expected"
        )
    return value


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    type: BlockType
    shape: tuple[int, ...]
    offset: int


def _entries(cursor: Cursor, count: int) -> list[_Entry]:
    entries: dict[str, _Entry] = {}
    for _ in range(count):
        entry = _entry(cursor)
        if entry.name in entries:
            raise MalformedFile(f"{cursor.label} has the tensor `{entry.name}` twice")
        entries[entry.name] = entry
    return list(entries.values())


def _entry(cursor: Cursor) -> _Entry:
    length = cursor.u64("a tensor name's length")
    if not 1 <= length <= MAX_NAME_BYTES:
        raise MalformedFile(
            f"{cursor.label} has a tensor name of {length:,} bytes; 1 to {MAX_NAME_BYTES} were expected"
        )
    raw = cursor.take(length, "a tensor name")
    name = raw.decode("latin-1")
    if not _NAME.fullmatch(raw) or ".." in name.split("/"):
        raise MalformedFile(
            f"{cursor.label}: `{shown(name)}` is not a tensor name; expected printable ASCII without blanks"
        )
    where = f"{cursor.label}: tensor `{name}`"
    shape = _shape(cursor, where)
    kind = block_type(cursor.u32(f"{where}, its type"), where)
    if shape[-1] % kind.weights:
        raise MalformedFile(
            f"{where} has rows of {shape[-1]:,} numbers; {kind.name.upper()} stores blocks of {kind.weights}"
        )
    return _Entry(name, kind, shape, cursor.u64(f"{where}, its offset"))


def _shape(cursor: Cursor, where: str) -> tuple[int, ...]:
    count = cursor.u32(f"{where}, its number of dimensions")
    if not 1 <= count <= MAX_DIMENSIONS:
        raise MalformedFile(f"{where} has {count:,} dimensions; 1 to {MAX_DIMENSIONS} were expected")
    shape = tuple(cursor.u64(f"{where}, its shape") for _ in range(count))[::-1]
    if 0 in shape or math.prod(shape) >= MAX_ELEMENTS:
        raise MalformedFile(f"{where} has the shape {list(shape)}, which no tensor can have")
    return shape


def _placed(entry: _Entry, data: int, alignment: int, path: Path, label: str) -> GgufTensor:
    if entry.offset % alignment:
        raise MalformedFile(
            f"{label}: tensor `{entry.name}` starts at offset {entry.offset:,}, "
            f"which is not a multiple of {alignment}"
        )
    start = data + entry.offset
    rows = math.prod(entry.shape[:-1])
    stop = start + rows * entry.type.row_bytes(entry.shape[-1])
    return GgufTensor(entry.name, entry.type, entry.shape, path, start, stop)


def _check_spans(
    tensors: Sequence[GgufTensor], data: int, alignment: int, file_bytes: int, label: str
) -> tuple[str, ...]:
    """Every tensor lies in the file, and no two overlap. What belongs to none is told."""
    reached, idle = data, 0
    for tensor in tensors:
        if tensor.start < reached:
            raise MalformedFile(f"{label}: tensor `{tensor.name}` overlaps the one before it")
        if tensor.stop > file_bytes:
            raise MalformedFile(
                f"{label} is cut off: tensor `{tensor.name}` ends at byte {tensor.stop:,}, "
                f"the file at {file_bytes:,}",
                hint="Download the file again.",
            )
        idle += tensor.start - reached
        reached = -(-tensor.stop // alignment) * alignment
    idle += max(file_bytes - reached, 0)
    if idle < alignment:
        return ()
    return (f"{label} has {idle:,} bytes that belong to no tensor; they are left out",)
