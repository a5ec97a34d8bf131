"""Safetensors headers, judged before anybody reads a byte of data.

The native loaders below us take headers that wrap around, overlap or reach outside the file, and then crash
or hand out foreign memory. Here a header is either exactly what the format allows or an error that names the
tensor, so whoever reads by `TensorInfo.start` and `.stop` stays inside the file. Stricter than the reference
library in a few points: no leading blank, no key besides the three of the format, at most 8 dimensions,
tensor names of at most 512 printable bytes.

Invariant: everything accepted here is accepted by the `safetensors` library (a differential test holds it to
that). Source: the format section of the safetensors README.
"""

import json
import os
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from modelkit.errors import MalformedFile, SourceError
from modelkit.json_text import unique_keys
from modelkit.python_faults import fault, os_reason
from modelkit.source.sniff import HEAD_BYTES, describe, refuse_other_weights, refuse_stand_in
from modelkit.source.tensor import TensorInfo, encoded, read_entry
from modelkit.source.tree import open_regular
from runtime.quoting import quoted, shown
from runtime.records import dataclass

MAX_HEADER_BYTES = 100_000_000
MAX_METADATA_BYTES = 1_000_000
MAX_TENSORS = 200_000

# Parsed JSON can weigh a hundred times its text. A tensor's entry has at most 14 commas and opening brackets.
_MAX_VALUES = 14 * MAX_TENSORS + MAX_METADATA_BYTES


@dataclass(frozen=True, slots=True)
class Identity:
    """Which file was validated, and in which state."""

    device: int
    inode: int
    nbytes: int
    mtime_ns: int

    @classmethod
    def of(cls, descriptor: int) -> "Identity":
        return cls.of_status(os.fstat(descriptor))

    @classmethod
    def at(cls, path: Path, label: str) -> "Identity":
        """Of the file at the end of a path. Raises SourceError."""
        try:
            return cls.of_status(path.stat())
        except OSError as error:
            raise SourceError(f"cannot read {label}: {os_reason(error)}") from error

    @classmethod
    def of_status(cls, status: os.stat_result) -> "Identity":
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def is_of(self, status: os.stat_result) -> bool:
        return self == Identity.of_status(status)


@dataclass(frozen=True, slots=True)
class Header:
    """A valid header."""

    tensors: tuple[TensorInfo, ...]
    """In the order of their bytes."""
    metadata: dict[str, str]
    identity: Identity
    """The file that it was read from."""

    def unchanged(self, descriptor: int) -> bool:
        """Is the opened file the one that was validated, in the same state?

        Ask on the descriptor that the data is read from: a name can be moved to another file in between.
        """
        return Identity.of(descriptor) == self.identity


def read_header(path: Path, *, label: str | None = None) -> Header:
    """Read and check the header of the safetensors file at `path`; `label` names the file in messages.

    Raises MalformedFile when any rule is broken, UnsupportedSource when the file is other weights under a
    false name.
    """
    label = label or str(path)
    with open_regular(path, label) as file:
        identity = Identity.of(file.fileno())
        text = _header_bytes(file, identity.nbytes, label)
    entries = _parse(text, label)
    metadata = _metadata(entries.pop("__metadata__", None), label)
    data = 8 + len(text)
    tensors = [read_entry(name, entry, path, data, label) for name, entry in entries.items()]
    tensors.sort(key=lambda tensor: (tensor.start, tensor.stop))
    _check_contiguous(tensors, data, identity.nbytes, label)
    return Header(tuple(tensors), metadata, identity)


def _header_bytes(file: BinaryIO, file_bytes: int, label: str) -> bytes:
    head = file.read(HEAD_BYTES)
    refuse_stand_in(head, label)
    if file_bytes < 10:
        raise MalformedFile(f"{label} has {file_bytes:,} bytes; the smallest safetensors file has 10")
    length = int.from_bytes(head[:8], "little")
    if not 2 <= length <= min(MAX_HEADER_BYTES, file_bytes - 8):
        refuse_other_weights(head, label)
        raise MalformedFile(
            f"{label} announces a header of {length:,} bytes; 2 to {MAX_HEADER_BYTES:,} were expected, "
            f"inside a file of {file_bytes:,} (first bytes: {describe(head)})",
            hint="The file is cut off or no safetensors file; download it again.",
        )
    file.seek(8)
    text = file.read(length)
    if len(text) != length:
        raise MalformedFile(f"{label} became shorter while it was read")
    if not text.startswith(b"{"):
        raise MalformedFile(
            f"{label}: the header starts with {quoted(describe(text[:1]))}; `{{` was expected"
        )
    return text


def _parse(text: bytes, label: str) -> dict[str, Any]:
    """The header's JSON object. Memory stays bounded: the number of values is capped before parsing."""
    values = sum(map(text.count, (b",", b"[", b"{")))
    if values > _MAX_VALUES:
        raise MalformedFile(
            f"{label}: the header holds {values:,} values; at most {MAX_TENSORS:,} tensors are read"
        )
    try:
        return json.loads(
            text.decode("utf-8"),
            object_pairs_hook=unique_keys,
            parse_int=_natural,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
    except RecursionError as error:
        raise MalformedFile(
            f"{label}: the header is nested far deeper than the format's three levels"
        ) from error
    except ValueError as error:  # undecodable bytes and JSON errors are ValueErrors too
        raise MalformedFile(f"{label}: the header is not valid: {fault(error)}") from error


def _natural(text: str) -> int:
    if text.startswith("-") or len(text) > 20:
        _refuse_number(text)
    return int(text)


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"the number {shown(text)} is not a size or offset")


def _metadata(value: object, label: str) -> dict[str, str]:
    if value is None:  # MLX writes null for none
        return {}
    if not isinstance(value, dict):
        raise MalformedFile(f"{label}: `__metadata__` must be an object of texts")
    size = 0
    for key, text in value.items():
        if not isinstance(text, str):
            raise MalformedFile(f"{label}: `__metadata__` maps `{shown(key)}` to something that is not text")
        size += len(encoded(key, label)) + len(encoded(text, label))
    if size > MAX_METADATA_BYTES:
        raise MalformedFile(
            f"{label}: `__metadata__` holds {size:,} bytes; at most {MAX_METADATA_BYTES:,} are read"
        )
    return value


def _check_contiguous(tensors: list[TensorInfo], data: int, file_bytes: int, label: str) -> None:
    """Every byte after the header belongs to exactly one tensor."""
    if len(tensors) > MAX_TENSORS:
        raise MalformedFile(f"{label} holds {len(tensors):,} tensors; at most {MAX_TENSORS:,} are read")
    reached = data
    for tensor in tensors:
        if tensor.start != reached:
            fault = "overlaps the tensor before it" if tensor.start < reached else "leaves a gap before it"
            raise MalformedFile(
                f"{label}: tensor `{tensor.name}` {fault}: it starts at byte {tensor.start:,} of the file, "
                f"byte {reached:,} was expected"
            )
        reached = tensor.stop
    if reached != file_bytes:
        fault = "is cut off" if reached > file_bytes else "has bytes that belong to no tensor"
        raise MalformedFile(
            f"{label} {fault}: the tensors end at byte {reached:,}, the file at {file_bytes:,}",
            hint="Download the file again.",
        )
