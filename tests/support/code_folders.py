"""Folders with checkpoints of codes, what config.json says of them, and a llama to try them with."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from safetensors.numpy import save_file

import modelkit
from modelkit.store.store import Store
from tests.support.checkpoints import random_state
from tests.support.code_checkpoints import Codes, Tensors, as_codes
from tests.support.parity import Reference
from tests.support.peft_folders import is_table, matrices
from tests.support.tiny import write_tokenizer

IDS = list(range(3, 20))

Config = dict[str, Any]


def gptq_config(bits: int = 4, group: int = 32, **more: Any) -> Config:
    return {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": True, "desc_act": False, **more}


def awq_config(group: int = 32, **more: Any) -> Config:
    return {
        "quant_method": "awq",
        "bits": 4,
        "group_size": group,
        "zero_point": True,
        "version": "gemm",
        **more,
    }


def ct_config(bits: int = 4, group: int | None = 32, *, symmetric: bool = True, **more: Any) -> Config:
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "group_size": group, **more}
    weights["strategy"] = "group" if group else "channel"
    group_0 = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": group_0},
    }


def auto_round_config(packing: str = "auto_round:auto_gptq", **more: Any) -> Config:
    own = {"quant_method": "auto-round", "packing_format": packing, "bits": 4, "group_size": 32, "sym": True}
    return {**own, "data_type": "int", **more}


def write(folder: Path, config: Mapping[str, Any], tensors: Tensors) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_tokenizer(folder, tokens=128)
    save_file(
        {name: np.array(array, order="C") for name, array in tensors.items()}, folder / "model.safetensors"
    )
    (folder.parent / f"{folder.name}.modelfile").write_text(f"FROM ./{folder.name}\n", encoding="utf-8")
    return folder


def create(folder: Path, **options: Any) -> Any:
    recipe = folder.parent / f"{folder.name}.modelfile"
    return modelkit.create(recipe, name=folder.name, home=folder.parent, **options)


def logits(folder: Path) -> np.ndarray:
    with modelkit.load(folder.name, home=folder.parent) as model:
        return model.logits(IDS)


def apart(got: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(got - wanted).max() / wanted.std())


def stored(folder: Path) -> dict[str, Any]:
    path = Store(folder.parent).resolve(folder.name).files["model.safetensors"]
    found = mx.load(str(path), format="safetensors")
    assert isinstance(found, dict)
    return found


def llama(width: int = 256) -> tuple[Config, dict[str, tuple[int, ...]]]:
    """A llama of one layer, wide enough for every group."""
    record = Reference("llama").record
    config = {key: value for key, value in record["config"].items() if key != "eos_token_id"}
    config |= {"hidden_size": width, "intermediate_size": width, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": width // 4}
    sizes = {
        name: tuple(size if size == config["vocab_size"] else width for size in shape)
        for name, shape in record["tensors"].items()
        if ".layers." not in name or ".layers.0." in name
    }
    return config, sizes


def linear(shapes: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name, shape in matrices(shapes).items()
        if "layers." in name
        and len(shape) == 2
        and shape[0] % 32 == 0
        and shape[1] % 32 == 0
        and not is_table(name)
    ]


def two(
    folder: Path,
    config: Config,
    shapes: Mapping[str, Any],
    quantization: Config,
    make: Callable[[str, tuple[int, int]], Codes],
    leaves: Callable[[Codes], Tensors],
    chosen: list[str] | None = None,
) -> tuple[Path, Path]:
    """A checkpoint of codes, and one of the same numbers as floats."""
    coded, plain = as_codes(random_state(shapes), chosen or linear(shapes), make, leaves)
    return (
        write(folder / "coded", {**config, "quantization_config": quantization}, coded),
        write(folder / "plain", config, plain),
    )
