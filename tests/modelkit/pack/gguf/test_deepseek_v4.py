"""DeepSeek V4 as GGUF: sizes that llama.cpp knows, in either spelling of a checkpoint, there and back."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import modelkit
from modelkit.errors import UnsupportedSource
from modelkit.source.gguf.architectures import read_architecture
from modelkit.source.gguf.file import read_gguf
from modelkit.store.store import Store
from tests.runtime.models.test_published_forms import FORMS
from tests.support.checkpoints import random_state
from tests.support.gguf_round import exported, file_numbers
from tests.support.llama_cpp_check import ask, interpreter
from tests.support.parity import Reference
from tests.support.tiny import write_tokenizer

_, REFIELD, RESPELL = FORMS["DeepSeek V4"]
SIZES: dict[str, Any] = {
    "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128},
    "index_head_dim": 64,
    "mlp_layer_types": ["hash_moe", "moe", "moe"],
}
SHAPES = {
    "layers.2.self_attn.compressor.position_bias": (128, 24),
    "indexer.position_bias": (4, 128),
    "indexer.kv_proj.weight": (128, 64),
    "indexer.gate_proj.weight": (128, 64),
    "indexer.kv_norm.weight": (64,),
    "indexer.q_b_proj.weight": (512, 32),
}
_PLAIN = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1 / 3}
_YARN = {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.2, "original_max_position_embeddings": 64}
IDS = [*range(3, 51)]


def written(folder: Path, *, published: bool = False, **changes: Any) -> None:
    record = Reference("deepseek_v4").record
    shapes = {
        name: next((one for end, one in SHAPES.items() if name.endswith(end)), tuple(shape))
        for name, shape in record["tensors"].items()
    }
    ids = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
    config, state = {**record["config"], **ids, **SIZES, **changes}, random_state(shapes)
    if published:
        config, state = {**REFIELD(config), "compress_rate_hca": 128}, RESPELL(state)
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(state, folder / "model/model.safetensors", metadata={"format": "pt"})
    write_tokenizer(folder / "model", tokens=128)
    modelkit.create(modelkit.Modelfile.parse(f"FROM {folder / 'model'}"), name="it", home=folder)


def logits(name: str, folder: Path) -> np.ndarray:
    with modelkit.load(name, home=folder) as model:
        return np.array(model.logits(IDS))


@pytest.mark.parametrize("published", [False, True])
def test_it_comes_back(published: bool, tmp_path: Path) -> None:
    written(tmp_path, published=published)
    with Store(tmp_path).hold("it") as package:
        exported(package, tmp_path / "it.gguf")
    numbers, _ = file_numbers(tmp_path / "it.gguf")
    assert numbers["model.layers.0.mlp.gate.tid2eid"].shape == (160, 3)
    modelkit.create(modelkit.Modelfile.parse(f"FROM {tmp_path / 'it.gguf'}"), name="again", home=tmp_path)
    wanted = logits("it", tmp_path)
    assert np.array_equal(logits("again", tmp_path), wanted)
    modelkit.export_gguf("again", tmp_path / "again.gguf", home=tmp_path)
    back, _ = file_numbers(tmp_path / "again.gguf")
    assert all(np.array_equal(back[name], array) for name, array in numbers.items())
    if interpreter() is not None:
        theirs = np.array(ask(tmp_path / "it.gguf", ids=IDS))
        assert np.abs(theirs - wanted).max() < 1e-4 * wanted.std()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scoring_func": "sigmoid"}, "scoring_func is 'sigmoid'"),
        ({"rope_parameters": {"main": _PLAIN, "compress": _PLAIN | _YARN}}, "attention_factor of the scaled"),
    ],
)
def test_what_llama_cpp_has_not_is_refused(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    written(tmp_path, **changes)
    with pytest.raises(UnsupportedSource, match=said):
        modelkit.export_gguf("it", tmp_path / "it.gguf", home=tmp_path)


def test_what_its_converter_writes_besides_is_left_out(tmp_path: Path) -> None:
    """Corrections for images, and numbers of draft heads that are not in the file."""
    written(tmp_path)
    modelkit.export_gguf("it", tmp_path / "it.gguf", home=tmp_path)
    file = read_gguf(tmp_path / "it.gguf")
    shapes = {name: tensor.shape for name, tensor in file.tensors.items()}
    more = {"deepseek4.attention.compress_ratios": [0, 4, 128, 0]}
    metadata = {key: file.metadata[key] for key in file.metadata} | more
    found = read_architecture(metadata, {**shapes, "blk.1.exp_probs_b_vl.bias": (8,)}, lambda _: [0.0], "it")
    assert found.tensors == read_architecture(file.metadata, shapes, lambda _: [0.0], "it").tensors
    assert any("for images are left out" in note for note in found.notes)
