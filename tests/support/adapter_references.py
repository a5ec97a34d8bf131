"""Adapters whose answers PEFT gave: tests/data/adapters, written again from their seeds."""

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.support.checkpoints import random_state, random_tensor, write_checkpoint
from tests.support.encoder_folders import write_words
from tests.support.parity import Reference
from tests.support.tiny import write_tokenizer

FOLDER = Path(__file__).resolve().parents[1] / "data" / "adapters"


def adapter_tensor(key: str, shape: tuple[int, ...]) -> np.ndarray:
    """float32 values for one tensor of an adapter: the same in layers that share a block (Zamba 1 and 2)."""
    key = key.replace("layers.4.shared_transformer", "layers.1.shared_transformer")
    key = key.replace("layers.3.shared_transf.", "layers.1.shared_transf.")
    if key.endswith(".base_layer.weight"):  # the base's own
        return random_tensor(key.removeprefix("base_model.model.").replace(".base_layer", ""), shape)
    values = random_tensor(key, shape)
    if "magnitude" in key or key.endswith(".m"):
        return np.float32(1.0) + np.float32(0.3) * np.abs(values)
    if key.endswith((".lora_a", ".lora_b")):  # of mlx-lm, inputs first in two dimensions
        return values * np.float32(0.1)
    return values if ".lora_" not in key else values * np.float32(0.6)


class AdapterReference:
    """One case."""

    def __init__(self, name: str) -> None:
        self.name = name
        """Behind `mlx/` one of mlx-lm's, behind `encoders/` PEFT's for what makes embeddings."""

    @classmethod
    def names(cls, folder: str = "") -> list[str]:
        """folder: "mlx/" for those of mlx-lm, "encoders/"."""
        return sorted(f"{folder}{path.stem}" for path in (FOLDER / folder).glob("*.json"))

    @cached_property
    def record(self) -> dict[str, Any]:
        return json.loads((FOLDER / f"{self.name}.json").read_text(encoding="utf-8"))

    @cached_property
    def answers(self) -> dict[str, np.ndarray]:
        with np.load(FOLDER / f"{self.name}.npz") as opened:
            return dict(opened)

    @property
    def base(self) -> dict[str, Any]:
        """The record of the network below it."""
        return self._base.record

    @property
    def ids(self) -> np.ndarray:
        return self._base.answers["ids"]

    @property
    def _base(self) -> Reference:
        return Reference.called(self.record["base"])

    def write(self, folder: Path) -> Path:
        """The adapter as PEFT or mlx-lm wrote it. Returns the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "adapter_config.json").write_text(json.dumps(self.record["config"]), encoding="utf-8")
        tensors = {key: adapter_tensor(key, tuple(shape)) for key, shape in self.record["tensors"].items()}
        kind = "adapters" if self.name.startswith("mlx/") else "adapter_model"
        save_file(tensors, folder / f"{kind}.safetensors", metadata={"format": "pt"})
        return folder

    def write_base(self, folder: Path) -> Path:
        """The network below it, with a tokenizer. Returns the folder."""
        config = {key: value for key, value in self.base["config"].items() if key != "eos_token_id"}
        write_checkpoint(folder, config, self.base["tensors"])
        if self.name.startswith("encoders/"):
            write_words(folder)
        else:
            write_tokenizer(folder, tokens=128)
        return folder

    def base_state(self) -> dict[str, np.ndarray]:
        return random_state(self.base["tensors"])
