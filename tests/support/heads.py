"""Reference answers of draft heads inside their target's file (see make_head_references)."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from runtime.loaded import LoadedModel
from runtime.loading.load import load_model
from tests.support.checkpoints import write_checkpoint

FOLDER = Path(__file__).resolve().parents[1] / "data" / "heads"


@dataclass(frozen=True)
class HeadReference:
    """A target with a draft head: config, tensors of both, and transformers' logits of the head."""

    name: str

    @cached_property
    def record(self) -> dict[str, Any]:
        return json.loads((FOLDER / f"{self.name}.json").read_text(encoding="utf-8"))

    @cached_property
    def answers(self) -> dict[str, np.ndarray]:
        with np.load(FOLDER / f"{self.name}.npz") as opened:
            return dict(opened)

    def load(self, folder: Path) -> LoadedModel:
        write_checkpoint(folder, self.record["config"], self.record["tensors"])
        return load_model(self.record["config"], [folder / "model.safetensors"], with_head=True)

    def error(self, logits: np.ndarray) -> float:
        """Largest difference from the reference's logits, in units of their standard deviation."""
        got = logits[:, self.answers["columns"]]
        return float(np.abs(got - self.answers["logits"]).max() / self.answers["std"])
