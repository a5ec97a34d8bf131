"""A GGUF model: one file, or all the shards of one, read as a whole.

Shards are called `<stem>-00001-of-00003.gguf`. The first has the model's metadata, all have `split.*`; what
they say must agree with their names and with each other.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from modelkit.errors import MalformedFile, SourceError, UnsupportedSource
from modelkit.source.gguf.header import GgufHeader, GgufTensor, read_gguf_header
from modelkit.source.gguf.values import Metadata
from runtime.quoting import quoted
from runtime.records import dataclass

MAX_SHARDS = 1000

_SHARD = re.compile(r".+-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GgufPart:
    """One file of a model."""

    name: str
    path: Path
    header: GgufHeader


@dataclass(frozen=True, slots=True)
class GgufFile:
    """One model, with a checked header in each of its files."""

    label: str
    """How messages call it."""
    path: Path
    """The file that was named: the only one, or the first shard."""
    metadata: Metadata
    tensors: Mapping[str, GgufTensor]
    """Those of all shards; file after file, in the order of their bytes."""
    alignment: int
    """Of the tensors, in bytes."""
    parts: tuple[GgufPart, ...]
    notes: tuple[str, ...]
    """Sentences for the user."""


def read_gguf(path: Path, label: str | None = None) -> GgufFile:
    """The GGUF file at `path`, with its sibling shards where it is the first of several.

    `label` is how messages call it. Raises SourceError where shards are missing or another than the first is
    named, MalformedFile and UnsupportedSource for what is wrong inside.
    """
    label = label or str(path)
    first = GgufPart(path.name, path, read_gguf_header(path, label))
    split, named = _split(first), _SHARD.fullmatch(path.name)
    if split is None:
        if named and int(named["count"]) > 1:
            raise MalformedFile(f"{label} is called a shard, and its metadata has no `split.count`")
        return _joined((first,), label)
    if split.number:
        raise UnsupportedSource(
            f"{label} is shard {split.number + 1} of {split.count}",
            hint=f"Name the first shard: {_sibling(named, 1) if named else '…-00001-of-…'}",
        )
    if not named or (int(named["number"]), int(named["count"])) != (1, split.count):
        raise MalformedFile(
            f"{label} is the first of {split.count} shards; the others cannot be found without the name "
            f"that llama.cpp gives it: …-00001-of-{split.count:05}.gguf"
        )
    return _joined((first, *_siblings(path, named, split)), label)


@dataclass(frozen=True, slots=True)
class _Split:
    number: int
    count: int
    tensors: int


def _split(part: GgufPart) -> _Split | None:
    """What a file says about shards; None where it is a whole model."""
    metadata = part.header.metadata
    count = metadata.get("split.count", 0)
    if count in (0, 1) and type(count) is int:
        return None
    stated = tuple(metadata.get(f"split.{key}") for key in ("no", "count", "tensors.count"))
    match stated:
        case (int(number), int(count), int(tensors)) if 0 <= number < count <= MAX_SHARDS and tensors >= 0:
            return _Split(number, count, tensors)
        case _:
            raise MalformedFile(
                f"{part.name}: `split.no`, `split.count` and `split.tensors.count` are "
                f"{quoted(stated)}, which no shard can have"
            )


def _sibling(named: "re.Match[str]", number: int) -> str:
    start, stop = named.span("number")
    return f"{named[0][:start]}{number:05}{named[0][stop:]}"


def _siblings(path: Path, named: "re.Match[str]", split: _Split) -> tuple[GgufPart, ...]:
    found: list[GgufPart] = []
    for number in range(2, split.count + 1):
        name = _sibling(named, number)
        beside = path.parent / name
        if not beside.exists():
            raise SourceError(
                f"the model is incomplete: {path.name} is the first of {split.count} shards, and {name} "
                "is not beside it",
                hint="Download the missing files.",
            )
        part = GgufPart(name, beside, read_gguf_header(beside, name))
        if _split(part) != _Split(number - 1, split.count, split.tensors):
            raise MalformedFile(f"{name} says of itself that it is another shard, or one of another model")
        found.append(part)
    return tuple(found)


def _joined(parts: tuple[GgufPart, ...], label: str) -> GgufFile:
    tensors: dict[str, GgufTensor] = {}
    for part in parts:
        for name, tensor in part.header.tensors.items():
            if name in tensors:
                raise MalformedFile(
                    f"{label}: the tensor `{name}` is in {tensors[name].path.name} and in {part.name}"
                )
            tensors[name] = tensor
    first = parts[0]
    split = _split(first)
    if split is not None and len(tensors) != split.tensors:
        raise MalformedFile(
            f"{label}: the shards hold {len(tensors):,} tensors; {split.tensors:,} were announced"
        )
    notes = tuple(note for part in parts for note in part.header.notes)
    return GgufFile(label, first.path, first.header.metadata, tensors, first.header.alignment, parts, notes)
