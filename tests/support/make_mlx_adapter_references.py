"""Compute the answers of tests/data/adapters/mlx with mlx-lm.

    python -m tests.support.make_mlx_adapter_references [CASE ...]

Run by hand, where mlx-lm is installed. Each case is an adapter of mlx-lm's on a tiny network of
tests/data/references, its numbers from a seed; stored are its config, names and shapes, and some columns of
the logits.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.tuner.utils import linear_to_lora_layers
from mlx_lm.utils import load_model
from safetensors.numpy import save_file

from modelkit.pack.planning.spelling import both_spellings
from tests.support.adapter_references import FOLDER, adapter_tensor
from tests.support.checkpoints import random_state, write_checkpoint
from tests.support.parity import Reference

LORA = {"rank": 3, "scale": 2.5, "dropout": 0.0}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama_lora": ("llama", {"fine_tune_type": "lora", "num_layers": 2, "lora_parameters": LORA}),
    "llama_dora": ("llama", {"fine_tune_type": "dora", "num_layers": -1, "lora_parameters": LORA}),
    "llama_table": (
        "llama_biases_tied",
        {
            "fine_tune_type": "lora",
            "num_layers": 1,
            "lora_parameters": {**LORA, "keys": ["model.embed_tokens", "self_attn.v_proj"]},
        },
    ),
    "qwen3_moe_experts": ("qwen3_moe", {"fine_tune_type": "lora", "num_layers": 2, "lora_parameters": LORA}),
    "llama_full": ("llama", {"fine_tune_type": "full", "num_layers": 1}),
}


def main(names: list[str]) -> None:
    (FOLDER / "mlx").mkdir(parents=True, exist_ok=True)
    for name in names or list(CASES):
        base, config = CASES[name]
        reference = Reference(base)
        with tempfile.TemporaryDirectory() as folder:
            record = reference.record
            made = write_checkpoint(Path(folder), both_spellings(record["config"]), {})
            save_file(_one_by_one(random_state(record["tensors"])), made / "model.safetensors")
            model, _ = load_model(made)
            shapes = _adapted(model, config)
            ids, columns = reference.answers["ids"], reference.answers["columns"][::3]
            logits = np.array(model(mx.array(ids[None]))[0].astype(mx.float32))
        stored = {"base": base, "config": config, "tensors": shapes}
        (FOLDER / "mlx" / f"{name}.json").write_text(json.dumps(stored) + "\n", encoding="utf-8")
        answers = {"columns": columns, "logits": logits[:, columns], "std": np.float32(logits.std())}
        np.savez_compressed(FOLDER / "mlx" / f"{name}.npz", **answers)
        print(name, len(shapes), float(logits.std()), flush=True)


def _one_by_one(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Experts as mlx-lm reads them: each by itself, gate and up apart."""
    found: dict[str, np.ndarray] = {}
    for name, array in state.items():
        stem, is_stack, leaf = name.partition(".experts.")
        if not is_stack or array.ndim != 3:
            found[name] = array
            continue
        parts = (
            {"down_proj": array}
            if leaf == "down_proj"
            else dict(zip(("gate_proj", "up_proj"), np.split(array, 2, axis=1), strict=True))
        )
        for part, stack in parts.items():
            for i, matrix in enumerate(stack):
                found[f"{stem}.experts.{i}.{part}.weight"] = np.ascontiguousarray(matrix)
    return found


def _adapted(model: Any, config: dict[str, Any]) -> dict[str, list[int]]:
    """Change the model as the adapter does; the names and shapes of what it has."""
    if config["fine_tune_type"] == "full":
        last = f"model.layers.{len(model.layers) - 1}."
        shapes = {key: list(x.shape) for key, x in tree_flatten(model.parameters()) if key.startswith(last)}
    else:
        dora = config["fine_tune_type"] == "dora"
        linear_to_lora_layers(model, config["num_layers"], dict(config["lora_parameters"]), use_dora=dora)
        leaves = ("lora_a", "lora_b", "m")
        flat = tree_flatten(model.parameters())
        shapes = {key: list(x.shape) for key, x in flat if key.rpartition(".")[2] in leaves}
    model.load_weights([(k, mx.array(adapter_tensor(k, tuple(s)))) for k, s in shapes.items()], strict=False)
    return shapes


if __name__ == "__main__":
    main(sys.argv[1:])
