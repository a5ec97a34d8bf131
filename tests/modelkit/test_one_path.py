"""A folder that is run is what its package would be: the same answers, or the same refusal."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import modelkit
from modelkit.errors import ModelkitError
from tests.support.checkpoints import random_tensor, save_fp8, write_checkpoint
from tests.support.kinds import of_each_kind
from tests.support.parity import Reference
from tests.support.tiny import TEMPLATE, write_model, write_tokenizer
from tests.test_refusals import SOURCES

Outcome = np.ndarray | str
Change = Callable[[Path], object]


def opened(name: str | Path, home: Path, ids: list[int]) -> Outcome:
    """Its logits, or what was said when it was refused."""
    try:
        with modelkit.load(name, home=home) as model:
            return model.logits(ids)
    except ModelkitError as error:
        return str(error)


def packaged(folder: Path, home: Path, ids: list[int]) -> Outcome:
    """The same, of the package made of it."""
    try:
        made = modelkit.create(modelkit.Modelfile.parse(f"FROM {folder}"), name="it", home=home)
    except ModelkitError as error:
        return str(error)
    return opened(str(made.name), home, ids)


def agree(one: Outcome, other: Outcome) -> None:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        assert np.isfinite(one).all()
        np.testing.assert_array_equal(one, other)
    else:
        assert isinstance(one, str)
        assert isinstance(other, str)
        assert one == re.sub(r"^Modelfile:\d+:\d+: ", "", other)  # where in the recipe it was named


def reference_folder(name: str, folder: Path, change: dict[str, Any]) -> Path:
    record = Reference(name).record
    write_checkpoint(folder, {**_without_eos(record["config"]), **change}, record["tensors"])
    write_tokenizer(folder, tokens=128)
    return folder


def _without_eos(config: dict[str, Any]) -> dict[str, Any]:
    """Some tiny configs keep their family's real end ids, which a vocabulary of 160 does not have."""
    kept = {key: value for key, value in config.items() if key != "eos_token_id"}
    return {key: _without_eos(value) if isinstance(value, dict) else value for key, value in kept.items()}


@pytest.mark.parametrize("name", sorted(of_each_kind()))
def test_every_family(name: str, tmp_path: Path) -> None:
    folder, ids = reference_folder(name, tmp_path / "model", {}), list(range(3, 19))
    agree(opened(folder, tmp_path, ids), packaged(folder, tmp_path, ids))


@pytest.mark.parametrize("name", ["gemma3_text", "llama_biases_tied", "qwen3_5_tied", "zamba2", "glm4_tied"])
@pytest.mark.parametrize("differs", [False, True])
def test_a_head_beside_a_config_that_ties_it(name: str, differs: bool, tmp_path: Path) -> None:
    folder, ids = reference_folder(name, tmp_path / "model", {}), list(range(3, 19))
    path = folder / "model.safetensors"
    tensors = load_file(path)
    table = next(tensors[key] for key in tensors if key.endswith("embed_tokens.weight"))
    head = random_tensor("head", table.shape) if differs else table
    before = opened(folder, tmp_path, ids)
    save_file({**tensors, "lm_head.weight": head}, path, metadata={"format": "pt"})
    after = opened(folder, tmp_path, ids)
    agree(after, packaged(folder, tmp_path, ids))
    assert isinstance(before, np.ndarray)
    if not differs:
        agree(before, after)
    elif isinstance(after, np.ndarray):
        assert np.abs(before - after).max() > before.std()
    else:
        assert "lm_head.weight differs from" in after


def config(**changes: Any) -> Change:
    def edit(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return edit


def text(name: str, content: str) -> Change:
    return lambda folder: (folder / name).write_text(content)


def tensors(change: Callable[[dict[str, np.ndarray]], object]) -> Change:
    def edit(folder: Path) -> None:
        held = load_file(folder / "model.safetensors")
        change(held)
        save_file(held, folder / "model.safetensors", metadata={"format": "pt"})

    return edit


def both(*changes: Change) -> Change:
    return lambda folder: [change(folder) for change in changes]


def put(name: str, array: np.ndarray) -> Change:
    return tensors(lambda held: held.update({name: array}))


def narrow_head(held: dict[str, np.ndarray]) -> None:
    held["lm_head.weight"] = held["model.embed_tokens.weight"].astype(np.float16)


ODD: dict[str, Change] = {
    "a float width in the quantization block": config(quantization={"bits": 3.7}),
    "a quantization block over plain floats": config(quantization={"bits": 4, "group_size": 64}),
    "an empty quantization block": config(quantization={}),
    "a quantization block that is a list": config(quantization=[4]),
    "an unknown mode": config(quantization={"bits": 4, "group_size": 32, "mode": "spiral"}),
    "gptq over plain floats": config(quantization_config={"quant_method": "gptq", "bits": 4}),
    "an unknown quantization_config": config(quantization_config={"quant_method": "novel"}),
    "fp8 without scales": config(
        quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]}
    ),
    "a head of another dtype": tensors(narrow_head),
    "a head of another shape": put("lm_head.weight", np.ones((8, 64), np.float32)),
    "a head beside a config that does not tie": both(
        config(tie_word_embeddings=False), put("lm_head.weight", random_tensor("x", (320, 64)))
    ),
    "a config that does not tie, and no head": config(tie_word_embeddings=False),
    "a tensor too many": put("model.layers.0.novel.weight", np.ones((4, 4), np.float32)),
    "a tensor of an odd dtype": put("model.norm.weight", np.ones(64, np.complex64)),
    "a tensor of whole numbers": put("model.norm.weight", np.ones(64, np.int32)),
    "a tensor too few": tensors(lambda held: held.pop("model.norm.weight")),
    "an embedding smaller than the tokenizer": both(
        config(vocab_size=100), put("model.embed_tokens.weight", np.ones((100, 64), np.float32))
    ),
    "end ids beyond the vocabulary": config(eos_token_id=[1, 99_999]),
    "an end id that is a text": config(eos_token_id="2"),
    "end ids of generation_config beyond the vocabulary": text(
        "generation_config.json", '{"eos_token_id": 777}'
    ),
    "a template that does not compile": text("chat_template.jinja", "{% for %}"),
    "an empty list of templates": text(
        "tokenizer_config.json", '{"eos_token": "<end>", "chat_template": []}'
    ),
    "a tokenizer_config that is not json": text("tokenizer_config.json", "{"),
    "sampling out of range": text("generation_config.json", '{"repetition_penalty": 0.001, "top_p": 7}'),
    "a generation_config that is a list": text("generation_config.json", "[]"),
    "an assistant": config(architectures=["Gemma4AssistantForCausalLM"], model_type="gemma4_assistant"),
    **{name: change for name, (change, _) in SOURCES.items()},
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("one") / "model", template=TEMPLATE)


@pytest.mark.parametrize("name", ODD)
def test_an_odd_folder(name: str, good: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(good, folder)
    ODD[name](folder)
    ids = list(range(3, 19))
    agree(opened(folder, tmp_path, ids), packaged(folder, tmp_path, ids))


def test_weights_that_create_converts_say_so(good: Path, tmp_path: Path) -> None:
    """Block FP8 has no form that runs as it is."""
    folder = tmp_path / "model"
    shutil.copytree(good, folder)
    config(quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]})(folder)
    name, stored = "model.layers.0.mlp.up_proj.weight", np.zeros((128, 64), np.uint8)
    held = load_file(folder / "model.safetensors")
    del held[name]
    held[f"{name}_scale_inv"] = np.ones((1, 1), np.float32)
    save_fp8(folder / "model.safetensors", held, {name: stored})
    assert "modelkit create" in str(opened(folder, tmp_path, [1, 2]))
    assert isinstance(packaged(folder, tmp_path, [1, 2]), np.ndarray)
