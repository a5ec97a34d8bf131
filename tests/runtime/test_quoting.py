"""What messages show of texts and values from outside."""

import tracemalloc
from typing import Any

import pytest

from runtime.quoting import MOST_SHOWN, quoted, sentence, shown

HIDDEN = {
    "an escape sequence": "\x1b[2J",
    "a line end": "\n",
    "another direction": "\u202e",
    "no width": "\u200b",
    "a Hangul filler": "\u3164",
    "a variation selector": "\ufe0f",
    "a tag": "\U000e0041",
    "half a surrogate pair": "\udc80",
}

LONG: dict[str, Any] = {
    "a text": "x" * 1_000_000,
    "a text of escapes": "\x1b" * 1_000_000,
    "bytes": b"x" * 1_000_000,
    "a list": ["x" * 1000] * 100_000,
    "an object": {f"key {i}": i for i in range(100_000)},
    "a name in an object": {"k" * 1_000_000: "v" * 1_000_000},
    "lists in lists": [[[[]]]] * 1_000_000,
    "a number": 10**5000,
    "an object of no known kind": object(),
}


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN)
@pytest.mark.parametrize("write", [shown, quoted], ids=["shown", "quoted"])
def test_what_hides_is_an_escape(write: Any, text: str) -> None:
    assert text.encode("unicode_escape").decode() in write(f"a{text}b")


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN)
def test_a_sentence_has_nothing_that_hides(text: str) -> None:
    assert text not in sentence(f"a{text}b")


@pytest.mark.parametrize("write", [shown, quoted, sentence], ids=["shown", "quoted", "sentence"])
def test_letters_stay_as_they_are_beside_what_hides(write: Any) -> None:
    assert "日本" in write("日本\x00")
    assert "é" in write("é\x00")


@pytest.mark.parametrize("value", LONG.values(), ids=LONG)
def test_a_value_is_short_whatever_its_size(value: Any) -> None:
    assert len(quoted(value)) <= MOST_SHOWN


def test_a_long_text_is_quoted_by_its_beginning_and_its_end() -> None:
    found = quoted(f"begin{'x' * 1000}end")
    assert found.startswith("'begin")
    assert found.endswith("end'")


def test_a_long_text_is_shown_with_its_length() -> None:
    assert shown("x" * 1000) == f"{'x' * MOST_SHOWN}… (1,000 characters)"


def test_a_long_sentence_is_cut() -> None:
    assert sentence("so it is " * 1000).endswith("...")
    assert len(sentence("so it is " * 1000)) < 600


def test_a_sentence_stands_on_one_line() -> None:
    assert sentence("  an error:\n\n\tno such file ") == "an error: no such file"


def test_nesting_is_shown_two_levels_deep() -> None:
    assert quoted([[[["deep"]]]]) == "[[[...]]]"


def test_plain_values_are_in_pythons_notation() -> None:
    assert [quoted(one) for one in (None, True, 1.5, -3, "it's", {"a": [1]})] == [
        "None",
        "True",
        "1.5",
        "-3",
        '"it\'s"',
        "{'a': [1]}",
    ]


def test_no_code_of_a_value_is_called() -> None:
    class Loud(str):
        __slots__ = ()

        def __repr__(self) -> str:
            raise AssertionError

        __str__ = __len__ = __iter__ = __hash__ = __repr__  # pyright: ignore[reportAssignmentType]

    assert quoted(Loud("x")) == "a Loud"
    assert quoted([Loud("x")]) == "[a Loud]"


def test_a_large_object_is_not_copied() -> None:
    large = dict.fromkeys(range(1_000_000))
    tracemalloc.start()
    try:
        quoted(large)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
