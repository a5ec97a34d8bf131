"""Folders of encoders with Dense modules behind them, as sentence-transformers writes them."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.checkpoints import random_state
from tests.support.embedding_folders import FLAGS, write_modules
from tests.support.encoder_folders import write_encoder

FOLDER = Path(__file__).resolve().parents[1] / "data" / "dense"
NAMES = ("embedding_gemma", "labse", "narrowed")


def dense_reference(name: str) -> dict[str, Any]:
    """What `make_dense_references` stored."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def dense_state(module: dict[str, Any], place: int) -> dict[str, np.ndarray]:
    """The weights of a module."""
    inputs, outputs = module["in_features"], module["out_features"]
    shapes = {"linear.weight": (outputs, inputs), **({"linear.bias": (outputs,)} if module["bias"] else {})}
    return random_state(shapes, seed=place + 1)


def write_dense(folder: Path, name: str, **changes: Any) -> Path:
    """The whole model of a reference. changes: to its network's config."""
    record = dense_reference(name)
    write_encoder(folder, record["network"], **changes)
    kinds = ("Transformer", "Pooling", *("Dense" for _ in record["modules"]), "Normalize")
    write_modules(folder, {FLAGS[record["pool"]]: True}, kinds)
    for place, module in enumerate(record["modules"]):
        write_module(folder / f"{place + 2}_Dense", module, dense_state(module, place))
    return folder


def write_module(folder: Path, config: dict[str, Any], state: dict[str, np.ndarray]) -> None:
    from safetensors.numpy import save_file

    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(state, folder / "model.safetensors", {"format": "pt"})
