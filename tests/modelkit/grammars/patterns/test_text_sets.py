"""Patterns that are compared: an automaton takes what its pattern is found in, and the rest is another."""

import json
import random
import re
from contextlib import suppress

import pytest

from modelkit.errors import RequestError
from modelkit.grammars.compiling.matchers import check
from modelkit.grammars.forms import Form
from modelkit.grammars.patterns.automata import (
    WorkLimit,
    accepts,
    accepts_any,
    complement,
    of_length,
)
from modelkit.grammars.patterns.determinizing import automaton_of
from modelkit.grammars.patterns.elimination import pattern_of
from modelkit.grammars.patterns.formats import FORMATS
from modelkit.grammars.patterns.full_match import full_expression
from modelkit.grammars.patterns.syntax import UnsupportedPattern
from modelkit.grammars.patterns.text_sets import TextSets, pattern_for
from tests.modelkit.grammars.rewriting.test_conditions import grammar_of, taken
from tests.support.effort import at_most

LETTERS = "abx-@\n"


def some_pattern(rng: random.Random, depth: int = 3) -> str:
    if depth == 0 or rng.random() < 0.3:
        return rng.choice(["a", "b", "[^a]", "[ab]", ".", "x", "^", "$", r"\n", "[^]", "ab"])
    inner = [some_pattern(rng, depth - 1) for _ in range(2)]
    match rng.choice(["chain", "chain", "choice", "times"]):
        case "chain":
            return "".join(inner)
        case "choice":
            return f"(?:{'|'.join(inner)})"
        case _:
            return f"(?:{inner[0]})" + rng.choice(["*", "+", "?", "{2}", "{1,3}", "{2,}"])


def found(pattern: str, text: str) -> bool:
    """As Python has it."""
    python = re.sub(r"\\u\{([0-9a-f]+)\}", lambda code: rf"\U{code[1]:>08}", pattern)
    python = python.replace("[^]", r"[\s\S]").replace("$", r"\Z").replace(".", r"[^\n]")
    return re.search(python, text) is not None


@pytest.mark.parametrize("seed", range(40))
def test_an_automaton_takes_what_its_pattern_is_found_in_and_the_rest_is_another(seed: int) -> None:
    rng = random.Random(seed)
    pattern = some_pattern(rng)
    one = automaton_of(pattern, WorkLimit())
    texts = ["", *("".join(rng.choices(LETTERS, k=rng.randint(1, 6))) for _ in range(80))]
    expected = [found(pattern, text) for text in texts]
    assert [accepts(one, text) for text in texts] == expected
    other = complement(one)
    if not accepts_any(other):
        assert all(expected)
        return
    assert [found(pattern_of(other), text) for text in texts] == [not one for one in expected]
    if accepts_any(one):
        assert [found(pattern_of(one), text) for text in texts] == expected


LONG = {"email", "hostname", "ipv6", "ipvanyaddress", "uri"}


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - LONG))
def test_what_is_no_format_has_a_pattern(name: str) -> None:
    texts = TextSets()
    other = texts.other_than(pattern_for(name), {})
    assert other
    assert texts.any_of({"pattern": [other]})
    assert not texts.any_of({"pattern": [other], "format": [name]})


def test_what_others_say_is_not_needed() -> None:
    texts = TextSets()
    assert texts.needed(["^a", "^ab", "b"]) == ["^ab"]
    assert texts.needed(["^a", "b$", "(?=x)"]) == ["^a", "b$", "(?=x)"]
    assert texts.other_than("^b", {"pattern": ["^a"]}) == ""
    assert texts.other_than("^a", {"pattern": ["^ab"]}) is None
    assert texts.among(["a", "b", 1, "\ud800"], {"pattern": ["^a$"]}) == ["a", 1]


def test_lengths_are_compared_with_patterns() -> None:
    assert accepts(of_length(1, 2), "ab")
    assert not accepts(of_length(1, 2), "abc")
    assert accepts(of_length(2, None), "abc")
    assert not TextSets().any_of({"pattern": ["^a{3}$"], "maxLength": 2})
    assert TextSets().any_of({"pattern": ["^a{3}$"], "minLength": 3})


LOOKING: list[tuple[str, list[str], list[str]]] = [
    (  # pydantic's Decimal
        r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$",
        ["1.5", "+0.5", "5.", "0"],
        ["", "-", ".", "x", "1.5.2"],
    ),
    (r"^(?=.*[A-Z])(?=.*\d)[A-Za-z\d]{8,}$", ["Abcdefg1"], ["abcdefg1", "Abcdefgh", "Ab1"]),
    ("^(?!con$|aux$)[a-z]{1,9}$", ["cons", "a"], ["con", "aux", ""]),
    (r"^(?!.*--)(?:[a-z-]|[(\])])+$", ["a-b", "(])"], ["a--b"]),
    ("^(?=a)", ["a", "ab"], ["", "ba"]),
]


@pytest.mark.parametrize(("pattern", "good", "bad"), LOOKING)
def test_a_pattern_may_look_ahead_from_its_beginning_on(
    pattern: str, good: list[str], bad: list[str]
) -> None:
    assert [re.search(pattern.replace("$", r"\Z"), text) is not None for text in (*good, *bad)] == [
        *[True] * len(good),
        *[False] * len(bad),
    ]
    one = automaton_of(pattern, WorkLimit())
    assert [accepts(one, text) for text in (*good, *bad)] == [*[True] * len(good), *[False] * len(bad)]
    grammar = grammar_of({"type": "string", "pattern": pattern})
    assert [text for text in good if not taken(grammar, text)] == []
    assert [text for text in bad if taken(grammar, text)] == []


@pytest.mark.parametrize(
    "pattern", ["^(?!x)a|b$", "a(?!b)", "^(?=a)*b", "^(?=a", "^a(?=b)b$", "^(?!a)(?<!b)c"]
)
def test_other_looks_are_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedPattern):
        full_expression(pattern)


def test_many_patterns_that_look_ahead_are_refused() -> None:
    properties = {f"p{number}": {"pattern": f"^(?!{number}).*a[^]{{14}}$"} for number in range(65)}
    with pytest.raises(RequestError, match="65 patterns that look around; at most 64 are written out"):
        check(Form("format", "schema", json.dumps({"properties": properties})))


HOSTILE = [
    "^([a-z]{1,40}){1,40}$",
    "^(a?){900}a{900}$",
    "^[^]*a[^]{14}$",
    "(a|b|c|d|e)*" * 400,
    "(((((a{9}){9}){9}){9}){9}){9}",
    "[\u0001-\uffff]{1,900}b{900}",
    "^" + "".join(f"[^{chr(97 + place % 26)}]?" for place in range(600)) + "$",
    "^(?:" + "|".join(f"{place * 7919:x}" for place in range(3_000)) + ")+$",
]


def test_hostile_patterns_end_in_a_moment() -> None:
    """Together they have what a moment's looks are: the rest is not looked through."""
    texts = TextSets()
    with at_most(10):
        for pattern in HOSTILE * 8:
            texts.any_of({"pattern": [pattern, f"{pattern}b"]})
            with suppress(UnsupportedPattern):
                texts.other_than(pattern, {"pattern": ["^b"]})


def test_a_property_of_characters_is_not_compared() -> None:
    with pytest.raises(UnsupportedPattern, match=r"\\p\{L\} is not compared"):
        automaton_of(r"\p{L}", WorkLimit())
