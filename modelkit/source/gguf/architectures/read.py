"""A GGUF file's metadata and tensors' shapes -> config.json and where the checkpoint's tensors come from.

Pure but for `values`, which reads the numbers of the few small tensors that say something about the config.
What is not understood is refused by name: an architecture, a key that may change numbers, a tensor too many.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.gguf.architectures.architecture import Architecture, links_from_theirs
from modelkit.source.gguf.architectures.exchange import Reading
from modelkit.source.gguf.architectures.facts import Facts
from modelkit.source.gguf.architectures.moves import Link, Origin, RowsDiffer, Shape, meant_shape
from modelkit.source.gguf.architectures.table import ELSEWHERE, NAMES, ROWS
from runtime.quoting import quoted, shown
from runtime.records import dataclass

# Images and sound, which Ollama keeps in the text model's file. No model here runs them.
_TOWERS = ("v.", "mm.", "a.", "s.")
_HEAD = "mtp."
_TOWER_KEYS = ("vision", "audio", "mm")
_TOKENS = ("bos", "eos", "padding")
_SHOWN = 5
_BLOCK = re.compile(r"blk\.(\d{1,5})\.", re.ASCII)
_MOST_BLOCKS = 4096


@dataclass(frozen=True, slots=True)
class Imported:
    """What a GGUF file is, in the words of a checkpoint."""

    config: dict[str, Any]
    """config.json, in the spelling of transformers 5."""
    tensors: Mapping[str, Origin]
    """The checkpoint's tensors by name, each with the tensors of the file that it is made of."""
    scales: Mapping[str, str]
    """Tensors of the checkpoint that are packed with a factor apart (NVFP4): where the factor lies in the
    file.
    """
    constants: Mapping[str, tuple[Shape, tuple[float, ...]]]
    """Tensors of the checkpoint whose numbers stand in the metadata: shape and numbers, to be float32."""
    notes: tuple[str, ...]
    """Sentences for the user."""
    dense: tuple[str, ...] = ()
    """Tensors of the file that are Dense modules behind pooling, in order."""


def read_architecture(
    metadata: Mapping[str, Any],
    shapes: Mapping[str, Shape],
    values: Callable[[str], Sequence[float]],
    label: str,
) -> Imported:
    """shapes: of all tensors, slowest dimension first. values: the numbers of a float tensor. label: how
    messages call the file.

    Raises UnsupportedSource for what this version does not know, MalformedFile for what contradicts itself.
    """
    name = _name(metadata, label)
    shapes = {tensor: meant_shape(tensor, shape) for tensor, shape in shapes.items()}
    file = Reading(name, metadata, shapes, values, label)
    if file.blocks < 1 or file.blocks > _MOST_BLOCKS:
        file.refuse(f"`{file.full('block_count')}` is {file.blocks}; 1 to {_MOST_BLOCKS} were expected")
    row, kind = next((row, kind) for row in ROWS if row.name == name for kind in row.kinds if kind.when(file))
    file.all_head = row.all_head
    file.config |= {"architectures": [kind.class_name], "model_type": kind.model_type}
    _read_common(file, metadata, row)
    for setting in (*row.settings, *kind.settings):
        setting.read(file)
    _refuse_unread(file)
    return _with_tensors(row, file)


def _name(metadata: Mapping[str, Any], label: str) -> str:
    kind = metadata.get("general.type", "model")
    if kind != "model":
        raise UnsupportedSource(
            f"{label} is not a model: its `general.type` is {quoted(kind)}",
            hint="FROM takes the model's own file.",
        )
    name = metadata.get("general.architecture")
    if not isinstance(name, str):
        raise MalformedFile(f"{label}: the metadata has no `general.architecture`")
    if name in ELSEWHERE:
        raise UnsupportedSource(f"{label}: {ELSEWHERE[name]}")
    if name not in NAMES:
        raise UnsupportedSource(
            f"{label} has the architecture `{shown(name)}`, which modelkit does not run",
            hint=_which(name),
        )
    return name


def _which(name: str) -> str:
    """Which architectures are read that are called much like it, and where all are listed."""
    near = get_close_matches(name[:80], sorted(NAMES), 3)
    alike = f"Names like it that are read: {', '.join(near)}. " if near else ""
    return f"{alike}docs/import.md lists all {len(NAMES)}, under `Architectures of GGUF`."


def _read_common(file: Reading, metadata: Mapping[str, Any], row: Architecture) -> None:
    rows = _rows(file, metadata, row)
    file.config["num_hidden_layers"] = file.layers
    file.config["vocab_size"] = rows
    causal = file.get("attention.causal")
    looks_ahead = causal is False or (causal is None and row.always_ahead)
    if looks_ahead and row.either_way:
        file.config["is_causal"] = False
    elif looks_ahead and not row.looks_ahead and not row.of_target:
        file.unsupported("tokens see those behind them, which is not computed: it is not a language model")
    if row.looks_ahead and not looks_ahead:
        file.unsupported("tokens see those before them alone, which is not computed for an encoder")
    file.skip("pooling_type")  # becomes a file of its own
    file.skip("tensor_data_layout", "rope.scaling.finetuned")
    told = file.get("vocab_size", int)
    if told is not None and told != rows:
        file.notes.append(f"the vocabulary has {rows:,} rows; the metadata says {told:,}")
    file.config["tie_word_embeddings"] = "output.weight" not in file.shapes
    for name in _TOKENS:
        value = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if type(value) is int and 0 <= value < rows:
            file.config[f"{name.replace('padding', 'pad')}_token_id"] = value


def _rows(file: Reading, metadata: Mapping[str, Any], row: Architecture) -> int:
    """Of the embedding; a draft without one has as many tokens as its target."""
    if row.of_target:
        tokens = metadata.get("tokenizer.ggml.tokens")
        if not isinstance(tokens, Sequence) or isinstance(tokens, str) or not tokens:
            file.refuse("it has no tokens (`tokenizer.ggml.tokens`), which are its target's")
        return len(tokens)
    embedding = file.shapes.get("token_embd.weight")
    if embedding is None or len(embedding) != 2:
        file.refuse("there is no tensor `token_embd.weight`, so this is not a whole model")
    return embedding[0]


def _refuse_unread(file: Reading) -> None:
    unread = [key for key in file.unread() if key.split(".")[1] not in _TOWER_KEYS]
    if not file.count("expert_count", 0):
        unread = [key for key in unread if not key.split(".")[1].startswith("expert_")]
    if unread:
        listed = ", ".join(f"`{shown(key)}`" for key in unread[:_SHOWN])
        file.unsupported(
            f"{listed} in the metadata may change the model's numbers, and this version of modelkit does not "
            "know what it means"
        )


def _with_tensors(row: Architecture, file: Reading) -> Imported:
    towers = {name for name in file.shapes if name.startswith(_TOWERS)}
    heads = _heads(row, file)
    if heads:
        file.notes.append("the draft head is left out: those of this architecture are not run here")
    _refuse_head_alone(file)
    apart = {*file.used_tensors, *towers, *heads}
    weights = {name: shape for name, shape in file.shapes.items() if name not in apart}
    links, left = links_from_theirs(row, weights, Facts(file.config))
    factors = {
        name
        for name in left
        if name.endswith((".scale", ".input_scale")) and f"{name.rpartition('.')[0]}.weight" in weights
    }
    _refuse_surplus(row, file, [name for name in left if name not in factors])
    if towers:
        file.notes.append(f"{len(towers)} tensors for images and sound are left out")
    inputs = sum(name.endswith(".input_scale") for name in factors)
    if inputs:
        file.notes.append(f"{inputs} scales that activations would be rounded by are left out")
    tensors = {origin.name: origin for link in links for origin in _undone(link, file)}
    scales = _scales(tensors, factors, file)
    notes, dense = tuple(file.notes), tuple(file.dense)
    config = row.wrapped(file.config) if row.wrapped else file.config
    return Imported(config, tensors, scales, file.constants, notes, dense)


def _heads(row: Architecture, file: Reading) -> set[str]:
    """Tensors of a draft head, where that is not run here."""
    heads = {name for name in file.shapes if name.startswith(_HEAD)}
    if row.head:
        return heads
    return heads | {name for name in file.shapes if file.layers <= _block(name) < file.blocks}


def _refuse_head_alone(file: Reading) -> None:
    blocks = {_block(name) for name in file.shapes}
    layers = {block for block in blocks if 0 <= block < file.layers}
    if not layers and any(block >= file.layers for block in blocks):
        file.unsupported(
            f"this is a draft head alone, without the {file.layers} layers of its model",
            hint="FROM takes a file that holds both; the head drafts by itself then.",
        )


def _refuse_surplus(row: Architecture, file: Reading, surplus: Sequence[str]) -> None:
    if surplus:
        listed = ", ".join(f"`{shown(name)}` {list(file.shapes[name])}" for name in surplus[:_SHOWN])
        more = f" and {len(surplus) - _SHOWN} more" if len(surplus) > _SHOWN else ""
        file.unsupported(
            f"{listed}{more}: no tensor of that name and shape belongs to a {row.name} model here"
        )


def _undone(link: Link, file: Reading) -> tuple[Origin, ...]:
    try:
        return link.undo()
    except RowsDiffer:
        names = ", ".join(f"`{shown(side.name)}` {list(side.shape)}" for side in link.theirs)
        file.refuse(f"{names}: other rows than the metadata means")


def _block(name: str) -> int:
    """The block that a tensor belongs to; -1: none."""
    found = _BLOCK.match(name)
    return int(found[1]) if found else -1


def _scales(tensors: Mapping[str, Origin], factors: set[str], file: Reading) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, origin in tensors.items():
        named = [f"{source.removesuffix('.weight')}.scale" for source in origin.tensors]
        held = [factor for factor in named if factor in factors]
        if held and len(named) > 1:
            file.unsupported(f"`{shown(held[0])}` is a factor of a part of {name}, which is not computed")
        if held:
            found[name] = held[0]
    return found
