"""The Gemma 4 target and assistants of tests/data/special (see make_special_references)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from runtime.loaded import LoadedModel
from runtime.loading.load import load_model
from tests.support.checkpoints import random_state

DATA = Path(__file__).resolve().parents[1] / "data" / "special"


def load_assistant(name: str, folder: Path) -> LoadedModel:
    """`target`, or its assistant `plain` or `clustered`, with weights from their names."""
    config, tensors = record_of(name)
    state = random_state({key: shape for key, (_, shape) in tensors.items()})
    if "masked_embedding.token_ordering" in state:
        state["masked_embedding.token_ordering"] = np.random.default_rng(3).permutation(160).astype(np.int64)
    save_file(state, folder / f"{name}.safetensors")
    return load_model(config, [folder / f"{name}.safetensors"])


def record_of(name: str) -> tuple[dict[str, Any], dict[str, tuple[str, tuple[int, ...]]]]:
    """Its config, and its tensors as `parts_of` takes them."""
    record: dict[str, Any] = json.loads((DATA / "gemma4_assistant.json").read_text(encoding="utf-8"))[name]
    kind = "Gemma4ForCausalLM" if name == "target" else "Gemma4AssistantForCausalLM"
    tensors = {key: ("F32", tuple(shape)) for key, shape in record["tensors"].items()}
    return {**record["config"], "architectures": [kind]}, tensors
