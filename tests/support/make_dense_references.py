"""Reference vectors behind Dense modules (run by hand, where torch is installed).

    python -m tests.support.make_dense_references

The hidden states of transformers in float32, pooled, then torch's Linear and activations; each text alone.
Weights come from a seed (`checkpoints`), so none are stored; networks are those of tests/data/encoders.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tests.support.checkpoints import write_checkpoint
from tests.support.dense_folders import FOLDER, dense_state
from tests.support.parity import Reference

LENGTHS = (1, 40, 13)
_ACTIVATIONS = "torch.nn.modules.activation."
_IDENTITY = "torch.nn.modules.linear.Identity"


def _dense(inputs: int, outputs: int, activation: str, *, bias: bool = True) -> dict[str, Any]:
    return {
        "in_features": inputs,
        "out_features": outputs,
        "bias": bias,
        "activation_function": activation,
    }


ENTRIES: dict[str, tuple[str, str, list[dict[str, Any]]]] = {
    "labse": ("bert", "first", [_dense(64, 64, f"{_ACTIVATIONS}Tanh")]),
    "embedding_gemma": (
        "embedding_gemma",
        "mean",
        [_dense(64, 96, _IDENTITY, bias=False), _dense(96, 64, _IDENTITY, bias=False)],
    ),
    "narrowed": (
        "roberta",
        "mean",
        [_dense(64, 40, f"{_ACTIVATIONS}GELU"), _dense(40, 24, f"{_ACTIVATIONS}ReLU", bias=False)],
    ),
}


@torch.no_grad()
def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, (network, pool, modules) in ENTRIES.items():
        record = Reference.called(network).record
        with tempfile.TemporaryDirectory() as folder:
            write_checkpoint(Path(folder), record["config"], record["tensors"])
            model = transformers.AutoModel.from_pretrained(
                folder, dtype=torch.float32, attn_implementation="eager"
            ).eval()
        random = np.random.default_rng(6)
        texts = [random.integers(3, record["config"]["vocab_size"], length).tolist() for length in LENGTHS]
        vectors: list[list[float]] = []
        for ids in texts:
            hidden = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
            vector = hidden.mean(0) if pool == "mean" else hidden[0]
            for place, module in enumerate(modules):
                vector = _passed(vector, module, place)
            vectors.append([float(f"{x:.8g}") for x in vector])
        stored = {"network": network, "pool": pool, "modules": modules, "texts": texts, "vectors": vectors}
        (FOLDER / f"{name}.json").write_text(json.dumps(stored) + "\n", encoding="utf-8")


def _passed(vector: torch.Tensor, module: dict[str, Any], place: int) -> torch.Tensor:
    layer = torch.nn.Linear(module["in_features"], module["out_features"], bias=module["bias"])
    state = dense_state(module, place)
    layer.load_state_dict({name.removeprefix("linear."): torch.from_numpy(x) for name, x in state.items()})
    kind = module["activation_function"].rpartition(".")[2]
    return getattr(torch.nn, kind)()(layer(vector))


if __name__ == "__main__":
    main()
