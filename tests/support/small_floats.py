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
    ("mxfp8", "mxfp8"): {"quant_method": "mxfp8", "weight_block_size": [1, 32], "scale_fmt": "ue8m0"},
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
        name = "weight_scale_inv" if tool == "mxfp8" else "weight_scale"
        return {"weight": codes, name: powers}, {"weight"}, FP8[codes] * _times(powers)
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


def stack(kind: str, form: str, shape: tuple[int, ...], seed: int) -> tuple[Leaves, set[str], np.ndarray]:
    """The same of a stack, by what stands behind its name in files of that form."""
    of_each = [matrix(kind, "modelopt", (shape[1], shape[2]), seed + one) for one in range(shape[0])]
    codes, scales = (
        np.stack([leaves[leaf] for leaves, _, _ in of_each]) for leaf in ("weight", "weight_scale")
    )
    numbers = np.stack([numbers for _, _, numbers in of_each])
    named = {"ModelOpt": "_weight_scale", "Inkling": ".scale", "Inkling 2": "_scale"}[form]
    leaves: Leaves = {"": codes, named: scales}
    if kind == "mxfp8":
        return leaves, {""}, numbers
    factors = np.stack([leaves["weight_scale_2"] for leaves, _, _ in of_each])
    if form == "ModelOpt":
        halves = np.stack((factors, factors * 2), 1) if shape[1] > shape[2] else factors
        up = np.arange(shape[1])[:, None] >= shape[1] // 2
        numbers = np.where(up & (halves.ndim == 2), numbers * 2, numbers)
        leaves |= {"_weight_scale_2": halves, "_input_scale": np.ones_like(factors)}
    elif form == "Inkling":
        leaves |= {".scale2": factors, ".input_amax": np.ones(1, np.float32)}
        leaves |= {".original_shape": np.array(shape, np.int64)}
    else:
        over = np.array(2048, np.float32)  # exact
        leaves |= {"_amax": factors * over, "_outer_scale_denominator": over}
    return leaves, {named}, numbers


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
            and name.endswith(".weight")
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
    return write(folder / "coded", told, coded, eights), write(folder / "plain", config, plain, {})


def two_of_stacks(
    folder: Path,
    config: Mapping[str, Any],
    state: Leaves,
    said: Mapping[str, Any] | None,
    kind_of: Callable[[str], tuple[str, str] | None],
) -> tuple[Path, Path]:
    """As `two`, of stacks. kind_of: the kind and the form of what has that name, if it is one of them."""
    coded, eights, plain = dict(state), dict[str, np.ndarray](), dict(state)
    for place, (name, array) in enumerate(state.items()):
        if found := kind_of(name):
            leaves, narrow, numbers = stack(*found, array.shape, place)
            del coded[name]
            eights |= {name + leaf: one for leaf, one in leaves.items() if leaf in narrow}
            coded |= {name + leaf: one for leaf, one in leaves.items() if leaf not in narrow}
            plain[name] = numbers.astype(np.float32)
    told = {**config, **({"quantization_config": said} if said else {})}
    return write(folder / "coded", told, coded, eights), write(folder / "plain", config, plain, {})


def write(folder: Path, config: Mapping[str, Any], floats: Leaves, eights: Leaves) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config)), encoding="utf-8")
    write_tokenizer(folder, tokens=128)
    kept = {name: np.array(array, order="C") for name, array in floats.items()}
    wide = {name: ("I64", array) for name, array in kept.items() if array.dtype == np.int64}
    save_fp8(folder / "model.safetensors", kept, eights, wide)
    (folder.parent / f"{folder.name}.modelfile").write_text(f"FROM ./{folder.name}\n", encoding="utf-8")
    return folder
