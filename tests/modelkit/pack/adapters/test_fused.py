"""`create --fuse-adapters`: what is written is what a checkpoint with the adapter in it gives."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from safetensors.numpy import save_file

import modelkit
from modelkit.errors import ModelkitError
from modelkit.pack.metadata import FILE, read_metadata
from modelkit.store.store import Store
from tests.modelkit.pack.adapters.test_every_family import SCALE
from tests.support.adapter_references import AdapterReference
from tests.support.checkpoints import random_state, write_checkpoint
from tests.support.parity import Reference
from tests.support.peft_folders import delta_of, matrices, pair_for, peft_tensors, write_peft
from tests.support.tiny import write_tokenizer

NAMES = [*AdapterReference.names(), *AdapterReference.names("mlx/")]
REFUSED = {"llama_tied_table": "here they are one"}
FAMILIES = ["llama", "gpt2", "gpt_oss", "qwen3_next", "olmo_hybrid", "deepseek_v2", "mixtral", "llama4_text"]


def create(folder: Path, **options: Any) -> Any:
    (folder / "Modelfile").write_text("FROM ./model\nADAPTER ./lora\n", encoding="utf-8")
    return modelkit.create(folder / "Modelfile", name="it", home=folder, fuse_adapters=True, **options)


@pytest.mark.parametrize("name", NAMES)
def test_a_fused_package_answers_as_peft(name: str, tmp_path: Path) -> None:
    reference = AdapterReference(name)
    config = {key: value for key, value in reference.base["config"].items() if key != "eos_token_id"}
    write_tokenizer(write_checkpoint(tmp_path / "model", config, reference.base["tensors"]), tokens=128)
    reference.write(tmp_path / "lora")
    if name in REFUSED:
        with pytest.raises(ModelkitError, match=REFUSED[name]):
            create(tmp_path)
        return
    create(tmp_path)
    package = Store(tmp_path).resolve("it")
    assert not any(path.startswith("adapters/") for path in package.files)
    (said,) = read_metadata(package.files[FILE], "it").adapters
    assert said.fused
    with modelkit.load("it", home=tmp_path) as model:
        got = model.logits([int(one) for one in reference.ids])[:, reference.answers["columns"]]
    error = np.abs(got - reference.answers["logits"]).max() / reference.answers["std"]
    # Sums in another order move a hybrid by 2e-4; a pair at a wrong place moves any model by more than 0.1.
    assert error < 1e-3, error


@pytest.mark.parametrize("name", FAMILIES)
def test_fusing_and_quantizing_is_quantizing_the_fused_checkpoint(name: str, tmp_path: Path) -> None:
    record = Reference(name).record
    config = {key: value for key, value in record["config"].items() if key != "eos_token_id"}
    state = random_state(record["tensors"])
    tensors: dict[str, np.ndarray] = {}
    fused = dict(state)
    for matrix, shape in matrices(record["tensors"]).items():
        if (
            matrix.startswith(("lm_head", "vision", "model.vision", "multi_modal"))
            or "embed" in matrix
            or "wte" in matrix
        ):
            continue
        first = (name in ("gpt_oss", "llama4_text") and len(shape) == 3) or (
            name == "gpt2" and ".c_" in matrix
        )
        left, right = pair_for(matrix, shape, 3, input_first=first)
        tensors |= peft_tensors(matrix, left, right)
        fused[matrix] = state[matrix] + delta_of(left, right, SCALE, input_first=first)
    stacks = sorted(
        {
            one.partition("layers.")[2].partition(".")[2]
            for one in matrices(record["tensors"])
            if one.endswith("_proj")
        }
    )
    write_peft(tmp_path / "lora", tensors, target_parameters=stacks or None)
    for folder, values in (("model", state), ("fused", fused)):
        made = write_checkpoint(tmp_path / folder, config, {})
        write_tokenizer(made, tokens=128)
        save_file(values, made / "model.safetensors", metadata={"format": "pt"})
    create(tmp_path, quantize="q8")
    (tmp_path / "Modelfile").write_text("FROM ./fused\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="other", home=tmp_path, quantize="q8")
    store = Store(tmp_path)
    got, wanted = (
        mx.load(str(store.resolve(one).files["model.safetensors"]), format="safetensors")
        for one in ("it", "other")
    )
    assert isinstance(got, dict)
    assert isinstance(wanted, dict)
    assert got.keys() == wanted.keys()
    for tensor, values in wanted.items():
        if values.dtype == mx.uint32:
            same = float(np.mean(np.array(got[tensor].view(mx.uint8)) == np.array(values.view(mx.uint8))))
            assert same > 0.99, (tensor, same)
        else:
            np.testing.assert_allclose(
                np.array(got[tensor]), np.array(values), atol=1e-5, rtol=1e-4, err_msg=tensor
            )


def test_a_packed_base_is_not_rounded_twice(tmp_path: Path) -> None:
    reference = AdapterReference("llama_lora")
    config = {key: value for key, value in reference.base["config"].items() if key != "eos_token_id"}
    write_tokenizer(write_checkpoint(tmp_path / "model", config, reference.base["tensors"]), tokens=128)
    reference.write(tmp_path / "lora")
    (tmp_path / "Modelfile").write_text("FROM ./model\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="packed", home=tmp_path, quantize="q4")
    (tmp_path / "Modelfile").write_text("FROM packed\nADAPTER ./lora\n", encoding="utf-8")
    with pytest.raises(ModelkitError, match="quantized already"):
        modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path, fuse_adapters=True)
    (tmp_path / "Modelfile").write_text("FROM ./model\n", encoding="utf-8")
    with pytest.raises(ModelkitError, match="no adapter to fuse"):
        modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path, fuse_adapters=True)
