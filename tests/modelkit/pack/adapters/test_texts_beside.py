"""Chat templates and tokenizers that trainers save with an adapter: told where they are not the model's."""

import json
from pathlib import Path
from typing import Any

import pytest

import modelkit
from tests.support.packaged_adapters import TENSORS, create
from tests.support.peft_folders import write_peft
from tests.support.tiny import TEMPLATE, write_model, write_tokenizer

FROM = "FROM ./model\nADAPTER ./lora\n"
OTHER = "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model, and an adapter with the model's own tokenizer and template beside it."""
    write_model(tmp_path / "model", template=TEMPLATE)
    write_peft(tmp_path / "lora", TENSORS)
    write_tokenizer(tmp_path / "lora")
    (tmp_path / "lora" / "chat_template.jinja").write_text(f"{TEMPLATE}\n", encoding="utf-8")
    return tmp_path


def told(folder: Path, text: str = FROM, **options: Any) -> list[str]:
    return [note for note in create(folder, text, **options).notes if note.startswith("adapter lora: ")]


def test_nothing_is_told_of_what_is_the_models(folder: Path) -> None:
    assert told(folder) == []


@pytest.mark.parametrize("fuse", [True, False])
def test_another_chat_template_is_told(folder: Path, fuse: bool) -> None:
    (folder / "lora" / "chat_template.jinja").write_text(OTHER, encoding="utf-8")
    (note,) = told(folder, fuse_adapters=fuse)
    assert "TEMPLATE takes its text" in note


def test_it_is_told_where_the_model_has_none(folder: Path) -> None:
    (folder / "model" / "chat_template.jinja").unlink()
    assert "chat template" in "".join(told(folder))


def test_who_says_which_template_is_meant_is_told_nothing(folder: Path) -> None:
    (folder / "lora" / "chat_template.jinja").write_text(OTHER, encoding="utf-8")
    assert told(folder, f"{FROM}TEMPLATE {OTHER}\n") == []


def test_other_tokens_are_told(folder: Path) -> None:
    write_tokenizer(folder / "lora", tokens=128)
    (note,) = told(folder)
    assert "other at id 127" in note


def test_another_end_of_texts_is_told_unless_it_ends_answers_too(folder: Path) -> None:
    said = json.dumps({"eos_token": "a"})
    (folder / "lora" / "tokenizer_config.json").write_text(said, encoding="utf-8")
    (note,) = told(folder)
    assert "ends texts with 'a'" in note
    assert told(folder, f"{FROM}PARAMETER stop a\n") == []


def test_what_cannot_be_read_is_told_and_the_adapter_is_taken(folder: Path) -> None:
    (folder / "lora" / "tokenizer.json").write_text("{}", encoding="utf-8")
    (note,) = told(folder)
    assert "cannot be read" in note


def test_a_model_that_is_loaded_with_it_tells_the_same(folder: Path) -> None:
    (folder / "lora" / "chat_template.jinja").write_text(OTHER, encoding="utf-8")
    with modelkit.load(folder / "model", adapters=[folder / "lora"]) as model:
        assert told(folder) == list(model.notes)
