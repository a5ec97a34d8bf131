"""A GGUF file as a checkpoint: config, tokenizer files and tensors under the names that transformers has.

Files that a checkpoint has and a GGUF does not are made of its metadata, into a folder that lasts as long as
the inventory that names them.
"""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from modelkit.errors import MalformedFile, UnsupportedSource
from modelkit.source.gguf.architectures import Origin, Run
from modelkit.source.gguf.header import GgufTensor
from modelkit.source.gguf.modules import module_files
from modelkit.source.inventory import Inventory, WeightFile
from modelkit.source.safetensors import Header, Identity
from modelkit.source.tensor import TensorInfo
from modelkit.source.tree import Files, open_regular
from modelkit.temporary import TemporaryFolder
from runtime.config.text import text_config
from runtime.quoting import shown
from runtime.records import dataclass

if TYPE_CHECKING:
    from modelkit.source.gguf.file import GgufFile

FACTS = "gguf.json"
"""What the file says of itself: its `general.*` keys and what it was quantized with."""

_FLOATS = {"f32": "F32", "f16": "F16", "bf16": "BF16"}
_TABLES = "ffn_gate_tid2eid.weight"
"""How names of tensors of whole numbers end."""
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_MOST_VALUES = 1 << 20
_CONSTANTS = "numbers-of-the-metadata"
_KEPT_KEYS = ("general.", "quantize.")


Constants: TypeAlias = Mapping[str, tuple[tuple[int, ...], tuple[float, ...]]]


@dataclass(frozen=True, slots=True)
class GgufWeights:
    """Weights of a GGUF file: packed in its blocks, in its rows' order, or plain floats."""

    origins: Mapping[str, Origin]
    """What the checkpoint's tensors are made of, by name."""
    stored: Mapping[str, TensorInfo]
    """The file's tensors by their own names. The dtype of packed ones is that of their blocks, such as q4_k;
    the shape counts numbers."""
    factors: Mapping[str, str]
    """Checkpoint tensors whose numbers are to be multiplied: the stored tensor with the factor, or one for
    each expert."""
    notes: tuple[str, ...] = ()
    """What of the file is left out or read otherwise, for whoever packs it or runs it."""

    def types(self) -> dict[str, int]:
        """How many tensors of each type there are, the type with the most numbers first."""
        counts: dict[str, list[int]] = {}
        for tensor in self.stored.values():
            count = counts.setdefault(tensor.dtype, [0, 0])
            count[0] += 1
            count[1] += math.prod(tensor.shape)
        return {name: counts[name][0] for name in sorted(counts, key=lambda name: -counts[name][1])}


class _MadeFiles:
    """A folder with files that were made; it goes when this does."""

    def __init__(self, contents: Mapping[str, bytes], constants: bytes) -> None:
        self._folder = TemporaryFolder("gguf", "the files of a tokenizer")
        self.files: Files = {name: self._folder.path / name for name in sorted(contents)}
        with self._folder.writing():
            for name, path in self.files.items():
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(contents[name])
            if constants:
                self.constants.write_bytes(constants)

    @property
    def constants(self) -> Path:
        """Numbers of tensors that stand in the metadata."""
        return self._folder.path / _CONSTANTS

    def constants_file(self) -> WeightFile:
        with open_regular(self.constants, _CONSTANTS) as file:
            return WeightFile(_CONSTANTS, self.constants, Header((), {}, Identity.of(file.fileno())))


def read_checkpoint(path: Path, label: str, head: Path | None = None) -> tuple[Inventory, GgufWeights]:
    """The model in the GGUF file at `path`, or in the shards that begin with it. head: the file of its draft
    head, where that lies apart.

    Raises SourceError and its kinds: what is malformed, an architecture, a tokenizer or a tensor that is not
    known, an adapter or another file that is not a model.
    """
    from modelkit.source.gguf.architectures import read_architecture
    from modelkit.source.gguf.architectures.ollama import in_llama_cpps_words
    from modelkit.source.gguf.file import read_gguf
    from modelkit.source.gguf.heads import refuse_alone, with_head

    gguf = in_llama_cpps_words(read_gguf(path, label))
    refuse_alone(gguf)
    if head is not None:
        gguf = with_head(gguf, read_gguf(head))
    shapes = {name: tensor.shape for name, tensor in gguf.tensors.items()}
    imported = read_architecture(gguf.metadata, shapes, lambda name: _numbers(gguf, name), label)
    stored = {name: _stored(tensor, label) for name, tensor in gguf.tensors.items()}
    weights = GgufWeights(imported.tensors, stored, imported.scales)
    histogram = _histogram(weights)
    config = {**imported.config, "dtype": _dtype(weights)}
    made, notes = _files(gguf, config, imported.dense, label)
    keep = _MadeFiles(made, _bytes(imported.constants))
    generation = made.get("generation_config.json")
    files = [WeightFile(part.name, part.path, Header((), {}, part.header.identity)) for part in gguf.parts]
    if imported.constants:
        weights = _with_constants(weights, imported.constants, keep.constants)
        files.append(keep.constants_file())
    inventory = Inventory(
        origin=label,
        config=config,
        generation_config=json.loads(generation) if generation else None,
        tensors=_tensors(weights),
        files=keep.files,
        weights=tuple(files),
        notes=(histogram,),
        keep=keep,
    )
    return inventory, replace(weights, notes=(*gguf.notes, *imported.notes, *notes))


def _stored(tensor: GgufTensor, label: str) -> TensorInfo:
    kind = tensor.type
    dtype = kind.name if kind.packed else _FLOATS.get(kind.name)
    if kind.name == "i32" and tensor.name.endswith(_TABLES):
        dtype = "I32"
    if dtype is None:
        raise UnsupportedSource(
            f"{label}: tensor `{tensor.name}` is {kind.name.upper()}; weights are floats or quantized"
        )
    return TensorInfo(tensor.name, dtype, tensor.shape, tensor.path, tensor.start, tensor.stop)


def _bytes(constants: Constants) -> bytes:
    return b"".join(struct.pack(f"<{len(numbers)}f", *numbers) for _, numbers in constants.values())


def _with_constants(weights: GgufWeights, constants: Constants, path: Path) -> GgufWeights:
    """Tensors whose numbers stand in the metadata, as tensors of a file of their own."""
    origins, stored, at = dict(weights.origins), dict(weights.stored), 0
    for name, (shape, numbers) in constants.items():
        stop = at + 4 * len(numbers)
        stored[name] = TensorInfo(name, "F32", shape, path, at, stop)
        rows = max(math.prod(shape[:-1]), 1) if len(shape) > 1 else len(numbers)
        origins[name] = Origin(name, shape, (Run(name, rows, 0, rows),))
        at = stop
    return replace(weights, origins=origins, stored=stored)


def _tensors(weights: GgufWeights) -> dict[str, TensorInfo]:
    """The checkpoint's tensors, each lying where the first that it is made of lies."""
    found: dict[str, TensorInfo] = {}
    for name, origin in sorted(weights.origins.items()):
        first = weights.stored[origin.runs[0].tensor]
        found[name] = TensorInfo(name, first.dtype, origin.shape, first.path, first.start, first.stop)
    return found


def _dtype(weights: GgufWeights) -> str:
    """That of most numbers; scales of quantized weights are float16."""
    numbers: dict[str, int] = {}
    for tensor in weights.stored.values():
        if len(tensor.shape) > 1:
            name = _DTYPES.get(tensor.dtype, "float16")
            numbers[name] = numbers.get(name, 0) + math.prod(tensor.shape)
    return max(numbers, key=lambda name: numbers[name], default="float32")


def _histogram(weights: GgufWeights) -> str:
    counts = ", ".join(f"{count} {name.upper()}" for name, count in weights.types().items())
    return f"its tensors: {counts}"


def _files(
    gguf: "GgufFile", config: Mapping[str, Any], dense: Sequence[str], label: str
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Tokenizer, generation_config.json, chat template, and what the file says of itself; and notes. A draft
    that runs inside its target has no vocabulary."""
    facts = {
        key: list(value) if isinstance(value, tuple) else value
        for key in gguf.metadata
        if key.startswith(_KEPT_KEYS)
        for value in (gguf.metadata[key],)
    }
    made = {FACTS: json.dumps(facts, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"}
    made |= module_files(gguf, dense)
    if "tokenizer.ggml.model" not in gguf.metadata:
        return made, ()
    from modelkit.source.gguf.vocabulary.files import tokenizer_files

    found = tokenizer_files(gguf.metadata, rows=text_config(config)["vocab_size"], label=label)
    return {**made, **found.files}, found.notes


def _numbers(gguf: "GgufFile", name: str) -> Sequence[float]:
    """The numbers of a small float tensor."""
    tensor = gguf.tensors[name]
    count, kind = math.prod(tensor.shape), tensor.type.name
    if kind not in _FLOATS or count > _MOST_VALUES:
        raise MalformedFile(
            f"{gguf.label}: tensor `{shown(name)}` is {kind.upper()} {list(tensor.shape)}; it says something "
            "about the model, and a few floats were expected"
        )
    with open_regular(tensor.path, gguf.label) as file:
        file.seek(tensor.start)
        raw = file.read(tensor.nbytes)
    if len(raw) != tensor.nbytes:
        raise MalformedFile(f"{gguf.label} became shorter while it was read")
    if kind == "bf16":
        raw = b"".join(b"\0\0" + raw[at : at + 2] for at in range(0, len(raw), 2))
    numbers = struct.unpack(f"<{count}{'e' if kind == 'f16' else 'f'}", raw)
    if not all(map(math.isfinite, numbers)):
        raise MalformedFile(f"{gguf.label}: tensor `{shown(name)}` has numbers that are NaN or infinite")
    return numbers
