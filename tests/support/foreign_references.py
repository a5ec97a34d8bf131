"""Entries of tests/data/foreign: what transformers answers, and what moves its answer."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from runtime.device import device
from runtime.loaded import LoadedModel, load_model
from runtime.models.foreign import KINDS
from runtime.models.foreign.kinds import Kind
from tests.support.checkpoints import random_state

FOLDER = Path(__file__).resolve().parents[1] / "data" / "foreign"
SEEN = slice(5, None, 6)  # as make_foreign_references stores them
FEW = 12


@dataclass(frozen=True)
class ForeignReference:
    """One kind. Errors are largest differences, in units of the spread of the reference's logits."""

    name: str

    @classmethod
    def names(cls) -> list[str]:
        return sorted(path.stem for path in FOLDER.glob("*.json"))

    @cached_property
    def record(self) -> dict[str, Any]:
        return json.loads((FOLDER / f"{self.name}.json").read_text(encoding="utf-8"))

    @cached_property
    def answers(self) -> dict[str, np.ndarray]:
        with np.load(FOLDER / f"{self.name}.npz") as opened:
            return dict(opened)

    @property
    def kind(self) -> Kind:
        return KINDS[self.record["config"]["model_type"]]

    @property
    def changes(self) -> dict[str, dict[str, Any]]:
        return self.record["changes"]

    def load(self, config: Mapping[str, Any] | None = None, *, rounded: bool = False) -> LoadedModel:
        """From its seed; rounded: stored in bfloat16, computed as this device does it."""
        config = self.record["config"] if config is None else config
        return _load(config, random_state(self.record["tensors"]), rounded=rounded)

    def load_changed(self, change: str) -> LoadedModel:
        entry = self.changes[change]
        shapes = {**self.record["tensors"], **entry.get("tensors", {})}
        weights = random_state({name: shape for name, shape in shapes.items() if shape is not None})
        for end, constant in entry["change"].get("shift", {}).items():
            weights |= {name: x + np.float32(constant) for name, x in weights.items() if name.endswith(end)}
        return _load(self.changed(change), weights)

    def changed(self, change: str) -> dict[str, Any]:
        fields = {name: value for name, value in self.changes[change]["change"].items() if name != "shift"}
        return {**self.record["config"], **fields}

    def error(self, logits: np.ndarray, of: str = "logits") -> float:
        wanted = self.answers[of][: len(logits)]
        return float(np.abs(logits[:, self.answers["columns"]] - wanted).max() / self.answers["std"])

    def changed_error(self, change: str, logits: np.ndarray) -> float:
        if self.changes[change]["outcome"] == "same":
            return self.error(logits)
        got = logits[SEEN, self.answers["columns"][:FEW]]
        return float(
            np.abs(got - self.answers[f"logits of {change}"]).max() / self.answers[f"std of {change}"]
        )


def _load(
    config: Mapping[str, Any], weights: Mapping[str, np.ndarray], *, rounded: bool = False
) -> LoadedModel:
    arrays = {name: mx.array(x) for name, x in weights.items()}
    if rounded:
        arrays = {name: x.astype(mx.bfloat16) for name, x in arrays.items()}
    return load_model(config, arrays, on=device() if rounded else None)
