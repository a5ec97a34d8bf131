"""All answers of a form share what the library has found of its texts; where that is all, they go on."""

import random
from contextlib import nullcontext
from typing import Any

import pytest

from modelkit.chat.styles.opening import Opening
from modelkit.grammars.answers.shape import shape_of
from modelkit.grammars.compiling import matchers
from modelkit.grammars.forms import Form
from runtime.sampling.constraint import ConstraintFault, Matcher, allows
from tests.support.styles import style_of
from tests.support.walks import words_of

WORDS = words_of(None, tokens=False)
A, B, C = (WORDS.letters.index(letter) for letter in "abc")
ANY = Form("regex", "regex", "[ab]*a[ab]{16}c")
"""Each text of so many letters is one more that it finds."""


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[str, Any] = {**matchers.LIMITS, "max_lexer_states": 2_000}
    monkeypatch.setattr(matchers, "LIMITS", limits)


def written(matcher: Matcher, seed: int, length: int) -> list[int]:
    rng = random.Random(seed)
    ids = [rng.choice([A, B]) for _ in range(length)]
    for token in ids:
        assert allows(matcher.mask(), token)
        matcher.advance(token)
    return ids


def test_answers_go_on_where_all_was_found() -> None:
    grammar = WORDS.grammars.compile(ANY)
    first = grammar.matcher()
    begun = written(first, 0, 500)
    for seed in range(1, 9):
        written(grammar.matcher(), seed, 500)
    written(first, 9, 50)  # it knows what it has written
    last = [A, *[B] * 16]
    for token in last:
        first.advance(token)
    assert allows(first.mask(), C)
    first.back(60)
    again = grammar.matcher()
    for token in begun:
        again.advance(token)
    written(again, 9, 7)
    assert again.mask() == first.mask()


def test_an_answer_that_needs_too_much_by_itself_ends() -> None:
    with pytest.raises(ConstraintFault, match="too many states"):
        written(WORDS.grammars.compile(Form("regex", "regex", "[ab]*a[ab]{17}c")).matcher(), 0, 4_000)


def test_where_the_library_breaks_in_one_answer_others_go_on() -> None:
    """Behind a text that is as long as it may be, and the line end in front of its mark, it panics."""
    style = style_of("qwen3-coder")
    words, asked = words_of(style, tokens=True), {"type": "string", "pattern": "b$", "maxLength": 200}
    tool = {"name": "f", "parameters": {"properties": {"id": asked}, "required": ["id"]}}
    shape = shape_of(style, Opening(), [tool], "f")
    assert shape is not None
    grammar = words.grammars.shaped(shape)
    begun = "\n<tool_call>\n<function=f>\n<parameter=id>\n"
    for count, broken in ((198, True), (3, False)):
        text, matcher = f"{'a' * count}b\n", grammar.matcher()
        with pytest.raises(ConstraintFault, match="panic") if broken else nullcontext():
            for token in words.tokenizer.encode(begun + text, add_special=False):
                matcher.advance(token)
            assert any(matcher.mask())
