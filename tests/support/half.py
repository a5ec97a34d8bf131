"""Checkpoints as they are published: every float in a 16-bit type, with transformers' float32 answers for
just those numbers (tests/data/half, made by `make_references --half`).

A processor computes such a file in float32, where nothing but the file's own rounding may be lost. A GPU
computes it in the file's type, in which an exact program is as far off as that type is coarse.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import mlx.core as mx
import numpy as np

from runtime.cpu import native
from runtime.cpu.native import on_processor
from runtime.device import Device
from runtime.loaded import LoadedModel
from runtime.loading.load import load_model
from runtime.nn.feed_forward.experts import SwitchLinear
from tests.support.checkpoints import random_state
from tests.support.parity import LEAST_BAR, Reference

FOLDER = Path(__file__).resolve().parents[1] / "data" / "half"
TYPES = {"bf16": mx.bfloat16, "f16": mx.float16}
WIDE = Device(
    kind="cpu",
    name="a processor",
    total_bytes=1 << 34,
    available_bytes=1 << 33,
    fast_dtype="float32",
    fast_quantized=False,
    cores=1,
)
"""What computes in float32, whatever it is given."""


class RoundedSwitch(SwitchLinear):
    """Experts in a 16-bit type on a processor, for which MLX has none: summed in float32, as on a GPU."""

    def __call__(self, x: mx.array, chosen: mx.array, *, ordered: bool = False) -> mx.array:
        weight = self.weight.astype(mx.float32).swapaxes(-1, -2)
        y = mx.gather_mm(x.astype(mx.float32), weight, rhs_indices=chosen, sorted_indices=ordered)
        y = y.astype(x.dtype)
        return y + self.bias[chosen][..., None, :] if "bias" in self else y


@dataclass(frozen=True)
class Half:
    """One entry of tests/data/half in one 16-bit type, "bf16" or "f16"."""

    name: str
    stored: str

    @cached_property
    def reference(self) -> Reference:
        return Reference.called(self.name)

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        with np.load(FOLDER / f"{self.name}.npz") as opened:
            return dict(opened)

    @property
    def ids(self) -> np.ndarray:
        return self.reference.answers["ids"]

    def tensors(self) -> dict[str, mx.array]:
        """The checkpoint from its seed, rounded."""
        shapes = {name: tuple(shape) for name, shape in self.reference.record["tensors"].items()}
        state = random_state(shapes, int(self._arrays[f"{self.stored}_seed"]))
        return {name: mx.array(array).astype(TYPES[self.stored]) for name, array in state.items()}

    def write(self, folder: Path) -> Path:
        """A model directory. Returns the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        config = json.dumps(self.reference.record["config"])
        (folder / "config.json").write_text(config, encoding="utf-8")
        mx.save_safetensors(str(folder / "model.safetensors"), self.tensors(), {"format": "pt"})
        return folder

    def load(self, folder: Path, on: Device | None = WIDE) -> LoadedModel:
        """Written and read; on: as in `load_model`; None: computed in the type it is in."""
        return self.read(self.write(folder), on)

    def read(self, folder: Path, on: Device | None = WIDE) -> LoadedModel:
        """As `load`, of a folder that it was written into before."""
        model = load_model(self.reference.record["config"], [folder / "model.safetensors"], on=on)
        if on is None and on_processor():
            for module in model.network.modules():
                module.__class__ = RoundedSwitch if type(module) is SwitchLinear else type(module)
        return self.reference.reading(model)

    def distances(self, logits: np.ndarray) -> np.ndarray:
        """Distances from the reference in its standard deviations, [T, columns]; logits [T, V]."""
        wanted = self._arrays[f"{self.stored}_logits"]
        return np.abs(logits[:, self._arrays["columns"]] - wanted) / self._arrays[f"{self.stored}_std"]

    @property
    def bar(self) -> float:
        """How far right answers may lie from the reference's: as `parity.bar`, but that twice two draws of
        three times as much noise stand for five times sixteen draws of the last bit. Without kernels half as
        much again: each BLAS rounds in its own way.
        """
        share = 2.0 if native.kernels else 3.0
        return max(LEAST_BAR, share * float(self._arrays[f"{self.stored}_moved"]))

    def error(self, logits: np.ndarray) -> float:
        """The largest of them."""
        return float(self.distances(logits).max())

    def agreement(self, logits: np.ndarray, clear: float) -> float:
        """Of the positions whose likeliest id leads by `clear` deviations, the share that agree about it."""
        margin = self._arrays[f"{self.stored}_margin"].astype(np.float32)
        sure = margin > clear * self._arrays[f"{self.stored}_std"]
        same = logits.argmax(-1) == self._arrays[f"{self.stored}_best"]
        return float(same[sure].mean()) if sure.any() else 1.0
