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
from modelkit.answers.generation import Generation
from modelkit.errors import LoadError, ModelkitError, PlanError
from modelkit.store import Store, build_artifact
from tests.support.assistants import DATA
from tests.support.checkpoints import random_state
from tests.support.drafting import always_drafting
from tests.support.heads import HeadReference
from tests.support.tiny import write_model

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


def test_an_assistant_drafts_for_its_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    always_drafting(monkeypatch)
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


def test_a_head_inside_the_file_drafts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    always_drafting(monkeypatch)
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


def test_create_says_what_becomes_of_a_head(tmp_path: Path) -> None:
    record = HeadReference("glm4_moe").record
    folder = write(tmp_path / "headed", record["config"], record["tensors"])
    other = write(tmp_path / "other", record["config"], record["tensors"])
    for text, said in (
        (f"FROM {folder}", "brings a draft head of its own"),
        (f"FROM {folder}\nDRAFT {other}", "is stored and not used: DRAFT takes its place"),
        (f"FROM {folder}\nDRAFT {other}", "draft: its own draft head"),
    ):
        made = modelkit.create(
            modelkit.Modelfile.parse(text),
            name="it",
            home=tmp_path,
            quantize_draft="q8" if "DRAFT" in text else None,
        )
        assert sum(said in note for note in made.notes) == 1, made.notes


def test_a_format_for_the_draft_is_no_format_for_a_head(tmp_path: Path) -> None:
    record = HeadReference("glm4_moe").record
    folder = write(tmp_path / "headed", record["config"], record["tensors"])
    with pytest.raises(PlanError, match="the model's own draft head is stored with the model"):
        modelkit.create(
            modelkit.Modelfile.parse(f"FROM {folder}"), name="it", quantize_draft="q4", home=tmp_path
        )


@pytest.mark.parametrize("formats", [{}, {"quantize": "q8", "quantize_draft": "q8"}])
def test_a_draft_that_is_its_target_in_another_folder(formats: dict[str, Any], tmp_path: Path) -> None:
    """As a package it could be neither shown nor taken as a source; in another format it is another model."""
    target = write_model(tmp_path / "target", tie_word_embeddings=False)
    write_model(tmp_path / "copy", tie_word_embeddings=False)
    text = modelkit.Modelfile.parse(f"FROM {target}\nDRAFT {tmp_path / 'copy'}")
    with pytest.raises(PlanError, match=r"the draft is its own target: .*copy has the same weights"):
        modelkit.create(text, name="it", home=tmp_path, **formats)
    modelkit.create(text, name="it", home=tmp_path, quantize_draft="q4")
    again = modelkit.create(modelkit.Modelfile.parse("FROM it"), name="again", home=tmp_path)
    assert again.preparation.draft


def test_drafts_that_were_not_loaded_are_spoken_of(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    with modelkit.load(folder, draft_num_predict=0) as model:
        (note,) = model.generate("hello", num_predict=2, draft_num_predict=8).notes
        assert note.startswith("draft_num_predict 8 does nothing: the model was loaded with")
        assert model.generate("hello", num_predict=2, draft_num_predict=0).notes == ()
    with modelkit.load(folder) as model:
        assert model.generate("hello", num_predict=2, draft_num_predict=8).notes == ()


def test_weights_that_do_not_fit_a_drafts_config_are_said_to_be_the_drafts(tmp_path: Path) -> None:
    """In a package that says `create` has made it, whose files are not compared again."""
    target, draft = (write_model(tmp_path / name, num_hidden_layers=n) for name, n in (("t", 2), ("d", 1)))
    name, store = create(tmp_path / "home", target, draft), Store(tmp_path / "home")
    tree = {path: file.read_bytes() for path, file in store.resolve(name).files.items()}
    config = json.loads(tree["draft/config.json"])
    tree["draft/config.json"] = json.dumps({**config, "num_hidden_layers": 2}).encode()
    with store.begin() as new:
        new.commit(name, build_artifact({path: new.add_bytes(data) for path, data in tree.items()}))
    with pytest.raises(LoadError, match=r"pair cannot be loaded: its draft: model\.layers\.1\..* is missing"):
        modelkit.load(name, home=tmp_path / "home")
