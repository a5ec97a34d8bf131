"""Prompts for the middle of a text."""

from pathlib import Path

import pytest

from modelkit.tokenizer import Tokenizer, load_tokenizer
from modelkit.tokenizer.infill import ROWS, Marks, infill
from tests.modelkit.tokenizer.small import added, byte_level, folder_files, template, write


def with_marks(folder: Path, row: Marks, **parts: object) -> Tokenizer:
    document = byte_level(**parts)
    first = len(document["model"]["vocab"])
    document["added_tokens"] += [added(mark, first + place) for place, mark in enumerate(row.written)]
    write(folder, tokenizer=document, tokenizer_config={"bos_token": "<s>"})
    return load_tokenizer(folder_files(folder))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.before)
def test_every_row_asks_with_its_own_tokens(tmp_path: Path, row: Marks):
    tokenizer = with_marks(tmp_path, row)
    ids = infill(tokenizer, "ab", "cd")
    asked = f"{row.before}ab{row.behind}cd{row.gap}" if row.gap else f"{row.behind}cd{row.before}ab"
    assert ids is not None
    assert b"".join(tokenizer.bytes_of(one) for one in ids) == asked.encode()


def test_a_prompt_begins_as_the_model_expects(tmp_path: Path):
    tokenizer = with_marks(tmp_path, ROWS[0], post_processor=template())
    ids = infill(tokenizer, "a", "")
    assert ids is not None
    assert ids[0] == tokenizer.bos_id


def test_a_vocabulary_without_such_tokens_cannot(tmp_path: Path):
    write(tmp_path, tokenizer=byte_level())
    assert infill(load_tokenizer(folder_files(tmp_path)), "a", "b") is None
