"""Which token ends a text: where nothing says it, or says one that is not there, the user hears of it."""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

import modelkit
from modelkit.errors import TokenizerError
from tests.support.tiny import write_model

VOCABULARIES = Path(__file__).resolve().parents[2] / "data" / "vocabularies.json"
SENTENCEPIECE = json.loads(VOCABULARIES.read_text(encoding="utf-8"))["sentencepiece"]["llama"]["model"]
NOTHING = "nothing says which token ends a text"


def notes(tmp_path: Path, tokenizer_config: dict[str, Any], *lines: str, **config: Any) -> list[str]:
    """Those of the package that are about its tokens."""
    folder = write_model(tmp_path / "model", **config)
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    (tmp_path / "Modelfile").write_text("\n".join(["FROM ./model", *lines]))
    made = modelkit.create(tmp_path / "Modelfile", name="ends", home=tmp_path / "home")
    return [note for note in made.notes if "token" in note]


def test_a_text_that_nothing_ends_is_noted(tmp_path: Path) -> None:
    (note,) = notes(tmp_path, {"eos_token": None})
    assert note.startswith(NOTHING)


@pytest.mark.parametrize("role", ["bos_token", "eos_token"])
def test_a_token_that_the_vocabulary_has_not_is_noted(role: str, tmp_path: Path) -> None:
    said = notes(tmp_path, {role: "<nope>"}, eos_token_id=256)
    assert said == [f"the tokenizer's {role} is '<nope>', which is not a token of its vocabulary"]


def test_special_tokens_that_the_vocabulary_has_not_are_noted(tmp_path: Path) -> None:
    said = notes(tmp_path, {"eos_token": "<end>", "additional_special_tokens": ["<end>", "<a>", "<b>"]})
    assert said == ["special tokens that the vocabulary has not are texts like any other: <a>, <b>"]


@pytest.mark.parametrize(
    ("tokenizer_config", "lines", "config"),
    [
        ({"eos_token": "<end>"}, (), {}),
        ({}, (), {"eos_token_id": [256]}),
        ({}, ("PARAMETER stop ###",), {}),
    ],
)
def test_nothing_is_noted_where_texts_end(
    tokenizer_config: dict[str, Any], lines: tuple[str, ...], config: dict[str, Any], tmp_path: Path
) -> None:
    assert notes(tmp_path, tokenizer_config, *lines, **config) == []


@pytest.mark.parametrize("value", ["256", 256.0, True])
def test_an_id_of_another_type_is_told_from_the_number(value: object, tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=f"eos_token_id is {value!r}; ids below 320"):
        notes(tmp_path, {}, eos_token_id=value)


def test_too_many_ids_are_called_so(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="eos_token_id has 300 ids; at most"):
        notes(tmp_path, {}, eos_token_id=list(range(300)))


def test_a_sentencepiece_model_ends_texts(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", vocab_size=512)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.model").write_bytes(b64decode(SENTENCEPIECE))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer"}')
    (tmp_path / "Modelfile").write_text("FROM ./model")
    made = modelkit.create(tmp_path / "Modelfile", name="ends", home=tmp_path / "home")
    assert not any(note.startswith(NOTHING) for note in made.notes)
