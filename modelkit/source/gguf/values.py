"""Metadata of a GGUF file: names and values, by the format's types.

Every value is walked once, so that all lengths are known to be true. Arrays are decoded when they are asked
for: a vocabulary is half a million strings that most readers never look at.
"""

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.gguf.cursor import Cursor
from runtime.quoting import shown
from runtime.records import dataclass

Scalar: TypeAlias = bool | int | float | str
Value: TypeAlias = Scalar | tuple[bool, ...] | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
"""What a key may have. Arrays are tuples, all of one type."""

MAX_KEYS = 65_536
MAX_KEY_BYTES = 256
MAX_STRING_BYTES = 64 << 20
MAX_ITEM_BYTES = 64 << 10
MAX_ITEMS = 1 << 22  # sixteen times the largest vocabulary that is known

# The format's number of each type, and how `struct` spells it.
_SCALARS: dict[int, str] = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9
_KINDS = {**_SCALARS, _STRING: "string"}
_KEY = re.compile(rb"[!-~]{1,%d}" % MAX_KEY_BYTES)
_U64 = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class _Array:
    """An array that was walked and not decoded."""

    kind: int
    count: int
    data: bytes


class Metadata(Mapping[str, Value]):
    """Keys and values of a file, in its order. Arrays are decoded at the first look, and kept."""

    def __init__(self, values: dict[str, "Value | _Array"], label: str) -> None:
        self._values = values
        self._label = label

    def __getitem__(self, key: str) -> Value:
        value = self._values[key]
        if isinstance(value, _Array):
            value = self._values[key] = _decoded(value, f"{self._label}: `{key}`")
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def having(self, more: Mapping[str, Value]) -> "Metadata":
        """With these keys in place of its own."""
        return Metadata({**self._values, **more}, self._label)

    def renamed(self, name: Callable[[str], str | None]) -> "Metadata":
        """With other names of keys, and without those that get none. A key that is there keeps its place."""
        kept: dict[str, Value | _Array] = {}
        for key, value in self._values.items():
            new = name(key)
            if new is not None and (new == key or new not in self):
                kept[new] = value
        return Metadata(kept, self._label)

    def count(self, key: str) -> int | None:
        """How many items an array has, without decoding it; None where `key` is not an array."""
        value = self._values.get(key)
        if isinstance(value, _Array):
            return value.count
        return len(value) if isinstance(value, tuple) else None


def read_metadata(cursor: Cursor, count: int) -> Metadata:
    """The `count` pairs that begin at the cursor.

    Raises MalformedFile for keys that are no names or come twice, unknown types, lengths above the limits or
    beyond the file, truths that are neither 0 nor 1, bad UTF-8; UnsupportedSource for arrays of arrays.
    """
    if count > MAX_KEYS:
        raise MalformedFile(
            f"{cursor.label} announces {count:,} metadata keys; at most {MAX_KEYS:,} are read"
        )
    values: dict[str, Value | _Array] = {}
    for _ in range(count):
        key = _key(cursor)
        if key in values:
            raise MalformedFile(f"{cursor.label} has the metadata key `{shown(key)}` twice")
        values[key] = _value(cursor, f"{cursor.label}: `{shown(key)}`")
    return Metadata(values, cursor.label)


def _key(cursor: Cursor) -> str:
    length = cursor.u64("a metadata key's length")
    if not 1 <= length <= MAX_KEY_BYTES:
        raise MalformedFile(
            f"{cursor.label} has a metadata key of {length:,} bytes at byte {cursor.at:,}; "
            f"1 to {MAX_KEY_BYTES} were expected"
        )
    key = cursor.take(length, "a metadata key")
    if not _KEY.fullmatch(key):
        raise MalformedFile(
            f"{cursor.label}: `{shown(key.decode('latin-1'))}` is not a metadata key; "
            "printable ASCII without blanks was expected"
        )
    return key.decode("ascii")


def _value(cursor: Cursor, where: str) -> "Value | _Array":
    kind = cursor.u32(f"{where}, its type")
    if kind == _STRING:
        return _text(cursor.take(_length(cursor, where, MAX_STRING_BYTES), where), where)
    if kind == _ARRAY:
        return _array(cursor, where)
    code = _SCALARS.get(kind)
    if code is None:
        raise MalformedFile(f"{where} has the unknown type {kind}")
    raw = cursor.take(struct.calcsize(code), where)
    if code == "?":
        _check_truths(raw, where)
    return struct.unpack(f"<{code}", raw)[0]


def _array(cursor: Cursor, where: str) -> _Array:
    kind, count = cursor.u32(f"{where}, its items' type"), cursor.u64(f"{where}, its length")
    if kind == _ARRAY:
        raise UnsupportedSource(f"{where} is an array of arrays, which no model file has")
    if kind not in _KINDS:
        raise MalformedFile(f"{where} is an array of the unknown type {kind}")
    if count > MAX_ITEMS:
        raise MalformedFile(f"{where} announces {count:,} items; at most {MAX_ITEMS:,} are read")
    start = cursor.at
    if kind == _STRING:
        _walk_strings(cursor, count, where)
        return _Array(kind, count, bytes(cursor.data[start : cursor.at]))
    raw = cursor.take(count * struct.calcsize(_SCALARS[kind]), where)
    if _SCALARS[kind] == "?":
        _check_truths(raw, where)
    return _Array(kind, count, raw)


def _walk_strings(cursor: Cursor, count: int, where: str) -> None:
    """Move past `count` strings. The common case is written out: there are half a million in a vocabulary."""
    cursor.need(8 * count, where)
    data, at, limit = cursor.data, cursor.at, len(cursor.data)
    for _ in range(count):
        if at + 8 <= limit:
            (length,) = _U64.unpack_from(data, at)
            if length <= MAX_ITEM_BYTES and at + 8 + length <= limit:
                at += 8 + length
                continue
        cursor.at = at
        cursor.skip(_length(cursor, where, MAX_ITEM_BYTES), where)
        at, limit = cursor.at, len(cursor.data)
    cursor.at = at


def _length(cursor: Cursor, where: str, most: int) -> int:
    length = cursor.u64(f"{where}, a string's length")
    if length > most:
        raise MalformedFile(f"{where} has a string of {length:,} bytes; at most {most:,} are read")
    return length


def _check_truths(raw: bytes, where: str) -> None:
    if raw.strip(b"\0\1"):
        raise MalformedFile(f"{where} is a truth value of neither 0 nor 1")


def _text(raw: bytes | memoryview, where: str) -> str:
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedFile(f"{where} holds text that is not UTF-8") from error


def _decoded(packed: _Array, where: str) -> Value:
    if packed.kind == _STRING:
        return tuple(_strings(packed, where))
    code = _SCALARS[packed.kind]
    if code == "?":
        return tuple(byte == 1 for byte in packed.data)
    return struct.unpack(f"<{packed.count}{code}", packed.data)


def _strings(packed: _Array, where: str) -> Iterator[str]:
    at, data = 0, packed.data
    try:
        for _ in range(packed.count):
            (length,) = _U64.unpack_from(data, at)
            at += 8 + length
            yield data[at - length : at].decode()
    except UnicodeDecodeError as error:
        raise MalformedFile(f"{where} holds text that is not UTF-8") from error
