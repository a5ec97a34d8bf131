"""Compute the reference logits of tests/data/references with transformers (run by hand, where torch is
installed).

    python -m tests.support.make_references [ENTRY ...]

Each entry is a tiny config of one family. The weights come from `checkpoints.random_tensor`, so a reference
is a config, the names and
shapes of the tensors, and what the network answers: some columns of the logits of one prompt, and a greedy
continuation.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tests.support.checkpoints import random_state

FOLDER = Path(__file__).resolve().parents[1] / "data" / "references"
TOKENS, COLUMNS, GREEDY = 48, 48, 64

_SMALL: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

# entry -> (model_type, overrides)
ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"head_dim": 16}),
    "llama_biases_tied": ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "llama_llama3_rope": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        },
    ),
    "llama_linear_rope": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    ),
    "llama_yarn_rope": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    "mistral": ("mistral", {"sliding_window": None}),
    "mistral_window": ("mistral", {"sliding_window": 12, "head_dim": 32}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2_window": ("qwen2", {"use_sliding_window": True, "sliding_window": 12, "max_window_layers": 2}),
    "qwen3": ("qwen3", {"head_dim": 32}),
}


def main(names: list[str]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names or list(ENTRIES):
        model_type, overrides = ENTRIES[name]
        model = _reference_model(model_type, overrides)
        _write(name, model)
        print(f"{name}: {sum(p.numel() for p in model.parameters()):,} parameters")


def _reference_model(model_type: str, overrides: dict[str, Any]) -> Any:
    config = transformers.AutoConfig.for_model(model_type, **{**_SMALL, **overrides})
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    shapes = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    if config.get_text_config().tie_word_embeddings:
        shapes.pop("lm_head.weight", None)
    state = {key: torch.from_numpy(value) for key, value in random_state(shapes).items()}
    missing, surplus = model.load_state_dict(state, strict=False)
    assert not surplus, surplus
    assert all(key == "lm_head.weight" for key in missing), missing
    model.tie_weights()
    model.saved_shapes = shapes
    return model


def _write(name: str, model: Any) -> None:
    rng = np.random.default_rng(7)
    vocab = model.config.get_text_config().vocab_size
    ids = rng.integers(3, vocab, TOKENS)
    columns = np.sort(rng.choice(vocab, COLUMNS, replace=False))
    with torch.no_grad():
        logits = model(torch.from_numpy(ids)[None]).logits[0].numpy()
        greedy, margin = _greedy(model, ids[:16])
    config = {key: value for key, value in model.config.to_dict().items() if key != "transformers_version"}
    config["architectures"] = [type(model).__name__]
    record = {"config": config, "tensors": model.saved_shapes, "transformers": transformers.__version__}
    text = json.dumps(record, indent=1, default=str)
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    np.savez_compressed(
        FOLDER / f"{name}.npz",
        ids=ids.astype(np.int32),
        columns=columns.astype(np.int32),
        logits=logits[:, columns],
        std=np.float32(logits.std()),
        greedy=np.array(greedy, np.int32),
        margin=np.array(margin, np.float32),
    )


def _greedy(model: Any, prompt: np.ndarray) -> tuple[list[int], list[float]]:
    """GREEDY tokens without a cache: the plainest truth. margin: best minus second-best logit of each."""
    ids, margins = [int(i) for i in prompt], []
    for _ in range(GREEDY):
        best = torch.topk(model(torch.tensor([ids])).logits[0, -1], 2)
        margins.append(float(best.values[0] - best.values[1]))
        ids.append(int(best.indices[0]))
    return ids[len(prompt) :], margins


if __name__ == "__main__":
    main(sys.argv[1:])
