"""NVFP4 as mlx-lm's `quantize_model(global_scale=True)` writes it: a factor for each expert."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import modelkit
from modelkit.errors import MalformedFile, ModelkitError
from modelkit.store.store import Store
from tests.support.checkpoints import random_state
from tests.support.code_folders import IDS, apart, logits
from tests.support.parity import Reference
from tests.support.tiny import write_tokenizer

_HOW = {"group_size": 16, "bits": 4, "mode": "nvfp4"}


_pairs = partial(zip, strict=True)


def both(folder: Path, **changes: Any) -> None:
    """folder/coded has experts in NVFP4, folder/plain the numbers that MLX takes them for."""
    record = Reference("qwen3_moe").record
    config = {key: value for key, value in record["config"].items() if key != "eos_token_id"}
    config |= {"moe_intermediate_size": 64, "mlp_only_layers": [], "decoder_sparse_step": 1}
    coded, plain = dict[str, mx.array](), dict[str, mx.array]()
    block: dict[str, Any] = {"group_size": 64, "bits": 4, "mode": "affine"}
    for name, array in random_state(_shapes(record["tensors"], config)).items():
        weight = mx.array(array)
        coded[name] = plain[name] = weight
        if weight.ndim == 3:
            module, largest = name.removesuffix(".weight"), mx.abs(weight).max(axis=(1, 2))
            each = [mx.quantize(w, **_HOW, global_scale=most) for w, most in _pairs(weight, largest)]
            coded[name], coded[f"{module}.scales"] = (mx.stack([one[i] for one in each]) for i in (0, 1))
            coded[f"{module}.global_scale"] = largest
            numbers = [mx.dequantize(*one, **_HOW, global_scale=most) for one, most in _pairs(each, largest)]
            plain[name], block[module] = mx.stack(numbers), {**_HOW, "global_scale": True}
    blocks = {"quantization": block, "quantization_config": block}
    for kind, tensors, more in (("coded", {**coded, **changes}, blocks), ("plain", plain, {})):
        (folder / kind).mkdir()
        mx.save_safetensors(str(folder / kind / "model.safetensors"), tensors, {"format": "mlx"})
        (folder / kind / "config.json").write_text(json.dumps({**config, **more}), encoding="utf-8")
        write_tokenizer(folder / kind, tokens=128)


def _shapes(shapes: dict[str, list[int]], config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """As mlx-lm calls them: experts in stacks."""
    count, inner, hidden = config["num_local_experts"], config["moe_intermediate_size"], config["hidden_size"]
    found = {name: tuple(shape) for name, shape in shapes.items() if ".mlp." not in name}
    for layer in range(config["num_hidden_layers"]):
        home = f"model.layers.{layer}.mlp"
        found[f"{home}.gate.weight"] = (count, hidden)
        for part in ("gate", "up"):
            found[f"{home}.switch_mlp.{part}_proj.weight"] = (count, inner, hidden)
        found[f"{home}.switch_mlp.down_proj.weight"] = (count, hidden, inner)
    return found


def made(folder: Path, name: str, **options: Any) -> np.ndarray:
    recipe = modelkit.Modelfile.parse(f"FROM {folder / name}")
    modelkit.create(recipe, name=name, home=folder, **options)
    return logits(folder / name)


def test_they_are_kept_and_computed_as_mlx_takes_them(tmp_path: Path) -> None:
    both(tmp_path)
    wanted = made(tmp_path, "plain")
    assert apart(made(tmp_path, "coded"), wanted) < 1e-3
    files = Store(tmp_path).resolve("coded").files
    config = json.loads(files["config.json"].read_bytes())
    entry = config["quantization"]["model.layers.0.mlp.switch_mlp.up_proj"]
    assert entry == {"mode": "gguf", "type": "nvfp4"}
    assert "quantization_config" not in config
    kept = mx.load(str(files["model.safetensors"]), format="safetensors")
    assert isinstance(kept, dict)
    assert not any("global_scale" in name for name in kept)
    assert kept["model.layers.0.mlp.switch_mlp.up_proj.factor"].shape == (8,)
    with modelkit.load(tmp_path / "coded") as model:
        assert np.array_equal(model.logits(IDS), logits(tmp_path / "coded"))


def test_a_package_of_it_goes_to_gguf(tmp_path: Path) -> None:
    both(tmp_path)
    wanted = made(tmp_path, "coded")
    modelkit.export_gguf("coded", tmp_path / "it.gguf", home=tmp_path)
    modelkit.create(modelkit.Modelfile.parse(f"FROM {tmp_path / 'it.gguf'}"), name="again", home=tmp_path)
    assert apart(logits(tmp_path / "again"), wanted) < 1e-3


@pytest.mark.parametrize("factor", [mx.zeros((3,)), mx.zeros((8,), mx.float16)])
def test_factors_that_do_not_fit_are_refused(factor: mx.array, tmp_path: Path) -> None:
    both(tmp_path, **{"model.layers.0.mlp.switch_mlp.up_proj.global_scale": factor})
    with pytest.raises(MalformedFile, match=r"up_proj.global_scale. is F.*F32 \[8\] was expected"):
        made(tmp_path, "coded")


@pytest.mark.parametrize(
    ("wanted", "why"), [("q4", "is quantized already"), ("bf16", "in NVFP4's blocks, which are not unpacked")]
)
def test_it_is_quantized_already(wanted: str, why: str, tmp_path: Path) -> None:
    both(tmp_path)
    with pytest.raises(ModelkitError, match=why):
        made(tmp_path, "coded", quantize=wanted)
