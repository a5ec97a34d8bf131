"""What llama.cpp's converter made of a tiny checkpoint, and the checkpoint, as numbers from a seed."""

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from modelkit.pack.gguf.tensors import norm_of_head
from modelkit.pack.planning.experts import gather
from modelkit.pack.planning.families import checkpoint_of
from modelkit.pack.planning.matrix import Matrix
from modelkit.pack.planning.slabs import Slab
from modelkit.source.gguf.architectures import (
    Described,
    Imported,
    describe_for_gguf,
    read_architecture,
)
from modelkit.source.gguf.architectures.apply import apply
from modelkit.source.tensor import TensorInfo
from runtime.models import find_family
from runtime.models.registry.described import whole_config
from tests.support.checkpoints import random_state

DATA = Path(__file__).resolve().parents[1] / "data" / "gguf"
_TOWERS = ("vision", "visual", "projector", "patch_merge")
_WRAPPERS = ("model.language_model.", "language_model.model.")

Tensors = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class GgufReference:
    """One entry of tests/data/gguf."""

    name: str

    @classmethod
    def names(cls) -> list[str]:
        return sorted(path.name.removesuffix(".json.gz") for path in DATA.glob("*.json.gz"))

    @cached_property
    def record(self) -> dict[str, Any]:
        return json.loads(gzip.decompress((DATA / f"{self.name}.json.gz").read_bytes()))

    @property
    def config(self) -> dict[str, Any]:
        return self.record["config"]

    @property
    def metadata(self) -> dict[str, Any]:
        return {"general.architecture": self.record["architecture"], **self.record["metadata"]}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the file's tensors."""
        return {name: tuple(shape) for name, (shape, _) in self.record["tensors"].items()}

    @cached_property
    def checkpoint(self) -> dict[str, np.ndarray]:
        return random_state({name: tuple(shape) for name, shape in self.record["shapes"].items()})

    @cached_property
    def package(self) -> dict[str, np.ndarray]:
        """The checkpoint's tensors under the names that packages have, those for images left out."""
        found = canonical(self.config, self.checkpoint)
        return {_plain(name): array for name, array in found.items() if not _of_tower(name)}

    @cached_property
    def described(self) -> Described:
        return describe(self.config, self.package, self.name)

    @cached_property
    def exported(self) -> dict[str, np.ndarray]:
        return self.fused(export(self.described, self.package))

    def fused(self, exported: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """With the experts' gates and ups in one tensor, where the converter writes them so and we do not."""
        found = dict(exported)
        for whole in self.shapes.keys() - found.keys():
            if "gate_up_exps" in whole:
                parts = [found.pop(whole.replace("gate_up", part)) for part in ("gate", "up")]
                found[whole] = np.concatenate(parts, axis=1)
        return found

    @cached_property
    def imported(self) -> Imported:
        return read(self.metadata, self.shapes, self.exported, self.name)


def read(metadata: Mapping[str, Any], shapes: Mapping[str, Any], theirs: Tensors, label: str) -> Imported:
    return read_architecture(metadata, shapes, lambda name: theirs[name].reshape(-1).tolist(), label)


def describe(config: Mapping[str, Any], ours: Tensors, label: str) -> Described:
    shapes = {name: array.shape for name, array in ours.items()}
    return describe_for_gguf(
        whole_config(config), shapes, lambda name: ours[name].reshape(-1).tolist(), label
    )


def undone(imported: Imported, theirs: Tensors) -> dict[str, np.ndarray]:
    """The checkpoint's tensors, of the file's."""
    found = {name: apply(origin, theirs.__getitem__, np) for name, origin in imported.tensors.items()}
    for name, (shape, numbers) in imported.constants.items():
        found[name] = np.array(numbers, np.float32).reshape(shape)
    return found


def export(described: Described, ours: Tensors) -> dict[str, np.ndarray]:
    """The file's tensors, of the checkpoint's."""
    found = {name: apply(origin, ours.__getitem__, np) for name, origin in described.tensors.items()}
    return found | {name: np.array(numbers, np.float32) for name, numbers in described.extra.items()}


def canonical(config: Mapping[str, Any], tensors: Tensors) -> dict[str, np.ndarray]:
    """Tensors as the plan of a package has them: experts in stacks, projections apart."""
    here = Path()
    infos = [TensorInfo(name, "F32", array.shape, here, 0, array.nbytes) for name, array in tensors.items()]
    matrices = gather(infos, checkpoint_of(config), {})
    return _with_stacks({matrix.name: _filled(matrix, tensors) for matrix in matrices})


def _with_stacks(tensors: Tensors) -> dict[str, np.ndarray]:
    """Norms of heads in one."""
    found: dict[str, np.ndarray] = {}
    stacks: dict[str, dict[int, np.ndarray]] = {}
    for name, array in tensors.items():
        stack, place = norm_of_head(name) or (name, -1)
        found.update({name: array} if place < 0 else {})
        stacks.setdefault(stack, {})[place] = array
    return found | {
        name: np.stack([rows[i] for i in range(len(rows))]) for name, rows in stacks.items() if -1 not in rows
    }


def _filled(matrix: Matrix, tensors: Tensors) -> np.ndarray:
    parts: list[np.ndarray] = []
    for slab in matrix.slabs:
        array = tensors[slab.tensor.name]
        if isinstance(slab, Slab):
            rows = array.reshape(-1, max(slab.row_bytes // 4, 1))
            parts.append(rows[slab.start : slab.stop : slab.step].reshape(-1))
        else:
            columns = array.reshape(-1, slab.height, slab.width)[slab.matrix]
            parts.append(columns[:, slab.start : slab.stop : slab.step].T.reshape(-1))
    whole = np.concatenate(parts).reshape(matrix.shape)
    return whole + np.float32(1) if matrix.plus_one else whole


def _of_tower(name: str) -> bool:
    return any(word in name for word in _TOWERS)


def _plain(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "model.")
    return name.removeprefix("language_model.")


def loaded(config: Mapping[str, Any], tensors: Tensors) -> tuple[Any, dict[str, np.ndarray]]:
    """What the runtime makes of a config and of tensors: the family's Config, and the modules' arrays."""
    family = find_family(config)
    parsed = family.parse(config)
    arrays = {name: mx.array(array) for name, array in tensors.items()}
    adapters: list[Callable[..., Any]] = [family.adapt, *([family.head.adapt] if family.head else [])]
    found: dict[str, np.ndarray] = {}
    for adapt in adapters:
        for name, array in adapt(parsed, arrays).items():
            if not _of_tower(name):
                found[name] = np.array(array)
    return parsed, found


def differences(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> list[str]:
    """Names of tensors that are not the same; A_log and norms up to the last bits."""
    names = sorted(found.keys() ^ wanted.keys())
    for name in found.keys() & wanted.keys():
        a, b = found[name], wanted[name]
        close = name.endswith((".A_log", "norm.weight"))
        same = a.shape == b.shape and (
            np.allclose(a, b, rtol=1e-6, atol=1e-6) if close else np.array_equal(a, b)
        )
        names += [] if same else [name]
    return names
