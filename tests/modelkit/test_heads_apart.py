"""A draft head in a GGUF file of its own (`mtp-*.gguf`), beside its model's, as the converter makes them."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modelkit
from modelkit.errors import ModelkitError
from modelkit.source.gguf.file import GgufFile, read_gguf
from modelkit.store.store import Store
from tests.support.checkpoints import write_checkpoint
from tests.support.drafting import always_drafting
from tests.support.gguf import Gguf, Tensor, Typed
from tests.support.gguf_round import package_numbers
from tests.support.heads import HeadReference
from tests.support.tiny import write_tokenizer

SHARED = ("token_embd.weight", "output_norm.weight", "output.weight")
LISTS = {"tokenizer.ggml.token_type": 5, "tokenizer.ggml.scores": 6}


def whole(folder: Path, name: str) -> GgufFile:
    """The file that has both."""
    record = HeadReference(name).record
    config = {key: value for key, value in record["config"].items() if not key.endswith("_token_id")}
    write_checkpoint(folder / "model", config, record["tensors"])
    write_tokenizer(folder / "model", tokens=128)
    modelkit.create(modelkit.Modelfile.parse(f"FROM {folder / 'model'}"), name="it", home=folder / "home")
    modelkit.export_gguf("it", folder / "whole.gguf", home=folder / "home")
    return read_gguf(folder / "whole.gguf")


def written(file: GgufFile, path: Path, keep: Callable[[str], bool], **changes: Any) -> Path:
    """Some of its tensors, and its metadata with changes."""
    name = file.metadata["general.architecture"]
    metadata = {**file.metadata, **{f"{name}.{key}": value for key, value in changes.items()}}
    typed = {
        key: Typed(9, list(value), LISTS.get(key, 8 if value and isinstance(value[0], str) else 5))
        if isinstance(value, tuple)
        else value
        for key, value in metadata.items()
        if value is not None
    }
    raw = path.with_name("whole.gguf").read_bytes()
    tensors = [
        Tensor(key, one.type.name, one.shape, raw[one.start : one.stop])
        for key, one in file.tensors.items()
        if keep(key)
    ]
    path.write_bytes(bytes(Gguf(typed, tensors)))
    return path


def parted(folder: Path, name: str, **changes: Any) -> tuple[Path, Path]:
    """The model without its head, and the head; changes: to what the head's file says."""
    file = whole(folder, name)
    key = str(file.metadata["general.architecture"])
    layers = int(str(file.metadata[f"{key}.block_count"])) - 1
    is_head = re.compile(rf"blk\.{layers}\.").match
    model = written(
        file, folder / "m.gguf", lambda one: not is_head(one), block_count=layers, nextn_predict_layers=None
    )
    head = written(file, folder / "mtp-m.gguf", lambda one: bool(is_head(one)) or one in SHARED, **changes)
    return model, head


def create(folder: Path, text: str) -> Any:
    recipe = modelkit.Modelfile.parse(text, file=str(folder / "Modelfile"))
    return modelkit.create(recipe, name="both", home=folder / "home")


@pytest.mark.parametrize("name", ["glm4_moe", "qwen3_5", "glm4_moe_lite"])
def test_a_head_beside_its_model_is_the_models(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    always_drafting(monkeypatch)
    model, head = parted(tmp_path, name)
    create(tmp_path, f"FROM {tmp_path / 'whole.gguf'}")
    with Store(tmp_path / "home").hold("both") as package:
        wanted = package_numbers(package)
    create(tmp_path, f"FROM {model}\nDRAFT {head}")
    with Store(tmp_path / "home").hold("both") as package:
        found = package_numbers(package)
        assert not any(path.startswith("draft/") for path in package.files)
    assert found.keys() == wanted.keys()
    assert all(np.array_equal(found[one], wanted[one]) for one in wanted)
    with modelkit.load("both", home=tmp_path / "home") as loaded:
        drafted = loaded.generate([5, 9, 44, 3, 17], raw=True, temperature=0, num_predict=16)
    assert drafted.usage.drafted_tokens > 0


def test_a_head_of_another_model_is_refused(tmp_path: Path) -> None:
    model, head = parted(tmp_path, "glm4_moe", embedding_length=128)
    with pytest.raises(ModelkitError, match=r"head of another model.*embedding_length"):
        create(tmp_path, f"FROM {model}\nDRAFT {head}")
    with pytest.raises(ModelkitError, match="has a draft head already"):
        create(tmp_path, f"FROM {tmp_path / 'whole.gguf'}\nDRAFT {head}")
    with pytest.raises(ModelkitError, match="is not a GGUF file of its model"):
        create(tmp_path, f"FROM {tmp_path / 'model'}\nDRAFT {head}")
    with pytest.raises(ModelkitError, match="draft head alone"):
        create(tmp_path, f"FROM {head}")
