from pathlib import Path

import pytest

from modelkit.errors import PlanError
from modelkit.pack.draft import check_draft, check_rows
from modelkit.tokenizer import Tokenizer, load_tokenizer


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


def test_a_special_token_without_a_row_is_noted(target: Tokenizer) -> None:
    (note,) = check_rows({"vocab_size": 31}, target, "the model")
    assert "no embedding for 1 special tokens (<end>)" in note
