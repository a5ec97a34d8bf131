"""A number ends, however gladly a model goes on with its digits."""

import json
import re
from typing import Any

import pytest

from modelkit.chat.styles.opening import Opening
from modelkit.grammars.answers.shape import shape_of
from modelkit.grammars.compiling.digit_limit import MOST_DIGITS
from modelkit.grammars.compiling.grammar import Grammar
from modelkit.grammars.forms import Form
from runtime.sampling.constraint import allows
from tests.support.styles import style_of
from tests.support.walks import STOP, Words, words_of

BYTES = words_of(None, tokens=False)
NUMBER = {"type": "number"}


def digits_first(words: Words, grammar: Grammar, most: int = 600, first: bytes = b"7.,") -> bytes:
    """What is written by who takes a digit wherever one may come, then what goes on with the number."""
    matcher, ids = grammar.matcher(), list[int]()
    order = [words.letters.index(chr(one)) for one in first]
    while not matcher.ended and len(ids) < most:
        mask = matcher.mask()
        if allows(mask, STOP):
            order = order[:2]
        able = (token for token in [*order, *range(words.size)] if token != STOP and allows(mask, token))
        token = next(able, STOP)
        if token == STOP:
            break
        matcher.advance(token)
        ids.append(token)
    return b"".join(words.tokenizer.bytes_of(one) for one in ids)


def of_schema(schema: Any) -> Grammar:
    return BYTES.grammars.compile(Form("format", "schema", json.dumps(schema)))


def longest(text: bytes) -> int:
    return max(map(len, re.findall(rb"[0-9]+", text)), default=0)


@pytest.mark.parametrize("kind", ["integer", "number"])
@pytest.mark.parametrize(
    "bounds", [{}, {"minimum": 1}, {"exclusiveMaximum": 9.5}, {"multipleOf": 7}], ids=str
)
def test_the_digits_of_a_number_end(kind: str, bounds: dict[str, Any]) -> None:
    text = digits_first(BYTES, of_schema({"type": kind, **bounds}))
    assert 0 < longest(text) <= MOST_DIGITS
    assert json.loads(text) is not None


@pytest.mark.parametrize("name", ["hermes", "lfm2", "gemma4", "qwen3-coder", "glm-4.7", "kimi-k3"])
def test_the_digits_of_a_number_in_a_call_end(name: str) -> None:
    style = style_of(name)
    words = words_of(style, tokens=True)
    tool = {"name": "f", "parameters": {"properties": {"x": NUMBER}, "required": ["x"]}}
    shape = shape_of(style, Opening("call"), [tool], "f")
    assert shape is not None
    assert longest(digits_first(words, words.grammars.shaped(shape))) == MOST_DIGITS


@pytest.mark.parametrize("said", ["1" * 78, "-1.7976931348623157e+308", "5e-324", "18446744073709551615"])
def test_numbers_as_programs_write_them_are_taken(said: str) -> None:
    matcher = of_schema(NUMBER).matcher()
    for letter in said:
        token = BYTES.letters.index(letter)
        assert allows(matcher.mask(), token)
        matcher.advance(token)


@pytest.mark.parametrize(
    ("begun", "digits"),
    [("1e3", "0123456789"), ("1e30", "012345678"), ("17.5E+30", "01234567"), ("1e-99", "0123456789")],
)
def test_an_exponent_is_one_that_a_double_has(begun: str, digits: str) -> None:
    matcher = of_schema(NUMBER).matcher()
    for token in map(BYTES.letters.index, begun):
        matcher.advance(token)
    mask = matcher.mask()
    assert "".join(one for one in "0123456789" if allows(mask, BYTES.letters.index(one))) == digits
    text = digits_first(BYTES, of_schema(NUMBER), first=b"9e,")
    assert json.loads(text) < float("inf")


@pytest.mark.parametrize("schema", [{"type": "string"}, {"type": "string", "pattern": "^[0-9]*$"}], ids=str)
def test_the_digits_of_a_text_are_no_number(schema: dict[str, Any]) -> None:
    assert longest(digits_first(BYTES, of_schema(schema), most=300)) > 200


def test_digits_that_must_come_come() -> None:
    text = digits_first(BYTES, of_schema({"const": 10**120}))
    assert text == b"%d" % 10**120


def test_a_regular_expression_of_digits_is_meant_as_it_is() -> None:
    assert longest(digits_first(BYTES, BYTES.grammars.compile(Form("regex", "regex", "[0-9]*")), 300)) == 300


def test_a_run_goes_on_where_a_matcher_came_back() -> None:
    matcher = of_schema(NUMBER).matcher()
    seven, dot = map(BYTES.letters.index, "7.")
    for _ in range(MOST_DIGITS):
        matcher.advance(seven)
    matcher.advance(dot)
    matcher.back(1)
    assert not allows(matcher.mask(), seven)
    matcher.back(1)
    assert allows(matcher.mask(), seven)
