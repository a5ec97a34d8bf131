"""Adapters written as PEFT writes them, from a seed: a pair for each matrix of a checkpoint."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from safetensors.numpy import save_file

from runtime.loading.unused import without_unused
from runtime.models import Described
from tests.support.checkpoints import random_tensor

Shape = tuple[int, ...]

_STACK = re.compile(r"\.experts\.(gate_up_proj|down_proj)$")


def matrices(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Of a checkpoint, what a LoRA of PEFT can change: linear layers, tables, stacks of experts."""
    return {
        name: tuple(shape)
        for name, shape in shapes.items()
        if (len(shape) == 2 and name.endswith(".weight") and "conv" not in name and "norm" not in name)
        or (len(shape) == 3 and _STACK.search(name))
    }


def computed_matrices(described: Described, shapes: dict[str, Shape]) -> dict[str, Shape]:
    """Matrices that the family computes with: not those of towers, and of tied heads."""
    kept = matrices({name: shapes[name] for name in without_unused(described, shapes)})
    placeholders = {name: mx.zeros(shape) for name, shape in shapes.items()}
    alive: dict[str, Shape] = {}
    whole = described.family.adapt(described.config, placeholders)
    for name, shape in kept.items():
        rest = {other: array for other, array in placeholders.items() if other != name}
        if name == "lm_head.weight" and getattr(described.config, "unit_head", False):
            continue  # what is scaled by its own numbers takes no pair
        if name.endswith("embed_tokens.weight") and described.checkpoint.norms_rows:
            continue  # nor does a table whose rows are normed (test_normed_tables)
        if _shapes(described.family.adapt(described.config, rest)) != _shapes(whole):
            alive[name] = shape
    return alive


def _shapes(weights: dict[str, mx.array]) -> dict[str, Shape]:
    return {name: tuple(array.shape) for name, array in weights.items()}


def holds_input_first(described: Described, name: str) -> bool:
    """Does the checkpoint hold it [in, out]?"""
    kind = described.config.__class__.__module__.rpartition(".")[2]
    if name.endswith("_proj") and not name.endswith(".weight"):
        return kind in ("gpt_oss", "llama4") or "VLMoe" in described.name
    return kind in ("gpt2", "jais") and ".c_" in name


def is_table(name: str) -> bool:
    own = r"(embed\w*|embedders\.\d+|embeddings|wte|wpe|shared|attention_bias)\.weight$"
    return re.search(own, name) is not None


def pair_for(name: str, shape: Shape, rank: int, *, input_first: bool) -> tuple[np.ndarray, np.ndarray]:
    """left [.., R, r] and right [.., r, C] of the matrix as a layer computes with it, outputs first."""
    *leading, rows, columns = shape[:-2] + (shape[:-3:-1] if input_first else shape[-2:])
    left = random_tensor(f"{name}.left", (*leading, rows, rank))
    return left, random_tensor(f"{name}.right", (*leading, rank, columns))


def delta_of(left: np.ndarray, right: np.ndarray, scale: float, *, input_first: bool) -> np.ndarray:
    """What is added to the stored tensor."""
    product = np.float32(scale) * (left @ right)
    return product.swapaxes(-1, -2) if input_first else product


def peft_tensors(name: str, left: np.ndarray, right: np.ndarray) -> dict[str, np.ndarray]:
    """The two tensors under PEFT's keys; those of a second stack of one module lie inside `.base_layer`."""
    if left.ndim == 3:
        owner, _, leaf = name.rpartition(".")
        module = f"base_model.model.{owner}{'.base_layer' if leaf == 'gate_up_proj' else ''}"
        a = right.reshape(-1, right.shape[-1])
        b = left.transpose(1, 2, 0).reshape(left.shape[1], -1)
        return {f"{module}.lora_A.weight": a, f"{module}.lora_B.weight": b}
    module = f"base_model.model.{name.removesuffix('.weight')}"
    if is_table(name):
        return {f"{module}.lora_embedding_A": left.T, f"{module}.lora_embedding_B": right.T}
    return {f"{module}.lora_A.weight": right, f"{module}.lora_B.weight": left}


def write_peft(folder: Path, tensors: Mapping[str, np.ndarray], **config: Any) -> Path:
    """A folder of PEFT's. Returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = {"peft_type": "LORA", "peft_version": "0.21.2", "r": 3, "lora_alpha": 6, **config}
    (folder / "adapter_config.json").write_text(json.dumps(whole), encoding="utf-8")
    kept = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    save_file(kept, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    return folder


def gguf_case(shapes: Mapping[str, Shape]) -> dict[str, np.ndarray]:
    """PEFT's tensors for the linear layers of the first two layers, of rank 3."""
    tensors: dict[str, np.ndarray] = {}
    for name, shape in matrices(shapes).items():
        if len(shape) == 2 and re.search(r"layers\.[01]\.", name):
            left, right = pair_for(name, shape, 3, input_first=False)
            tensors |= peft_tensors(name, left, right)
    return tensors
