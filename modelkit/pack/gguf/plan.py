"""What a GGUF file of a package holds: every tensor with its type, and what becomes of its numbers.

Weights stay as exact as GGUF allows. What llama.cpp's kernels take as float32 only (norms, biases, routers,
short convolutions) is written so, whatever it was: the same numbers in more bits.
Source of that list: conversion/base.py of llama.cpp (MIT).
"""

from collections import defaultdict
from collections.abc import Mapping

from modelkit.pack.gguf.rows import scan
from modelkit.pack.gguf.tensors import NUMBERS, Stored
from modelkit.pack.gguf.type_choice import TypeChoice, choose_type
from modelkit.pack.writing.reader import Reader
from modelkit.source.gguf.architectures import Origin
from modelkit.source.gguf.architectures.changes import Columns, Turned
from modelkit.source.gguf.header_bytes import Entry
from modelkit.source.prequantized import Packing
from runtime.blocks.types import BLOCK_TYPES, BlockType
from runtime.records import dataclass

_WIDE = frozenset(
    {
        "ffn_gate_inp", "ffn_gate_inp_shexp", "position_embd", "token_types", "ssm_conv1d", "shortconv.conv",
        "altup_correct_coef", "altup_predict_coef", "ssm_conv1d_q", "ssm_conv1d_k", "ssm_conv1d_v",
        "indexer.proj",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Written:
    """One tensor of the file."""

    entry: Entry
    origin: Origin
    choice: TypeChoice


@dataclass(frozen=True, slots=True)
class Kind:
    """All tensors of a type that are written in the same way, for people."""

    type: str
    how: str
    why: str
    tensors: int
    nbytes: int


def plan(origins: Mapping[str, Origin], tensors: Mapping[str, Stored], reader: Reader) -> list[Written]:
    """Decide for every tensor. Reads scales, never codes."""
    return [_written(origin, tensors, reader) for origin in origins.values()]


def kinds(written: list[Written]) -> list[Kind]:
    """By type and way, the largest first."""
    found: dict[tuple[str, str, str], list[Written]] = defaultdict(list)
    for one in written:
        found[one.choice.type, one.choice.how, one.choice.why].append(one)
    rows = [
        Kind(*key, len(members), sum(one.entry.nbytes for one in members)) for key, members in found.items()
    ]
    return sorted(rows, key=lambda kind: (-kind.nbytes, kind.type, kind.how))


def _written(origin: Origin, tensors: Mapping[str, Stored], reader: Reader) -> Written:
    chosen = _choose(origin, tensors, reader)
    return Written(Entry(origin.name, BLOCK_TYPES[chosen.type], origin.shape), origin, chosen)


def _choose(origin: Origin, tensors: Mapping[str, Stored], reader: Reader) -> TypeChoice:
    sources = [tensors[name] for name in origin.tensors]
    packings = {one.packing for one in sources}
    changed = origin.change is not None and not isinstance(origin.change, Columns | Turned)
    if packings == {None}:
        return _choose_float(origin, sources, changed=changed)
    if is_wide(origin):
        return TypeChoice("f32", "converted")
    (packing, *others) = packings
    if isinstance(packing, BlockType) and not others and origin.change is None:
        return TypeChoice(packing.name, "copied")
    if others or not isinstance(packing, Packing) or not _keeps_groups(origin, packing.group_size):
        return TypeChoice(
            "f16", "rounded", "its parts are packed in different ways" if others else "it is turned over"
        )
    return choose_type(packing, origin.shape[-1], scan(origin, tensors, reader))


def _choose_float(origin: Origin, sources: list[Stored], *, changed: bool) -> TypeChoice:
    types = {NUMBERS[one.data.dtype] for one in sources}
    if is_wide(origin) or len(types) > 1:
        return TypeChoice("f32", "copied" if types == {"f32"} and origin.change is None else "converted")
    (only,) = types
    if only == "i32":
        return TypeChoice(only, "copied" if sources[0].data.dtype == "I32" else "converted")
    if changed and only != "f32":
        return TypeChoice("f32", "converted")
    return TypeChoice(only, "copied" if origin.change is None else "converted")


def _keeps_groups(origin: Origin, group: int) -> bool:
    change = origin.change
    return change is None or (isinstance(change, Columns) and change.group % group == 0)


def is_wide(origin: Origin) -> bool:
    """Does llama.cpp want this as float32?"""
    name = origin.name
    stem = name.removesuffix(".weight")
    if len(origin.shape) <= 1 or stem == name or stem.endswith("_norm"):
        return True
    return (stem.split(".", 2)[-1] if stem.startswith("blk.") else stem) in _WIDE
