"""An adapter of a package in mlx-lm's form: mlx-lm loads it onto the exported model and answers the same."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import modelkit
from modelkit.errors import ModelkitError
from tests.modelkit.pack.adapters.test_export import package
from tests.support.adapter_references import AdapterReference
from tests.support.checkpoints import write_checkpoint
from tests.support.parity import Reference
from tests.support.peft_folders import pair_for, peft_tensors, write_peft
from tests.support.tiny import write_tokenizer

with_mlx_lm = pytest.mark.skipif(find_spec("mlx_lm") is None, reason="mlx-lm is not installed")

REFUSED = {
    "llama_lora_bias": "a bias beside the pair of",
    "llama_tied_table": "only one of head and embedding",
    "llama_tied_tokens": "has rows of",
    "llama_untied_saved": "replaces model.embed_tokens.weight",
    "deepseek_v3_latent": "not a matrix that mlx-lm gives pairs",
    "qwen3_next_hybrid": "which mlx-lm's class of this model has otherwise",
}


def by_mlx_lm(home: Path, ids: np.ndarray) -> np.ndarray:
    """The exported model's logits with the exported adapter. [ids, V]"""
    from mlx_lm.utils import load_adapters, load_model  # pyright: ignore[reportMissingImports]

    modelkit.export("it", home / "model_out", home=home)
    modelkit.export_adapter("it", "lora", home / "out", form="mlx-lm", home=home)
    model: Any = load_model(home / "model_out", lazy=True, strict=True)[0]
    model = load_adapters(model, str(home / "out"))
    model.eval()
    return np.array(model(mx.array(ids)[None])[0].astype(mx.float32))


def by_modelkit(home: Path, ids: np.ndarray) -> np.ndarray:
    with modelkit.load("it", home=home) as model:
        return np.array(model.logits(ids.tolist()))


def parameters(home: Path) -> dict[str, Any]:
    return json.loads((home / "out" / "adapter_config.json").read_bytes())["lora_parameters"]


@with_mlx_lm
@pytest.mark.parametrize(
    "name", ["llama_lora", "llama_dora", "llama_patterns", "llama_rslora", "mlx/llama_table"]
)
def test_mlx_lm_answers_as_the_reference(name: str, tmp_path: Path) -> None:
    reference = AdapterReference(name)
    got = by_mlx_lm(package(name, tmp_path), reference.ids)[:, reference.answers["columns"]]
    error = np.abs(got - reference.answers["logits"]).max() / reference.answers["std"]
    assert error < 1e-4, error


@with_mlx_lm
@pytest.mark.parametrize("name", ["llama_lora", "mlx/llama_dora", "mlx/qwen3_moe_experts"])
def test_on_packed_bases(name: str, tmp_path: Path) -> None:
    ids = AdapterReference(name).ids
    home = package(name, tmp_path, "q8g32")
    ours, theirs = by_modelkit(home, ids), by_mlx_lm(home, ids)
    # What packed matrices read is rounded to 16 bits: 0.5e-3 to 1.1e-3 of matrices so narrow, as sums fall.
    assert np.abs(ours - theirs).max() / ours.std() < 2e-3


def with_pairs(name: str, home: Path, ending: str) -> Reference:
    """A package `it` of that reference's model, with pairs for two of its matrices."""
    reference = Reference(name)
    shapes = {key: tuple(shape) for key, shape in reference.record["tensors"].items()}
    config = {key: value for key, value in reference.record["config"].items() if key != "eos_token_id"}
    write_tokenizer(write_checkpoint(home / "model", config, shapes), tokens=128)
    tensors: dict[str, np.ndarray] = {}
    for key in [key for key in shapes if key.endswith(ending) and "vis" not in key][:2]:
        tensors |= peft_tensors(key, *pair_for(key, shapes[key], 3, input_first=False))
    write_peft(home / "lora", tensors)
    (home / "Modelfile").write_text("FROM ./model\nADAPTER ./lora\n", encoding="utf-8")
    modelkit.create(home / "Modelfile", name="it", home=home)
    return reference


@with_mlx_lm
def test_a_wrapped_model(tmp_path: Path) -> None:
    ids = with_pairs("qwen3_vl", tmp_path, "q_proj.weight").answers["ids"]
    ours, theirs = by_modelkit(tmp_path, ids), by_mlx_lm(tmp_path, ids)
    # What packed matrices read is rounded to 16 bits: 0.5e-3 to 1.1e-3 of matrices so narrow, as sums fall.
    assert np.abs(ours - theirs).max() / ours.std() < 2e-3


@with_mlx_lm
def test_experts_and_what_they_share_by_names_of_the_class(tmp_path: Path) -> None:
    ids = with_pairs("step3p5", tmp_path, "share_expert.up_proj.weight").answers["ids"]
    ours, theirs = by_modelkit(tmp_path, ids), by_mlx_lm(tmp_path, ids)
    # What packed matrices read is rounded to 16 bits: 0.5e-3 to 1.1e-3 of matrices so narrow, as sums fall.
    assert np.abs(ours - theirs).max() / ours.std() < 2e-3


def test_a_class_with_names_of_its_own(tmp_path: Path) -> None:
    with_pairs("gpt_neox_sequential", tmp_path, "attention.dense.weight")
    modelkit.export_adapter("it", "lora", tmp_path / "out", form="mlx-lm", home=tmp_path)
    tensors = mx.load(str(tmp_path / "out" / "adapters.safetensors"), format="safetensors")
    assert isinstance(tensors, dict)
    assert "model.h.0.attention.dense.lora_a" in tensors


@with_mlx_lm
def test_a_table_is_one_whatever_the_class_calls_it(tmp_path: Path) -> None:
    """And ours, of another name, is found when the adapter is read again: shapes alone say that it is one."""
    ids = with_pairs("gptj", tmp_path, "wte.weight").answers["ids"]
    theirs = by_mlx_lm(tmp_path, ids)
    (tmp_path / "Modelfile").write_text("FROM ./model\nADAPTER ./out\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path)
    assert np.abs(by_modelkit(tmp_path, ids) - theirs).max() / theirs.std() < 1e-3


def test_ranks_and_scales_become_one(tmp_path: Path) -> None:
    home = package("llama_patterns", tmp_path)
    modelkit.export_adapter("it", "lora", tmp_path / "out", form="mlx-lm", home=home)
    tensors = mx.load(str(tmp_path / "out" / "adapters.safetensors"), format="safetensors")
    assert isinstance(tensors, dict)
    assert {array.shape[-1] for name, array in tensors.items() if name.endswith("lora_a")} == {5}
    assert parameters(home)["scale"] == pytest.approx(3.75)


@pytest.mark.parametrize("name", REFUSED)
def test_what_mlx_lm_has_no_word_for_is_refused_by_name(name: str, tmp_path: Path) -> None:
    home = package(name, tmp_path)
    with pytest.raises(ModelkitError, match=REFUSED[name]):
        modelkit.export_adapter("it", "lora", tmp_path / "out", form="mlx-lm", home=home)
    assert not (tmp_path / "out").exists()


def test_bits_that_its_dora_miscounts_are_refused(tmp_path: Path) -> None:
    home = package("mlx/llama_dora", tmp_path, "q6g32")
    with pytest.raises(ModelkitError, match="packed in 6 bits"):
        modelkit.export_adapter("it", "lora", tmp_path / "out", form="mlx-lm", home=home)


def test_another_form_is_refused(tmp_path: Path) -> None:
    form: Any = "gguf"
    with pytest.raises(ModelkitError, match="one of peft, mlx-lm"):
        modelkit.export_adapter("it", "lora", tmp_path / "out", form=form, home=tmp_path)


@pytest.mark.parametrize(
    ("name", "module", "expected"),
    [
        ("falcon_h1", "model.layers.0.self_attn.k_proj", "changes model.layers.0.self_attn.k_proj.weight"),
        ("falcon_h1", "model.layers.0.self_attn.q_proj", None),
        ("stablelm_parallel", "model.embed_tokens", "changes model.embed_tokens.weight"),
        ("stablelm_parallel", "model.layers.0.self_attn.q_proj", None),
    ],
)
def test_what_mlx_lms_form_of_the_model_has_otherwise(
    name: str, module: str, expected: str | None, tmp_path: Path
) -> None:
    """Matrices that are written otherwise, so that mlx-lm computes the model, take no pair as it is."""
    record = Reference(name).record
    config = {key: value for key, value in record["config"].items() if key != "eos_token_id"}
    write_tokenizer(write_checkpoint(tmp_path / "model", config, record["tensors"]), tokens=128)
    weight = f"{module}.weight"
    left, right = pair_for(weight, tuple(record["tensors"][weight]), 3, input_first=False)
    write_peft(tmp_path / "lora", peft_tensors(weight, left, right), ensure_weight_tying=True)
    (tmp_path / "Modelfile").write_text("FROM ./model\nADAPTER ./lora\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path)
    if expected is None:
        modelkit.export_adapter("it", "lora", tmp_path / "out", form="mlx-lm", home=tmp_path)
        return
    with pytest.raises(ModelkitError, match=expected):
        modelkit.export_adapter("it", "lora", tmp_path / "out", form="mlx-lm", home=tmp_path)
