"""A checkpoint's config and tensors -> the metadata and the tensors of a GGUF file, by the same table."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from modelkit.errors import UnsupportedSource
from modelkit.source.gguf.architectures.architecture import (
    Architecture,
    Kind,
    layer_of,
    links_from_ours,
    names_of,
)
from modelkit.source.gguf.architectures.exchange import Writing
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moves import Origin, Shape
from modelkit.source.gguf.architectures.table import ROWS
from runtime.quoting import shown
from runtime.records import dataclass

_SHOWN = 5
_HEADS = ("mtp.", "mtp_", "model.mtp.", "model.mtp_")


@dataclass(frozen=True, slots=True)
class Described:
    """What a GGUF file of a checkpoint says, but for the vocabulary."""

    architecture: str
    metadata: Mapping[str, Any]
    """Whole keys. Numbers without a point are to be written as u32 (in arrays i32), others as f32."""
    tensors: Mapping[str, Origin]
    """The file's tensors by name, each with the checkpoint's tensors that it is made of."""
    extra: Mapping[str, tuple[float, ...]]
    """Tensors of float32 that follow from the config."""
    notes: tuple[str, ...]
    """Sentences for the user: what GGUF cannot say."""
    looks_ahead: bool = False
    """Do tokens see those behind them?"""
    dense: bool = False
    """Is there a place for Dense modules?"""
    of_target: bool = False
    """Are embedding and head the target's?"""
    otherwise: tuple[str, ...] = ()
    """Fields of the runtime's config that may come back with other values."""


@dataclass(frozen=True, slots=True)
class Unplaced:
    """What the table's spelling of a checkpoint and the checkpoint's own do not have in common."""

    names: tuple[str, ...]
    """Tensors of the checkpoint that no rule knows by their names."""
    free: tuple[str, ...]
    """Names that rules know and that the checkpoint has not, in the table's order."""


def unplaced(config: Mapping[str, Any], shapes: Mapping[str, Shape], label: str) -> Unplaced:
    """The arguments are those of `describe_for_gguf`. Raises UnsupportedSource for a model that GGUF has no
    architecture for.
    """
    row = _row(config, label)[0]
    facts = _facts(config, shapes)
    known = {name: shape for name, shape in shapes.items() if not _is_of_unknown_head(row, name, facts)}
    left = links_from_ours(row, known, facts)[1]
    free = [name for name in names_of(row, facts) if name not in shapes] if left else []
    return Unplaced(tuple(left), tuple(dict.fromkeys(free)))


def describe_for_gguf(
    config: Mapping[str, Any],
    shapes: Mapping[str, Shape],
    values: Callable[[str], Sequence[float]],
    label: str,
) -> Described:
    """config: of the text model, flat, with what its family takes for fields that a file leaves out. shapes:
    of its tensors, under the names that packages have (experts in stacks, projections apart). values: the
    numbers of a small float tensor. label: how messages call the model.

    Raises UnsupportedSource for a model that GGUF has no architecture for, and for tensors that have no
    place.
    """
    row, kind = _row(config, label)
    facts = _facts(config, shapes)
    out = Writing(row.name, facts, shapes, values, label)
    out.metadata["general.architecture"] = row.name
    out.heads = _heads(row, facts, shapes)
    out.put("block_count", facts.layers + out.heads)
    for setting in (*row.settings, *kind.settings):
        setting.write(out)
    turned = row.either_way and config.get("is_causal") is False
    if turned:
        out.put("attention.causal", False)
    heads = {name for name in shapes if _is_of_unknown_head(row, name, facts)}
    if heads:
        out.notes.append("the draft head is left out: llama.cpp's files of this architecture have none")
    links, left = links_from_ours(row, {n: s for n, s in shapes.items() if n not in heads}, facts)
    left = [name for name in left if not out.in_metadata(name)]
    if left:
        listed = ", ".join(f"`{shown(name)}` {list(shapes[name])}" for name in left[:_SHOWN])
        raise UnsupportedSource(f"{label}: {listed} has no place in a GGUF file of a {row.name} model")
    tensors = {origin.name: origin for link in links for origin in link.do()}
    return Described(
        row.name,
        out.metadata,
        tensors,
        out.extra,
        tuple(out.notes),
        row.looks_ahead or turned,
        row.dense,
        row.of_target,
        (*row.otherwise, *out.otherwise),
    )


def _row(config: Mapping[str, Any], label: str) -> tuple[Architecture, Kind]:
    model_type = str(config.get("model_type"))
    for row in ROWS:
        kind = row.kind_named(model_type)
        if kind is not None and row.writes(config):
            return row, kind
    raise UnsupportedSource(
        f"{label} has the model_type {shown(model_type)}, for which no GGUF architecture is known here",
        hint="docs/import.md lists what is. `modelkit export NAME DIR` writes any package as a folder.",
    )


def _heads(row: Architecture, facts: Facts, shapes: Mapping[str, Shape]) -> int:
    """Draft heads that are written as blocks behind the last."""
    places = [layer_of(row, name, facts) for name in shapes]
    return max((place + 1 - facts.layers for place in places), default=0) if row.head else 0


def _is_of_unknown_head(row: Architecture, name: str, facts: Facts) -> bool:
    """Is it part of a draft head, and has the architecture no place for one?"""
    if row.head:
        return False
    return name.startswith(_HEADS) or layer_of(row, name, facts) >= facts.layers > 0


def _facts(config: Mapping[str, Any], shapes: Mapping[str, Shape]) -> Facts:
    return Facts(config, less_one=any(_is_published_filter(name, shape) for name, shape in shapes.items()))


def _is_published_filter(name: str, shape: Shape) -> bool:
    return name.endswith("conv1d.weight") and shape[-1] != 1
