"""DeepSeek V4 as published: matrices in FP8 with powers of two as scales, experts in MXFP4."""

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

import modelkit
from modelkit.store.store import Store
from runtime.loading.load import load_model
from tests.runtime.models.test_published_forms import FORMS
from tests.support.checkpoints import random_state, save_fp8
from tests.support.half import WIDE
from tests.support.parity import Reference, full_logits
from tests.support.tiny import write_tokenizer

NAME, REFIELD, RESPELL = FORMS["DeepSeek V4"]
FP8 = (".wq_a.", ".wq_b.", ".wkv.", ".wo_a.", ".wo_b.", ".shared_experts.")


def published(folder: Path) -> dict[str, np.ndarray]:
    """Writes the files; what their tensors stand for."""
    reference = Reference(NAME)
    state = RESPELL(random_state(reference.record["tensors"]))
    plain, codes = dict[str, np.ndarray](), dict[str, np.ndarray]()
    more, meant = dict[str, tuple[str, np.ndarray]](), dict[str, np.ndarray]()
    for name, array in state.items():
        beside = f"{name.removesuffix('.weight')}.scale"
        if ".ffn.experts." in name:
            packed, scales = mx.quantize(mx.array(array), 32, 4, mode="mxfp4")
            more[name] = "I8", np.array(packed).view(np.int8)
            more[beside] = "F8_E8M0", np.array(scales)
            meant[name] = np.array(mx.dequantize(packed, scales, None, 32, 4, "mxfp4").astype(mx.float32))
        elif any(part in name for part in FP8) and ".compressor." not in name and ".indexer." not in name:
            codes[name] = np.array(mx.to_fp8(mx.array(array) * 64))
            more[beside] = "F8_E8M0", np.full([-(-size // 128) for size in array.shape], 121, np.uint8)
            meant[name] = np.array(mx.from_fp8(mx.array(codes[name]), mx.float32)) / 64
        elif array.dtype == np.int64:
            more[name] = "I64", array
            meant[name] = array
        else:
            plain[name] = meant[name] = array
    for leaf in ("weight", "scale"):  # a draft head has such matrices, too
        more[f"mtp.0.ffn.experts.0.w1.{leaf}"] = more[f"layers.1.ffn.experts.0.w1.{leaf}"]
    folder.mkdir()
    save_fp8(folder / "model.safetensors", plain, codes, more)
    method = {"quant_method": "fp8", "fmt": "e4m3", "scale_fmt": "ue8m0", "weight_block_size": [128, 128]}
    config = {**REFIELD(reference.record["config"]), "expert_dtype": "fp4", "quantization_config": method}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_tokenizer(folder, tokens=160)
    return meant


def created(folder: Path, quantize: str | None) -> tuple[dict[str, mx.array], np.ndarray]:
    """The package's tensors, and its logits."""
    (folder / "Modelfile").write_text("FROM ./published\n", encoding="utf-8")
    modelkit.create(folder / "Modelfile", name="it", quantize=quantize, home=folder / "home")
    Store(folder / "home").export("it", folder / "out", link=False)
    files = sorted((folder / "out").glob("*.safetensors"))
    config = json.loads((folder / "out" / "config.json").read_text(encoding="utf-8"))
    tensors = {name: array for file in files for name, array in mx.load(str(file)).items()}  # pyright: ignore
    return tensors, full_logits(load_model(config, files, on=WIDE), Reference(NAME).answers["ids"])


def as_meant(meant: dict[str, np.ndarray], path: Path) -> np.ndarray:
    from safetensors.numpy import save_file

    path.mkdir()
    save_file(meant, path / "model.safetensors")
    return full_logits(
        load_model(REFIELD(Reference(NAME).record["config"]), [path / "model.safetensors"]),
        Reference(NAME).answers["ids"],
    )


def test_published_numbers_are_read(tmp_path: Path) -> None:
    meant = published(tmp_path / "published")
    _, logits = created(tmp_path, "f32")
    wanted = as_meant(meant, tmp_path / "meant")
    assert np.abs(logits - wanted).max() < 1e-5 * wanted.std()


def test_experts_stay_as_they_are(tmp_path: Path) -> None:
    meant = published(tmp_path / "published")
    tensors, logits = created(tmp_path, None)
    stack = "layers.1.ffn.switch_mlp.up_proj"
    numbers = mx.dequantize(tensors[f"{stack}.weight"], tensors[f"{stack}.scales"], None, 32, 4, "mxfp4")
    theirs = np.stack([meant[f"layers.1.ffn.experts.{i}.w3.weight"] for i in range(8)])
    assert np.array_equal(np.array(numbers.astype(mx.float32)), theirs)
    assert mx.array_equal(
        tensors["mtp.0.ffn.experts.0.w1.weight"], tensors[f"{stack.replace('up', 'gate')}.weight"][0]
    )
    wanted = as_meant(meant, tmp_path / "meant")
    assert np.median(np.abs(logits - wanted).max(axis=-1)) < 0.2 * wanted.std()


@pytest.mark.parametrize("quantize", ["q8", "mxfp4"])
def test_other_formats_can_be_asked_for(tmp_path: Path, quantize: str) -> None:
    published(tmp_path / "published")
    tensors, logits = created(tmp_path, quantize)
    biases = "layers.1.ffn.switch_mlp.up_proj.biases" in tensors
    assert biases == (quantize == "q8")
    assert np.isfinite(logits).all()
