"""Texts that may be far too long are read no further than it takes to know."""

from types import SimpleNamespace
from typing import Any

import pytest

from modelkit.errors import ModelkitError
from modelkit.interest import Interest
from modelkit.tokenizer.long_texts import PIECE_CHARS, tokens_of


def words(text: str, *, add_special: bool) -> list[int]:
    return [1] * add_special + [len(word) for word in text.split()]


TOKENIZER: Any = SimpleNamespace(encode=words)


@pytest.mark.parametrize("most", [None, 100])
@pytest.mark.parametrize(
    "text",
    ["a short one", "a " * 101, " " * (3 * PIECE_CHARS), "a" * 9 * PIECE_CHARS, ("a" + " " * 8000) * 105],
)
def test_what_is_not_far_too_long_is_read_whole(text: str, most: int | None) -> None:
    tokens = tokens_of(TOKENIZER, text, most, add_special=True)
    assert list(tokens.ids) == words(text, add_special=True)
    assert tokens.whole


@pytest.mark.parametrize("pieces", [1, 7, 7.5])
def test_what_is_far_too_long_is_judged_by_its_beginning(pieces: float) -> None:
    text = "word " * int(pieces * PIECE_CHARS / 5)
    tokens = tokens_of(TOKENIZER, text, 1000)
    assert 1000 < len(tokens.ids) <= PIECE_CHARS / 5 + 1
    assert not tokens.whole
    assert tokens.count == pytest.approx(len(text) / 5, rel=0.01)


def test_nobody_waits_for_a_text_that_has_begun() -> None:
    interest, read = Interest(), list[int]()

    def left(text: str, *, add_special: bool) -> list[int]:
        read.append(len(text))
        interest.end()
        return words(text, add_special=add_special)

    tokenizer: Any = SimpleNamespace(encode=left)
    with pytest.raises(ModelkitError, match="nobody waits"):
        interest.work(lambda: tokens_of(tokenizer, " " * (3 * PIECE_CHARS), 1000))
    assert read == [PIECE_CHARS]
