"""Which files of a package are written anew for MLX tools: shards with GGUF blocks, config.json, the index;
and, in mlx-lm's form, what its classes want otherwise (`modelkit.pack.mlx_lm`).

Types that MLX's affine form holds exactly become that, with float32 scales. The others, whose scales are for
16 numbers each, become the nearest 8-bit codes, the very ones that modelkit itself computes with where
products of packed weights are fast: 10 bits per weight where 16-bit floats would take 16, and the same
numbers in both programs.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from modelkit.errors import SourceError, UnsupportedSource
from modelkit.pack.build import readable
from modelkit.pack.metadata import DRAFT_FOLDER
from modelkit.pack.mlx_folder.shard import Matrix, Piece, Plain, Shard
from modelkit.pack.mlx_lm.limits import Limit
from modelkit.pack.mlx_lm.mutable_folder import MutableFolder
from modelkit.pack.mlx_lm.rewriting import rewritten
from modelkit.pack.part import CONFIG
from modelkit.pack.planning.config import spellings
from modelkit.pack.sources import Source, open_package
from modelkit.source.claims import quantization_blocks
from modelkit.source.inventory import WeightFile
from modelkit.source.mlx_block import GGUF_MODE
from modelkit.source.mlx_layout import MlxWeights
from modelkit.source.shards import INDEX
from modelkit.source.strict_json import read_json
from modelkit.store.export import GeneratedFile
from modelkit.store.package import Package
from runtime.records import dataclass

FolderForm = Literal["mlx-lm"]
"""Whose names, shapes and fields a folder may be asked to have; else it has the package's own."""


@dataclass(frozen=True, slots=True)
class Text:
    """A small file that is written anew."""

    content: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.content)

    def pieces(self) -> Iterator[tuple[int, bytes]]:
        yield 0, self.content


@dataclass(frozen=True, slots=True)
class Kind:
    """All matrices of a type that are turned in the same way."""

    type: str
    becomes: str
    """As formats are named: `q8g32`; scales are float32."""
    exact: bool
    tensors: int
    source_bytes: int
    nbytes: int

    def to_json(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "becomes": self.becomes,
            "exact": self.exact,
            "tensors": self.tensors,
            "source_bytes": self.source_bytes,
            "size_bytes": self.nbytes,
        }


@dataclass(frozen=True, slots=True)
class FolderPlan:
    """What of a package is not laid out as it is."""

    made: Mapping[str, GeneratedFile] = field(default_factory=dict[str, GeneratedFile])
    """By path in the package."""
    kinds: tuple[Kind, ...] = ()
    """The largest first."""
    rewritten: tuple[str, ...] = ()
    """What mlx-lm's form changed, a few words each."""
    limits: tuple[Limit, ...] | None = None
    """What mlx-lm computes otherwise still; None where its form was not asked for."""

    def size_of(self, package: Package) -> int:
        """Bytes of the folder."""
        return sum(
            self.made[layer.path].size_bytes if layer.path in self.made else layer.blob.size_bytes
            for layer in package.manifest.layers
        )


def plan_folder(package: Package, form: FolderForm | None = None) -> FolderPlan:
    """Decided from headers. The caller holds the package's blobs.

    form: mlx-lm's, or the package's own. Raises SourceError for weights that are not as config.json says.
    """
    whole = ("", f"{DRAFT_FOLDER}/")
    prefixes = [one for one in whole if _keeps_blocks(package.files, one) or _asked(package.files, one, form)]
    if not prefixes:
        return FolderPlan()
    opened = open_package(package)
    made: dict[str, GeneratedFile] = {}
    matrices: list[Matrix] = []
    done: list[str] = []
    left: list[Limit] = []
    for prefix in prefixes:
        source = opened.draft if prefix else opened.source
        assert source is not None, prefix  # its config.json was read
        part = _part(source, package.files, prefix, form)
        made.update({prefix + path: one for path, one in part.made.items()})
        matrices += part.matrices
        done += [f"{text} (draft)" if prefix else text for text in part.rewritten]
        left += () if prefix else part.limits
    return FolderPlan(made, _kinds(matrices), tuple(done), tuple(left) if form else None)


def _asked(files: Mapping[str, Path], prefix: str, form: FolderForm | None) -> bool:
    return form is not None and prefix + CONFIG in files


def _keeps_blocks(files: Mapping[str, Path], prefix: str) -> bool:
    try:
        config = read_json(files[prefix + CONFIG], nonfinite=True)
    except (KeyError, SourceError):  # no model as modelkit packs them; it is laid out as it is
        return False
    return any(_is_kept(entry) for _, block in quantization_blocks(config) for entry in block.values())


def _is_kept(entry: object) -> bool:
    return isinstance(entry, Mapping) and entry.get("mode") == GGUF_MODE


@dataclass(frozen=True, slots=True)
class _Part:
    """The model, or its draft."""

    made: Mapping[str, GeneratedFile]
    matrices: Sequence[Matrix]
    rewritten: tuple[str, ...] = ()
    limits: tuple[Limit, ...] = ()


def _part(source: Source, files: Mapping[str, Path], prefix: str, form: FolderForm | None) -> _Part:
    inventory, kind = source.inventory, source.kind
    blocks = kind.blocks if isinstance(kind, MlxWeights) else {}
    tensors = inventory.tensors
    matrices = {
        f"{module}.weight": Matrix(tensors[f"{module}.weight"], kept, tensors.get(f"{module}.factor"))
        for module, kept in blocks.items()
    }
    _check(matrices.values(), tensors, inventory.origin)
    gone = {one.factor.name for one in matrices.values() if one.factor is not None}
    before = {file.name: _pieces(file, matrices, gone) for file in inventory.weights}
    config = {**inventory.config, **_config(inventory.config, matrices.values())}
    written, done, left = MutableFolder(config, before), (), ()
    if form is not None:
        found = rewritten(written)
        written, done, left = found.folder, found.done, found.left
    shards = {name: Shard(tuple(held.values()), inventory.weights) for name, held in written.files.items()}
    fresh = {
        file.name: shards[file.name]
        for file in inventory.weights
        if any(one.name in matrices or one.name in gone for one in file.header.tensors)
        or written.files[file.name] != before[file.name]
    }
    if not fresh and written.config == inventory.config:
        return _Part({}, [], done, left)
    made: dict[str, GeneratedFile] = {**fresh, CONFIG: _text(written.config)}
    if prefix + INDEX in files:
        made[INDEX] = _text(_index(shards))
    return _Part(made, list(matrices.values()), done, left)


def _pieces(file: WeightFile, matrices: Mapping[str, Matrix], gone: set[str]) -> dict[str, Piece]:
    kept = [tensor for tensor in file.header.tensors if tensor.name not in gone]
    return {tensor.name: matrices.get(tensor.name) or Plain(tensor) for tensor in kept}


def _index(shards: Mapping[str, Shard]) -> dict[str, Any]:
    outputs = {output.name: (name, output) for name, shard in shards.items() for output in shard.outputs}
    total = sum(output.nbytes for _, output in outputs.values())
    weight_map = {name: file for name, (file, _) in sorted(outputs.items())}
    return {"metadata": {"total_size": total}, "weight_map": weight_map}


def _check(matrices: Iterable[Matrix], tensors: Mapping[str, Any], origin: str) -> None:
    for one in matrices:
        for output in one.outputs[1:]:
            if output.name in tensors:
                raise UnsupportedSource(f"{origin}: `{one.module}` is in GGUF's blocks and has {output.name}")


def _config(config: Mapping[str, Any], matrices: Iterable[Matrix]) -> dict[str, Any]:
    """The top level's blocks, with MLX's words for every module that was kept in GGUF's."""
    forms = {one.module: one.form for one in matrices}
    entries = {
        name: {"group_size": form.group_size, "bits": form.bits, "mode": form.mode}
        for module, form in forms.items()
        for name in spellings(module, forms)
    }
    fresh: dict[str, Any] = {}
    for key in ("quantization", "quantization_config"):
        block = config.get(key)
        if isinstance(block, Mapping) and any(_is_kept(entry) for entry in block.values()):
            others = {name: deepcopy(entry) for name, entry in block.items() if not _is_kept(entry)}
            fresh[key] = {**others, **entries}
    return fresh


def _text(value: Mapping[str, Any]) -> Text:
    return Text(readable(value))


def _kinds(matrices: Iterable[Matrix]) -> tuple[Kind, ...]:
    found: dict[tuple[str, str, bool], list[Matrix]] = defaultdict(list)
    for one in matrices:
        found[one.kind.name, f"q{one.form.bits}g{one.form.group_size}", one.exact].append(one)
    rows = [
        Kind(*key, len(of), sum(one.tensor.nbytes for one in of), sum(one.nbytes for one in of))
        for key, of in found.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.nbytes, row.type)))
