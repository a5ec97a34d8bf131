"""Matrices of MXFP4, MXFP8 and NVFP4 as tools write them, and what their numbers are."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from tests.support.checkpoints import random_state, save_fp8
from tests.support.tiny import write_tokenizer

FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
FP8 = np.array(mx.from_fp8(mx.arange(256).astype(mx.uint8), mx.float32))
CT, MODELOPT, QUARK, AUTO_ROUND = (
    {"quant_method": one} for one in ("compressed-tensors", "modelopt", "quark", "auto-round")
)
SAID: dict[tuple[str, str], dict[str, Any] | None] = {
    ("mxfp4", "compressed-tensors"): CT,
    ("mxfp4", "quark"): QUARK,
    ("mxfp4", "auto-round"): {**AUTO_ROUND, "data_type": "mx_fp"},
    ("mxfp8", "compressed-tensors"): CT,
    ("mxfp8", "modelopt"): MODELOPT,
    ("nvfp4", "compressed-tensors"): CT,
    ("nvfp4", "auto-round"): {**AUTO_ROUND, "data_type": "nv_fp"},
    ("nvfp4", "modelopt"): MODELOPT,
    ("nvfp4", "modelopt of old"): None,
}
"""What config.json says: by kind and tool."""

Leaves = dict[str, np.ndarray]


def matrix(
    kind: str, tool: str, shape: tuple[int, int], seed: int = 0
) -> tuple[Leaves, set[str], np.ndarray]:
    """Its tensors, those of them that are F8_E4M3, and its numbers, float32."""
    rng = np.random.default_rng(seed)
    rows, inputs = shape
    if kind in ("fp8", "mxfp8"):
        codes = rng.integers(0, 256, shape).astype(np.uint8)
        codes[(codes & 0x7F) == 0x7F] = 0x3A
        if kind == "fp8":
            scale = np.array(2**-12, np.float32)
            return {"weight": codes, "weight_scale": scale}, {"weight"}, FP8[codes] * scale
        powers = rng.integers(110, 118, (rows, inputs // 32)).astype(np.uint8)
        return {"weight": codes, "weight_scale": powers}, {"weight"}, FP8[codes] * _times(powers)
    codes = rng.integers(0, 16, shape).astype(np.uint8)
    packed = codes[:, 0::2] | codes[:, 1::2] << np.uint8(4)
    name = "weight_packed" if tool in ("compressed-tensors", "auto-round") else "weight"
    if kind == "mxfp4":
        powers = rng.integers(118, 124, (rows, inputs // 32)).astype(np.uint8)
        return {name: packed, "weight_scale": powers}, set(), FP4[codes] * _times(powers)
    scales = rng.integers(0x30, 0x50, (rows, inputs // 16)).astype(np.uint8)
    factor = np.float32(rng.uniform(0.005, 0.015))
    numbers = FP4[codes] * np.repeat(FP8[scales], 16, axis=1)
    leaves: Leaves = {name: packed, "weight_scale": scales}
    if name == "weight_packed":
        over = np.array([1 / factor], np.float32)
        leaves |= {"weight_global_scale": over, "input_global_scale": np.ones(1, np.float32)}
        return leaves, {"weight_scale"}, numbers * (1 / over)
    leaves |= {"weight_scale_2": np.array(factor), "input_scale": np.array(np.float32(0.1))}
    return leaves, {"weight_scale"}, numbers * factor


def _times(powers: np.ndarray) -> np.ndarray:
    return np.repeat(np.ldexp(np.float32(1), powers.astype(int) - 127), 32, axis=1)


def two(
    folder: Path,
    config: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    kind: str,
    tool: str,
    respell: Callable[[Leaves], Leaves] = lambda state: state,
    multiple: int = 64,
    fp8: str = "no name",
) -> tuple[Path, Path]:
    """A checkpoint of small floats, and one of the same numbers as floats. fp8: in names of matrices that are
    FP8 with one scale.
    """
    state = respell(random_state(shapes))
    coded, eights, plain = dict(state), dict[str, np.ndarray](), dict(state)
    for place, (name, array) in enumerate(state.items()):
        if (
            "layers." in name
            and array.ndim == 2
            and array.shape[1] % multiple == 0
            and "gate.weight" not in name
        ):
            size = array.shape[0], array.shape[1]
            leaves, narrow, numbers = matrix("fp8" if fp8 in name else kind, tool, size, place)
            module = name.removesuffix("weight")
            del coded[name]
            eights |= {module + leaf: one for leaf, one in leaves.items() if leaf in narrow}
            coded |= {module + leaf: one for leaf, one in leaves.items() if leaf not in narrow}
            plain[name] = numbers.astype(np.float32)
    said = SAID[kind, tool]
    told = {**config, **({"quantization_config": said} if said else {})}
    return _write(folder / "coded", told, coded, eights), _write(folder / "plain", config, plain, {})


def _write(folder: Path, config: Mapping[str, Any], floats: Leaves, eights: Leaves) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config)), encoding="utf-8")
    write_tokenizer(folder, tokens=128)
    kept = {name: np.array(array, order="C") for name, array in floats.items()}
    save_fp8(folder / "model.safetensors", kept, eights)
    (folder.parent / f"{folder.name}.modelfile").write_text(f"FROM ./{folder.name}\n", encoding="utf-8")
    return folder
