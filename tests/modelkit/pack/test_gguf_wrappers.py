"""A file of GGUF that was written of a multimodal model is its text model, bit for bit."""

from pathlib import Path

import numpy as np
import pytest

import modelkit
from tests.modelkit.pack.mlx_lm.test_form import logits_of
from tests.support.checkpoints import write_checkpoint
from tests.support.parity import Reference
from tests.support.tiny import write_tokenizer


def create(source: str, folder: Path) -> None:
    (folder / "Modelfile").write_text(f"FROM ./{source}\n", encoding="utf-8")
    modelkit.create(folder / "Modelfile", name="it", home=folder / "home")


@pytest.mark.parametrize("name", ["glm4v", "glm4v_moe"])
def test_it_comes_back(name: str, tmp_path: Path) -> None:
    record = Reference(name).record
    write_checkpoint(tmp_path / "model", record["config"], record["tensors"])
    write_tokenizer(tmp_path / "model", tokens=160)
    create("model", tmp_path)
    modelkit.export_gguf("it", tmp_path / "again.gguf", home=tmp_path / "home")
    create("again.gguf", tmp_path)
    modelkit.export("it", tmp_path / "folder", home=tmp_path / "home")
    ids = np.arange(3, 40)
    assert np.array_equal(logits_of(tmp_path / "folder", ids), logits_of(tmp_path / "model", ids))
