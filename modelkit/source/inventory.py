"""What a model source holds, from its headers alone: configuration, tensors, files to keep.

The same for a folder, a single file and the blobs of a stored package. Reads config.json, the shard index and
safetensors headers, all of them validated; never a weight. Nothing is dropped in silence: `notes` accounts
for every top-level file that is not kept. Names below a folder (`draft/…`) belong to other trees and are not
looked at, but for those that describe the model's own modules; see `tree.is_own` and `tree.subtree`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from modelkit.errors import SourceError, UnsupportedSource
from modelkit.source.companion_files import divide, kept_of
from modelkit.source.safetensors import Header, Identity, read_header
from modelkit.source.shards import check_placement, read_index, weight_names
from modelkit.source.sniff import weights_kind
from modelkit.source.strict_json import read_json
from modelkit.source.tensor import TensorInfo
from modelkit.source.tree import Files, is_own
from runtime.quoting import quoted, shown
from runtime.records import dataclass


@dataclass(frozen=True, slots=True)
class WeightFile:
    """One file of weights."""

    name: str
    """In the source."""
    path: Path
    """The real file."""
    header: Header
    """Checked."""

    @property
    def nbytes(self) -> int:
        return self.header.identity.nbytes


@dataclass(frozen=True, slots=True)
class Inventory:
    """One source. All in name order, so that the same source gives the same inventory everywhere."""

    origin: str
    """How messages call the source."""
    config: dict[str, Any]
    generation_config: dict[str, Any] | None
    tensors: Mapping[str, TensorInfo]
    files: Files
    """Everything to keep besides weights and index."""
    weights: tuple[WeightFile, ...]
    notes: tuple[str, ...]
    """Sentences for the user."""
    keep: object = None
    """What keeps files on the disk that were made for this source."""
    seen: Mapping[str, Identity] = field(default_factory=dict[str, Identity])
    """In which state those of `files` were that lie where somebody else may change them, before any of them
    was read.
    """


def read_inventory(files: Files, origin: str) -> Inventory:
    """Take stock of a source. `origin` is how messages call it.

    Raises SourceError and its kinds: no or bad config.json, weights missing, surplus, ambiguous or malformed,
    weights of a kind that is not imported, a config that wants to run code.
    """
    top = {name: files[name] for name in sorted(files) if is_own(name)}
    seen = {name: Identity.at(top[name], f"{origin}/{name}") for name in kept_of(top)}
    index = read_index(top, origin)
    names = weight_names(top, index, origin)
    if not names:
        _refuse_without_weights(top, origin)
    config = _config(top, origin)
    generation = _optional(top, "generation_config.json", origin)
    weights = tuple(
        WeightFile(name, top[name], read_header(top[name], label=f"{origin}/{name}")) for name in names
    )
    tensors = _merge(weights, index, origin)
    kept, notes = divide(top, names, origin)
    notes = (*notes, *_config_notes(config))
    return Inventory(origin, config, generation, tensors, kept, weights, notes, seen=seen)


def _config(top: Files, origin: str) -> dict[str, Any]:
    config = _optional(top, "config.json", origin)
    if config is None:
        raise SourceError(
            f"{origin} has no config.json", hint="Copy it from the repository that the model came from."
        )
    if "model_file" in config:
        raise UnsupportedSource(
            f"{origin}/config.json asks to run the Python file {quoted(config['model_file'])}",
            hint="modelkit never runs code from a model.",
        )
    return config


def _optional(top: Files, name: str, origin: str) -> dict[str, Any] | None:
    return read_json(top[name], nonfinite=True, label=f"{origin}/{name}") if name in top else None


def _config_notes(config: Mapping[str, Any]) -> Iterable[str]:
    for key in ("auto_map", "custom_pipelines"):
        if key in config:
            yield f"config.json names code to run (`{key}`); it is not followed"


def _merge(
    weights: tuple[WeightFile, ...], index: Mapping[str, str] | None, origin: str
) -> dict[str, TensorInfo]:
    placed: dict[str, tuple[str, TensorInfo]] = {}
    for file in weights:
        for tensor in file.header.tensors:
            if tensor.name in placed:
                first = placed[tensor.name][0]
                raise SourceError(f"{origin}: the tensor `{tensor.name}` is in both {first} and {file.name}")
            placed[tensor.name] = (file.name, tensor)
    if index is not None:
        check_placement(placed, index, origin)
    if not placed:
        raise SourceError(f"{origin} has weight files, but no tensor is in them")
    return {name: placed[name][1] for name in sorted(placed)}


def _refuse_without_weights(top: Files, origin: str) -> None:
    """There is nothing to import; say what is there instead."""
    for name in top:
        other = weights_kind(name)
        if other is not None:
            kind, hint = other
            raise UnsupportedSource(f"{origin} holds its weights as {kind} only (`{shown(name)}`)", hint=hint)
    stray = [name for name in top if name.endswith(".safetensors")]
    if any(name.startswith("adapter") for name in stray):
        raise UnsupportedSource(f"{origin} is a LoRA adapter, not a model", hint="FROM takes the base model.")
    if any(name.startswith("consolidated") for name in stray):
        raise UnsupportedSource(
            f"{origin} holds its weights in Mistral's own layout only (`{shown(stray[0])}`)",
            hint="Use the model*.safetensors of the same repository.",
        )
    if stray:
        raise UnsupportedSource(
            f"{origin} has no model*.safetensors, only `{shown(stray[0])}`",
            hint=f"If that is the model, name the file: FROM {origin}/{shown(stray[0])}",
        )
    raise SourceError(f"{origin} holds no model weights: there is no model*.safetensors")
