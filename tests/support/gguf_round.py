"""A package, and the GGUF file made of it read back: both as numbers under the checkpoint's names."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from modelkit.pack.gguf.export import Planned, plan_gguf
from modelkit.pack.gguf.rows import numbers, pieces
from modelkit.pack.gguf.tensors import stored_tensors
from modelkit.pack.gguf.writing import write_gguf
from modelkit.pack.sources import open_package
from modelkit.pack.writing.reader import Reader
from modelkit.source.gguf.architectures import Imported, Origin, Run, read_architecture
from modelkit.source.gguf.architectures.apply import apply
from modelkit.source.gguf.file import GgufFile, read_gguf
from modelkit.source.gguf.header import GgufTensor
from modelkit.store.package import Package
from runtime.blocks.decode import decoded
from runtime.blocks.types import BLOCK_TYPES

Numbers = Mapping[str, np.ndarray]


def package_numbers(package: Package, *, draft: bool = False) -> dict[str, np.ndarray]:
    """Every tensor as float32, packed ones as MLX computes them in float32."""
    opened = open_package(package)
    source = opened.draft if draft else opened.source
    assert source is not None
    both = stored_tensors(source)
    tensors = {**both.model, **both.heads}
    found: dict[str, np.ndarray] = {}
    with Reader(source.inventory.weights) as reader:
        for name, stored in tensors.items():
            of = max(int(np.prod(stored.shape[:-1])), 1) if len(stored.shape) > 1 else 1
            whole = Origin(name, stored.shape, (Run(name, of, 0, of),))
            parts = [numbers(piece, stored) for piece in pieces(whole, tensors, reader)]
            found[name] = np.concatenate(parts).reshape(stored.shape)
    return found


def file_numbers(path: Path) -> tuple[dict[str, np.ndarray], Imported]:
    """What an import of the file would compute, by our own reader and table."""
    file = read_gguf(path)
    shapes = {name: tensor.shape for name, tensor in file.tensors.items()}
    imported = read_architecture(
        file.metadata, shapes, lambda name: values(file, name).ravel().tolist(), "it"
    )
    found = {
        name: np.asarray(apply(origin, lambda one: values(file, one), np)).reshape(origin.shape)
        for name, origin in imported.tensors.items()
    }
    return found, imported


def values(file: GgufFile, name: str) -> np.ndarray:
    """A tensor of a file as float32."""
    tensor = file.tensors[name]
    return _decoded(tensor).reshape(tensor.shape)


def _decoded(tensor: GgufTensor) -> np.ndarray:
    raw = np.fromfile(tensor.path, dtype=np.uint8, count=tensor.nbytes, offset=tensor.start)
    plain: dict[str, Any] = {"f32": "<f4", "f16": "<f2", "i32": "<i4"}
    if tensor.type.name in plain:
        return raw.view(plain[tensor.type.name]).astype(np.float32)
    if tensor.type.name == "bf16":
        return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    rows = mx.array(raw.reshape(-1, tensor.row_bytes))
    return np.array(decoded(rows, BLOCK_TYPES[tensor.type.name]))


def exported(package: Package, path: Path, *, draft: bool = False) -> Planned:
    planned = plan_gguf(package, draft=draft)
    write_gguf(planned, path)
    return planned
