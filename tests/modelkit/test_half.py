"""A package of a checkpoint in 16-bit types computes what transformers computes of the same numbers in
float32.
"""

from pathlib import Path

import pytest

import modelkit
from tests.support.half import Half
from tests.support.tiny import write_tokenizer


@pytest.mark.parametrize("name", ["qwen3_next", "qwen3_next_mixed", "qwen3_5", "gemma3_text", "nemotron"])
def test_created_as_it_is(name: str, tmp_path: Path) -> None:
    half = Half(name, "bf16")
    folder = half.write(tmp_path / "model")
    write_tokenizer(folder, tokens=128)
    (tmp_path / "Modelfile").write_text("FROM ./model\n", encoding="utf-8")
    modelkit.create(tmp_path / "Modelfile", name="it", home=tmp_path)
    with modelkit.load("it", home=tmp_path) as model:
        assert half.error(model.logits([int(token) for token in half.ids])) < half.bar
