"""Reference answers of LongRoPE models on both sides of their original length (run by hand, where torch is
installed).

    python -m tests.support.make_longrope_references

Two families, BORDER tokens of original length. `logits_N` [N, 8]: one pass over the first N of `ids`.
`greedy_N`: what follows the first N, each token from one pass over all before it; so does transformers' own
Phi-3 `generate`, which reads again at the border. The ids are such that no second-best token was close.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tests.support.make_references import _reference_model

FOLDER = Path(__file__).resolve().parents[1] / "data" / "special"
BORDER = 24
ROPE: dict[str, Any] = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.1, 1.3, 1.2, 1.4, 1.5, 1.1, 1.0],
    "long_factor": [1.0, 1.5, 2.0, 3.0, 5.0, 9.0, 14.0, 20.0],
    "original_max_position_embeddings": BORDER,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "phi3": {"original_max_position_embeddings": BORDER},
    "llama": {},
}
READ, ANSWERED, TOKENS = (10, BORDER, BORDER + 1, 44), (10, BORDER - 1, BORDER, BORDER + 1), 32
CLEAR = 4e-3  # of the logits' standard deviation


def main() -> None:
    for family, fields in FAMILIES.items():
        model = _reference_model(family, {"rope_parameters": ROPE, "max_position_embeddings": 256, **fields})
        arrays = next(found for seed in range(99) if (found := _answers(model, seed)))
        if family == "phi3":
            _check_generate(model, arrays["ids"][:10].astype(np.int64), arrays["greedy_10"])
        config = {name: x for name, x in model.config.to_dict().items() if name != "transformers_version"}
        record = {
            "config": {**config, "architectures": [type(model).__name__]},
            "tensors": model.saved_shapes,
        }
        record["transformers"] = transformers.__version__
        text = json.dumps(record, indent=1, default=str)
        (FOLDER / f"longrope_{family}.json").write_text(text + "\n", encoding="utf-8")
        np.savez_compressed(FOLDER / f"longrope_{family}.npz", **arrays)


@torch.no_grad()
def _answers(model: Any, seed: int) -> dict[str, Any] | None:
    """All that is stored; None where a second-best token was close."""
    ids = np.random.default_rng(seed).integers(3, 160, max(READ))
    columns = np.sort(np.random.default_rng(8).choice(160, 8, replace=False))
    arrays: dict[str, Any] = {"ids": ids.astype(np.int32), "columns": columns.astype(np.int32)}
    for length in READ:
        logits = model(torch.from_numpy(ids[:length])[None]).logits[0].numpy()
        arrays[f"logits_{length}"], arrays["std"] = logits[:, columns], np.float32(logits.std())
    for length in ANSWERED:
        arrays[f"greedy_{length}"], margin = _greedy(model, ids[:length])
        if margin.min() < CLEAR * arrays["std"]:
            return None
    return arrays


def _greedy(model: Any, prompt: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    ids, margins = [int(i) for i in prompt], []
    for _ in range(TOKENS):
        best = torch.topk(model(torch.tensor([ids])).logits[0, -1], 2)
        margins.append(float(best.values[0] - best.values[1]))
        ids.append(int(best.indices[0]))
    return np.array(ids[len(prompt) :], np.int32), np.array(margins, np.float32)


def _check_generate(model: Any, prompt: np.ndarray, wanted: np.ndarray) -> None:
    asked = {"max_new_tokens": TOKENS, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    got = model.generate(torch.from_numpy(prompt)[None], **asked)[0, len(prompt) :].numpy()
    agreed = int(np.cumprod(got == wanted).sum())
    print(
        f"generate agrees with single passes in {agreed} of {TOKENS} tokens, {BORDER - 10} before the border"
    )


if __name__ == "__main__":
    main()
