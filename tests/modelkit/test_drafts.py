"""What `load` makes of a draft beside a model, or inside its file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models

import modelkit
from modelkit.errors import LoadError, ModelkitError
from modelkit.generation import Generation
from tests.support.assistants import DATA
from tests.support.checkpoints import random_state
from tests.support.heads import HeadReference

ASSISTANT: dict[str, Any] = json.loads((DATA / "gemma4_assistant.json").read_text(encoding="utf-8"))


def write(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Path:
    """A model directory with a tokenizer of 150 words."""
    folder.mkdir(parents=True)
    state = random_state({name: tuple(shape) for name, shape in tensors.items()})
    if "masked_embedding.token_ordering" in state:
        state["masked_embedding.token_ordering"] = np.arange(160)
    save_file(state, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(dict(config)), encoding="utf-8")
    words = {f"w{n}": n for n in range(150)}
    Tokenizer(models.WordLevel(words, unk_token="w0")).save(str(folder / "tokenizer.json"))
    return folder


def gemma(folder: Path, name: str, **changes: Any) -> Path:
    kind = "Gemma4ForCausalLM" if name == "target" else "Gemma4AssistantForCausalLM"
    return write(
        folder, {**ASSISTANT[name]["config"], "architectures": [kind], **changes}, ASSISTANT[name]["tensors"]
    )


def answer(name: str | Path, home: Path, **parameters: Any) -> Generation:
    with modelkit.load(name, home=home, **parameters) as model:
        return model.generate([5, 9, 44, 3, 17], temperature=0, num_predict=24)


def create(home: Path, target: Path, draft: Path) -> str:
    """The name of a package of both."""
    recipe = home.parent / "Modelfile"
    recipe.write_text(f"FROM {target}\nDRAFT {draft}\n", encoding="utf-8")
    modelkit.create(recipe, name="pair", home=home)
    return "pair"


def test_an_assistant_drafts_for_its_target(tmp_path: Path) -> None:
    home = tmp_path / "home"
    name = create(home, gemma(tmp_path / "target", "target"), gemma(tmp_path / "draft", "clustered"))
    drafted, plain = answer(name, home), answer(name, home, draft_num_predict=0)
    assert drafted.ids == plain.ids
    assert drafted.usage.drafted_tokens > 0
    assert plain.usage.drafted_tokens == 0


def test_an_assistant_that_does_not_fit_its_target(tmp_path: Path) -> None:
    home, record = tmp_path / "home", HeadReference("qwen3_5").record
    target = write(tmp_path / "target", record["config"], record["tensors"])
    with pytest.raises(ModelkitError, match="sliding attention layer"):  # by create, or by load
        modelkit.load(create(home, target, gemma(tmp_path / "draft", "plain")), home=home)


def test_an_assistant_alone(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="only runs inside its target"):
        modelkit.load(gemma(tmp_path / "alone", "plain"))


def test_a_head_inside_the_file_drafts(tmp_path: Path) -> None:
    record = HeadReference("qwen3_5").record
    folder = write(tmp_path / "headed", record["config"], record["tensors"])
    drafted, plain = (answer(folder, tmp_path, draft_num_predict=most) for most in (6, 0))
    assert drafted.ids == plain.ids
    assert drafted.usage.drafted_tokens > 0


def test_a_head_counts_in_memory_when_it_drafts(tmp_path: Path) -> None:
    record = HeadReference("glm4_moe").record
    folder = write(tmp_path / "headed", record["config"], record["tensors"])
    with modelkit.load(folder) as model:
        assert model.memory.draft_bytes > 0
    with modelkit.load(folder, draft_num_predict=0) as model:
        assert model.memory.draft_bytes == 0
