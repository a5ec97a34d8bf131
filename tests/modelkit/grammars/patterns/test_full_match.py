"""Patterns of JSON schemas without anchors inside: the same texts, or a sentence on why not."""

import json
import random
import re
from itertools import product
from typing import Any

import pytest

from modelkit.grammars.forms import Form
from modelkit.grammars.patterns.full_match import full_expression
from modelkit.grammars.patterns.syntax import UnsupportedPattern
from modelkit.grammars.rules.llguidance_schema import for_llguidance
from runtime.sampling.constraint import allows
from tests.support.walks import STOP, words_of

TEXTS = ["".join(one) for size in range(4) for one in product("ab,\n", repeat=size)]
ATOMS = [
    "a",
    "b",
    ",",
    "^",
    "$",
    "[ab]",
    "[^a]",
    r"\w",
    ".",
    "(^|,)",
    "(,|$)",
    "(?:a|^b)",
    "(a$|b)",
    "^a",
    "b$",
]


def some_pattern(rng: random.Random, depth: int = 3) -> str:
    chance = rng.random()
    if not depth or chance < 0.35:
        return rng.choice(ATOMS)
    one, other = some_pattern(rng, depth - 1), some_pattern(rng, depth - 1)
    if chance < 0.6:
        return one + other if one not in "^$" or other not in "*+?" else other
    if chance < 0.8:
        return f"({one}|{other})"
    return f"({one})" + rng.choice(["*", "+", "?", "{0,2}", "{2}", "{1,}", "*?"])


def compiled(expression: str) -> re.Pattern[str]:
    """Of the library's dialect, in Python's."""
    return re.compile(re.sub(r"\\x\{(\w+)\}", lambda one: f"\\U{one[1]:>08}", expression))


@pytest.mark.parametrize("seed", range(40))
def test_a_pattern_written_out_fits_the_same_texts(seed: int) -> None:
    pattern = some_pattern(random.Random(seed))
    meant = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    found = {text for text in TEXTS if meant.search(text)}
    try:
        written = compiled(full_expression(pattern))
    except UnsupportedPattern as error:
        why = str(error)
        assert (why, found) == ("it fits no text", set())
        return
    assert {text for text in TEXTS if written.fullmatch(text)} == found


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"a\bb", "it fits no text"),
        (r"\b\p{L}", r"\p{L} is not compared with other characters"),
        (r"\Aa\z", r"`\A` is another language's `^`"),
        (r"a\Z", r"`\Z` is another language's `$`"),
        ("(?=a)", "a look ahead"),
        ("(?<!a)b", "a look back"),
        (r"(a)\1", "a reference to a group"),
        ("(?i)a", "a flag"),
        (r"\q", "means nothing"),
        (r"\ud800", "U+D800 is not a character"),
        (r"\p", "a property of characters"),
        ("a^b", "it fits no text"),
        ("(", "not closed"),
        ("a)", "has not opened"),
        ("[a", "not closed"),
        ("a\\", "ends with a backslash"),
        ("[b-a]", "is empty"),
        ("*a", "nothing in front"),
        ("a**", "is repeated"),
        ("(" * 100, "deep"),
        ("(^|a){20}", "is counted"),
        ("a{3000000000}", "repeated 3000000000 times; at most 2,147,483,647"),
        ("a{1," + "9" * 5_000 + "}", "at most 2,147,483,647"),
        ("(" * 50 + "^|a" + ")*b" * 50, "too many"),
    ],
)
def test_what_no_grammar_can_hold_is_refused_by_name(pattern: str, why: str) -> None:
    with pytest.raises(UnsupportedPattern, match=re.escape(why)):
        full_expression(pattern)


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^\d\s\w\D$", ["1\u00a0_x", "2\ufeffax"], ["1 é-", "²_ax"]),
        (r"^[\w-]+[\b]?$", ["a-b\b"], ["é"]),
        (r"^[\w-.][+-\d]$", ["--", ".7"], ["/1", ".."]),
        (r"^[^\s\d]$", ["é", "\u0085"], ["7", "\u2003"]),
        (r"^\u{1F642}\ud83d\ude42\x41\cJ$", ["🙂🙂A\n"], ["🙂A\n"]),
        ("^[]$|^[^]$", ["a", "\n"], ["", "ab"]),
        (r"^a{,2}[/}\]]$", ["a{,2}/"], ["aa/"]),
        (r"^.$", ["é"], ["\u2028", "\r"]),
        (r"^(?<year>\d{4})-(?:0[1-9])$", ["2024-07"], ["2024-7"]),
    ],
)
def test_escapes_and_classes_are_those_of_the_standard(pattern: str, good: list[str], bad: list[str]) -> None:
    written = compiled(full_expression(pattern))
    assert [text for text in good if not written.fullmatch(text)] == []
    assert [text for text in bad if written.fullmatch(text)] == []


def taken(schema: dict[str, Any], text: str) -> bool:
    """May a whole answer in this form be this text?"""
    words = words_of(None, tokens=False)
    matcher = words.grammars.compile(Form("format", "schema", json.dumps(schema))).matcher()
    for token in words.tokenizer.encode(text, add_special=False):
        if matcher.ended or not allows(matcher.mask(), token):
            return False
        matcher.advance(token)
    return matcher.ended or allows(matcher.mask(), STOP)


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("^.$", ["a", "\u00e9"], [r"\r", r"\n"]),
        ("^[[:a]$", ["[", ":"], ["b"]),
        ("^[a-c&&b]$", ["a", "&"], ["d"]),
        ("^{a}$", ["{a}"], ["a"]),
        (r"^\cA\/$", [r"\u0001/"], ["cA/"]),
        (r"^\s$", [" ", "\u00a0"], ["\x85"]),
        ("(?i)^ab$", ["aB"], ["xab"]),
        (r"\bfoo\b", ["foo", "a foo-b", "\u00e9foo"], ["foos", "_foo", "fo"]),
        (r"^a\B.\b|^\B$", ["ab", "a1-", ""], ["a-", "a", "abc", "-"]),
        (r"^(?!.*\bno\b)[a-z ]+$", ["nor", "a not"], ["no", "a no b"]),
        (r"^(\w+\b\W?){2}[\b]?$", ["a b", "a-b\\b"], ["ab", "a  b", "a b c"]),
    ],
)
def test_a_pattern_means_in_json_what_it_does_to_the_standard(
    pattern: str, good: list[str], bad: list[str]
) -> None:
    schema = {"type": "string", "pattern": pattern}
    assert [text for text in good if not taken(schema, f'"{text}"')] == []
    assert [text for text in bad if taken(schema, f'"{text}"')] == []


def test_json_is_held_to_a_pattern_with_anchors_in_groups() -> None:
    schema = {"type": "string", "pattern": "(^a|b)(c$|d)"}
    assert [text for text in ("ac", "adx", "xbc", "xbdx") if not taken(schema, f'"{text}"')] == []
    assert [text for text in ("xac", "acx", "xad", "xbcx") if taken(schema, f'"{text}"')] == []


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r'^[^"]+$', [r"a\\n\n", "\u00e9"], [r"\"", r"a\"b"]),
        (r"^[^\\]*$", ["", r"\"\n"], [r"\\", r"a\\"]),
        (r'^[^"\\]{2,}$', ["ab", r"\t\t"], [r"a\"", r"\\\\"]),
        (r'^[^"\p{L}]$', ["1", r"\\"], [r"\"", "a"]),
        (r"^([\x00-!#-\x7f]|x)$", ["a", r"\\"], [r"\""]),
        (r'[^"]', ["a", r"\"a"], [r"\""]),
        ("^[^a]+$", [r"\"\\"], ["a"]),
        (r"^[\x00-\x1f]+$", [r"\u0001\n", r"\u001f"], [r"\"", r"\\", r"\n\""]),
        (r"^(?:[\x00-\x0f]|a|[\x10-\x1f])$", [r"\u0010", "a"], [r"\"", r"\\"]),
        (r"^[a\P{P}]$", ["a", "1", r"\n"], [r"\"", r"\\", "."]),
        (r"^\p{Cc}$", [r"\n", "\x85"], [r"\"", r"\\", "a"]),
    ],
)
def test_a_quote_that_a_pattern_forbids_is_not_escaped(pattern: str, good: list[str], bad: list[str]) -> None:
    schema = {"type": "string", "pattern": pattern}
    assert [text for text in good if not taken(schema, f'"{text}"')] == []
    assert [text for text in bad if taken(schema, f'"{text}"')] == []


@pytest.mark.parametrize(
    ("bounds", "good", "bad"),
    [
        ({"exclusiveMinimum": 0, "maximum": 0.5}, ["0.1", "0.5"], ["0", "0.0", "-0", "0.51"]),
        ({"exclusiveMinimum": 2, "exclusiveMaximum": 2.5}, ["2.1"], ["2", "2.0", "2.5"]),
        ({"exclusiveMinimum": 100, "maximum": 100.5}, ["100.25"], ["100"]),
        ({"minimum": -0.5, "exclusiveMaximum": 0}, ["-0.1", "-0.5"], ["0", "-0", "-0.6"]),
        ({"allOf": [{"exclusiveMinimum": 0}, {"maximum": 0.5}]}, ["0.1"], ["0"]),
        ({"exclusiveMinimum": 0, "minimum": 0.2, "maximum": 0.5}, ["0.2"], ["0", "0.1"]),
        ({"exclusiveMinimum": 0}, ["0.1", "7"], ["0", "-1"]),
        ({"exclusiveMaximum": 1, "minimum": 0}, ["0", "0.99"], ["1"]),
        ({"exclusiveMinimum": 1, "maximum": 1.95, "exclusiveMaximum": 100}, ["1.5"], ["1"]),
        ({"exclusiveMinimum": 0, "maximum": 9, "allOf": [{"maximum": 0.5}]}, ["0.1"], ["0"]),
    ],
    ids=str,
)
def test_a_bound_that_is_left_out_is_no_value(
    bounds: dict[str, Any], good: list[str], bad: list[str]
) -> None:
    schema = {"type": "number", **bounds}
    assert [text for text in good if not taken(schema, text)] == []
    assert [text for text in bad if taken(schema, text)] == []


@pytest.mark.parametrize(
    ("bounds", "good", "bad"),
    [
        ({"maximum": 0.95}, ["0.9", "0.95", "-7.5"], ["0.96", "1"]),
        ({"exclusiveMinimum": -1.255, "maximum": 5}, ["-1.2", "-1.25", "1.2"], ["-1.255", "-1.3"]),
        ({"minimum": 0.5, "exclusiveMaximum": 0.59}, ["0.5", "0.58"], ["0.4", "0.59"]),
        ({"minimum": 0.91, "maximum": 0.95}, ["0.93"], ["0.9"]),
        ({"maximum": 0.95, "multipleOf": 0.25}, ["0.75", "0.50"], ["0.9", "0.95"]),
        ({"allOf": [{"maximum": 0.95}, {"minimum": 0.8}]}, ["0.9"], ["0.7"]),
        ({"oneOf": [{"maximum": 0.95}, {"type": "null"}]}, ["0.9"], ["0.96", "null"]),
    ],
    ids=str,
)
def test_a_number_may_begin_the_digits_of_its_bound(
    bounds: dict[str, Any], good: list[str], bad: list[str]
) -> None:
    schema = {"type": "number", **bounds}
    assert [text for text in good if not taken(schema, text)] == []
    assert [text for text in bad if taken(schema, text)] == []


NAMED = {"properties": {"a": {"type": "integer"}}, "additionalProperties": True}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({}, [r'"\u00e9"', r'{"\u2019": "\ud83d\ude00"}'], [r'"\ud83d"', r'"\ude00"']),
        ({"maxLength": 1}, ['"\u00e9"', r'"\u00e9"', r'"\ud83d\ude00"'], [r'"\u00e9\u00e9"']),
        ({"pattern": "^.$"}, ['"\u00e9"', r'"\t"'], [r'"\u0019"', r'"\u007f"', r'"\u00e9"']),
        ({"pattern": r"^[^\p{Lu}]$"}, ['"\u00e9"', r'"\n"'], [r'"\u0019"', '"A"', r'"\u0041"']),
        ({"enum": ["\u00e9"]}, ['"\u00e9"'], [r'"\u00e9"']),
        (NAMED, ['{"a": 1, "b": "\u00e9"}'], [r'{"\u0061": "x"}', r'{"b": "\u0019"}']),
    ],
    ids=str,
)
def test_a_number_in_a_text_is_its_character_s(
    schema: dict[str, Any], good: list[str], bad: list[str]
) -> None:
    """Of `\\u2019` a model would get to `\\u0019` where only control characters have numbers."""
    assert [text for text in good if not taken(schema, text)] == []
    assert [text for text in bad if taken(schema, text)] == []


@pytest.mark.parametrize(
    "schema",
    [{"const": "\x1b"}, {"enum": ["\x1b", "\x7f"]}, {"pattern": r"^\x1b$"}, {"pattern": r"^[\cA-\x1e]$"}],
    ids=str,
)
def test_a_control_character_that_a_schema_names_is_written(schema: dict[str, Any]) -> None:
    assert taken(schema, r'"\u001b"')


def test_only_patterns_are_written_out() -> None:
    inner = "(^a|b)c"
    kept = {"properties": {"pattern": {"const": {"pattern": inner}}}, "pattern": "(?i)a", "enum": [inner]}
    assert for_llguidance(kept) is kept
    written = for_llguidance({"patternProperties": {inner: {"items": [{"pattern": inner}]}}})
    ((name, value),) = written["patternProperties"].items()
    assert name == value["items"][0]["pattern"] == f"^({full_expression(inner)})$"
