"""All answers of a form share what the library has found of its texts; where that is all, they go on."""

import random
from typing import Any

import pytest

from modelkit.grammars import native
from modelkit.grammars.forms import Form
from runtime.sampling.constraint import ConstraintFault, Matcher, allows
from tests.support.walks import words_of

WORDS = words_of(None, tokens=False)
A, B, C = (WORDS.letters.index(letter) for letter in "abc")
ANY = Form("regex", "regex", "[ab]*a[ab]{16}c")
"""Each text of so many letters is one more that it finds."""


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[str, Any] = {**native.LIMITS, "max_lexer_states": 2_000}
    monkeypatch.setattr(native, "LIMITS", limits)


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
