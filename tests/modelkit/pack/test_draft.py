from pathlib import Path

import pytest

import modelkit
from modelkit.errors import PlanError
from modelkit.pack.draft import check_draft, check_rows
from modelkit.tokenizer import Tokenizer, load_tokenizer
from tests.support.tiny import write_model


def tokenizer(write_tokenizer: object, folder: Path, words: int) -> tuple[Tokenizer, dict[str, Path]]:
    assert callable(write_tokenizer)
    folder.mkdir()
    write_tokenizer(folder, words)
    files = {path.name: path for path in folder.iterdir()}
    return load_tokenizer(files), files


@pytest.fixture
def target(tmp_path: Path, write_tokenizer: object) -> Tokenizer:
    return tokenizer(write_tokenizer, tmp_path / "target", 32)[0]


def test_the_same_tokenizer_fits(tmp_path: Path, write_tokenizer: object, target: Tokenizer) -> None:
    _, files = tokenizer(write_tokenizer, tmp_path / "draft", 32)
    assert check_draft({"vocab_size": 32}, files, target) == ()


def test_another_tokenizer_is_refused(tmp_path: Path, write_tokenizer: object, target: Tokenizer) -> None:
    _, files = tokenizer(write_tokenizer, tmp_path / "draft", 33)
    with pytest.raises(PlanError, match="the draft's tokenizer is not the target's"):
        check_draft({"vocab_size": 33}, files, target)


def test_a_draft_without_a_tokenizer_takes_the_targets(target: Tokenizer) -> None:
    assert check_draft({"vocab_size": 64}, {}, target) == ()


def test_a_padded_vocabulary_fits(target: Tokenizer) -> None:
    assert check_draft({"text_config": {"vocab_size": 1024}}, {}, target) == ()


def test_a_vocabulary_too_small_for_the_tokens_is_refused(target: Tokenizer) -> None:
    with pytest.raises(PlanError, match="the draft embeds 20 ids"):
        check_draft({"vocab_size": 20}, {}, target)


def test_rows_that_only_the_table_has_count(target: Tokenizer) -> None:
    """As those of Molmo 2."""
    config = {"vocab_size": 20, "additional_vocab_size": target.vocab_size - 20}
    assert check_rows(config, target, "the model") == ()


def test_a_special_token_without_a_row_is_noted(target: Tokenizer) -> None:
    (note,) = check_rows({"vocab_size": 31}, target, "the model")
    assert "no embedding for 1 special tokens (<end>)" in note


@pytest.mark.parametrize(
    ("own", "lines", "noted"),
    [(16, (), True), (256, (), False), (16, ("PARAMETER num_ctx 16",), False)],
)
def test_a_draft_that_reads_less_than_its_target_is_noted(
    own: int, lines: tuple[str, ...], noted: bool, tmp_path: Path
) -> None:
    write_model(tmp_path / "target")
    write_model(tmp_path / "draft", num_hidden_layers=1, max_position_embeddings=own)
    (tmp_path / "Modelfile").write_text("\n".join(["FROM ./target", "DRAFT ./draft", *lines]))
    made = modelkit.create(tmp_path / "Modelfile", name="pair", home=tmp_path / "home")
    note = "the draft reads 16 tokens and the model 256; longer texts go undrafted"
    assert (note in made.notes) is noted
