"""A model's folder in FP8."""

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
from safetensors.numpy import load_file

from tests.support.checkpoints import save_fp8


def as_fp8(folder: Path) -> Path:
    """A folder's projections as block FP8, as DeepSeek publishes them."""
    held = dict(load_file(folder / "model.safetensors"))
    codes: dict[str, np.ndarray] = {}
    for name in [name for name in held if "_proj" in name]:
        codes[name] = np.array(mx.to_fp8(mx.array(held.pop(name))))
        held[f"{name}_scale_inv"] = np.ones((1, 1), np.float32)
    save_fp8(folder / "model.safetensors", held, codes)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    (folder / "config.json").write_text(json.dumps(config))
    return folder
