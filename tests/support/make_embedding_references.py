"""Reference vectors of transformers for texts in ids (run by hand, where torch is installed).

    python -m tests.support.make_embedding_references

For each entry: its config, the shapes of its tensors, several texts of unlike lengths, and the hidden states
that AutoModel gives for each of them alone in float32, pooled in every way as sentence-transformers does.
Weights come from a seed (`checkpoints`), so none are stored.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tests.support.checkpoints import write_checkpoint

FOLDER = Path(__file__).resolve().parents[1] / "data" / "embeddings"
LENGTHS = (1, 5, 23, 40, 12)
_SIZES: dict[str, Any] = {"vocab_size": 160, "hidden_size": 32, "num_hidden_layers": 3}

ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3": (
        "Qwen3Model",
        {
            **_SIZES,
            "intermediate_size": 64,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "max_position_embeddings": 64,
        },
    ),
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, (kind, fields) in ENTRIES.items():
        record = _record(kind, fields)
        text = json.dumps(record, indent=None, default=str)
        (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


@torch.no_grad()
def _record(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    made = getattr(transformers, kind)
    config = made.config_class(**fields)
    empty = made(config)
    shapes = {name: list(tensor.shape) for name, tensor in empty.state_dict().items() if tensor.ndim}
    shapes = {name: shape for name, shape in shapes.items() if not name.startswith("pooler.")}
    shapes = {name: shape for name, shape in shapes.items() if not name.endswith("_ids")}
    raw = {key: one for key, one in config.to_dict().items() if key != "transformers_version"}
    raw |= {"architectures": [kind], "dtype": "float32"}
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder), raw, {name: tuple(shape) for name, shape in shapes.items()})
        model = made.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    random = np.random.default_rng(5)
    texts = [random.integers(3, fields["vocab_size"], length).tolist() for length in LENGTHS]
    states = [model(input_ids=torch.tensor([ids])).last_hidden_state[0] for ids in texts]
    pooled = {
        "mean": [state.mean(0) for state in states],
        "last": [state[-1] for state in states],
        "first": [state[0] for state in states],
        "max": [state.max(0).values for state in states],
        "weighted": [_by_place(state) for state in states],
        "root": [state.sum(0) / len(state) ** 0.5 for state in states],
    }
    vectors = {pool: [[float(f"{x:.8g}") for x in one] for one in many] for pool, many in pooled.items()}
    return {
        "config": raw,
        "tensors": shapes,
        "transformers": transformers.__version__,
        "texts": texts,
        "vectors": vectors,
    }


def _by_place(state: torch.Tensor) -> torch.Tensor:
    """What sentence-transformers calls weightedmean."""
    weights = torch.arange(1, len(state) + 1)[:, None]
    return (state * weights).sum(0) / weights.sum()


if __name__ == "__main__":
    main()
