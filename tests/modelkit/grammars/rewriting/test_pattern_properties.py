"""What is said of names, and references in circles, hold as `jsonschema` has them."""

import json
import random
from typing import Any

import jsonschema
import pytest

from modelkit.chat.styles.opening import Opening
from modelkit.errors import RequestError
from modelkit.grammars.answers.shape import shape_of
from modelkit.grammars.compiling.matchers import check
from modelkit.grammars.forms import Form
from runtime.sampling.constraint import allows
from tests.modelkit.grammars.rewriting.test_conditions import NUMBER, TEXT, WORDS, grammar_of, of, taken
from tests.support.answers import collected
from tests.support.styles import style_of
from tests.support.walks import events_of, walk, words_of

AGAIN = {"$ref": "#/$defs/N"}


def circle(inner: dict[str, Any]) -> dict[str, Any]:
    return {"$defs": {"N": {**of("v", v=NUMBER, n=inner), "additionalProperties": False}}, **AGAIN}


CASES: dict[str, tuple[dict[str, Any], list[Any], list[Any]]] = {
    "patterns that overlap": (
        {
            "type": "object",
            "patternProperties": {"^a": NUMBER, "b$": {"maximum": 3}},
            "additionalProperties": True,
        },
        [{"ab": 2}, {"a": 5}, {"xb": "s"}, {"q": None}],
        [{"ab": 5}, {"ab": "s"}, {"a": "s"}, {"xb": 5}],
    ),
    "three of them, and a name": (
        {
            "type": "object",
            "properties": {"abc": TEXT},
            "patternProperties": {"a": {"minLength": 1}, "b": {"minLength": 2}, "c": {"minLength": 3}},
            "additionalProperties": False,
        },
        [{"abc": "xyz"}, {"a": "x"}, {"ab": "xy"}, {"cb": "xyz"}, {"a": 1}],
        [{"abc": 1}, {"abc": "xy"}, {"ab": "x"}, {"q": 1}, {"c": "xy"}],
    ),
    "patterns of a few names": (
        {
            "type": "object",
            "properties": {"b": {"minimum": 1}},
            "patternProperties": {"^(a|b)$": NUMBER, "^c": TEXT},
            "additionalProperties": False,
            "maxProperties": 3,
        },
        [{}, {"b": 1, "a": 0}, {"a": 0, "c": "x"}, {"b": 1, "a": 0, "cc": "x"}],
        [{"b": 0}, {"a": "x"}, {"d": 1}, {"b": 1, "a": 0, "c": "x", "cc": "x"}],
    ),
    "a pattern of one name beside others": (
        {"patternProperties": {"^a$": NUMBER}, **of("a"), "additionalProperties": True},
        [{"a": 1}, {"a": 1, "b": "x"}],
        [{}, {"a": "x"}, {"b": 1}],
    ),
    "names beside a pattern": (
        {
            "type": "object",
            "patternProperties": {"^a": NUMBER},
            "propertyNames": {"maxLength": 2},
            "additionalProperties": TEXT,
        },
        [{"a": 1, "ab": 2}, {"x": "s"}],
        [{"abc": 1}, {"x": 1}, {"xyz": "s"}],
    ),
    "names beside properties": (
        {
            **of("id", id=NUMBER, Bad=NUMBER),
            "propertyNames": {"pattern": "^[a-z]+$"},
            "additionalProperties": TEXT,
        },
        [{"id": 1}, {"id": 1, "x": "s"}],
        [{"x": "s"}, {"id": 1, "Bad": 1}, {"id": 1, "X": "s"}, {"id": "s"}],
    ),
    "a name of no pattern must be there": (
        {**of("Id", Id=NUMBER), "type": ["object", "null"], "propertyNames": {"pattern": "^[a-z]+$"}},
        [None],
        [{"Id": 1}, {}],
    ),
    "several things of names": (
        {"type": "object", "propertyNames": {"minLength": 2, "pattern": "^x", "not": {"const": "xy"}}},
        [{}, {"xx": 1}, {"xyz": 1}],
        [{"x": 1}, {"xy": 1}, {"yy": 1}],
    ),
    "choices of names": (
        {
            "type": "object",
            "propertyNames": {"anyOf": [{"enum": ["a", "b"]}, {"pattern": "^x-"}]},
            "additionalProperties": NUMBER,
        },
        [{"a": 1, "x-b": 2}],
        [{"c": 1}, {"x-": "s"}],
    ),
    "names that are not listed": (
        {"type": "object", "propertyNames": {"not": {"enum": ["a", "b"]}}},
        [{"c": 1}, {"ab": 1}],
        [{"a": 1}],
    ),
    "no names": ({"type": "object", "propertyNames": False}, [{}], [{"a": 1}]),
    "open ways by patterns of names": (
        {
            "oneOf": [
                {
                    **of("k", k={"const": 1}),
                    "patternProperties": {"^a": NUMBER},
                    "additionalProperties": False,
                },
                {**of("k", k={"const": 2}, b=TEXT), "additionalProperties": False},
            ]
        },
        [{"k": 1, "a1": 3}, {"k": 2, "b": "x"}],
        [{"k": 2, "a1": 3}, {"k": 1, "b": "x"}],
    ),
    "a condition beside patterns of names": (
        {
            **of(a=NUMBER, b=NUMBER),
            "patternProperties": {"^x-": TEXT},
            "additionalProperties": False,
            "dependentRequired": {"a": ["b"], "b": ["x-y"]},
        },
        [{"x-q": "s"}, {"a": 1, "b": 1, "x-y": "s"}],
        [{"a": 1}, {"a": 1, "b": 1}, {"x-q": 1}, {"b": 1, "x-y": 1}],
    ),
    "a type beside a circle": (
        circle({**AGAIN, "type": "object", "minProperties": 1}),
        [{"v": 1}, {"v": 1, "n": {"v": 1, "n": {"v": 2}}}],
        [{"v": 1, "n": 1}, {"v": 1, "n": {"v": 1, "n": {"v": "x"}}}],
    ),
    "a remark of no draft beside a circle": (
        circle({**AGAIN, "x-order": 1, "description": "d", "enumNames": ["a"]}),
        [{"v": 1, "n": {"v": 1}}],
        [{"v": 1, "n": {"v": "x"}}],
    ),
    "a choice with a remark in a circle": (
        circle({"x-order": 1, "anyOf": [AGAIN, {"type": "array", "items": {**AGAIN, "type": "object"}}]}),
        [{"v": 1, "n": {"v": 1}}, {"v": 1, "n": [{"v": 1, "n": []}]}],
        [{"v": 1, "n": [1]}, {"v": 1, "n": {"v": 1, "n": 2}}],
    ),
    "a choice beside a type in a circle": (
        circle({"anyOf": [AGAIN, {"type": "null"}], "type": ["object", "null"]}),
        [{"v": 1, "n": None}, {"v": 1, "n": {"v": 1, "n": None}}],
        [{"v": 1, "n": []}, {"v": 1, "n": {}}],
    ),
    "two that refer to each other": (
        {
            "$defs": {
                "A": {
                    "properties": {"b": {"$ref": "#/$defs/B", "type": "object"}},
                    "additionalProperties": False,
                },
                "B": {
                    "properties": {"a": {"$ref": "#/$defs/A", "type": "object"}},
                    "additionalProperties": False,
                },
            },
            "$ref": "#/$defs/A",
            "type": "object",
        },
        [{}, {"b": {"a": {"b": {}}}}],
        [{"a": {}}, {"b": {"b": {}}}, {"b": {"a": 1}}],
    ),
    "a circle by a name and its pattern": (
        {
            "$defs": {
                "N": {"type": "object", "properties": {"k": AGAIN}, "patternProperties": {"^k": AGAIN}}
            },
            **AGAIN,
        },
        [{}, {"k": {"k2": {}}}],
        [{"k": 1}, {"k2": {"k": 1}}],
    ),
    "schemas where no draft has any": (
        {
            "components": {
                "schemas": {
                    "P": {
                        **of(
                            c={**TEXT, "format": "color-hex"},
                            k={**TEXT, "oneOf": [{"pattern": "^a"}, {"pattern": "b$"}]},
                            n={"$ref": "#/components/schemas/P"},
                        ),
                        "additionalProperties": False,
                    }
                }
            },
            "$ref": "#/components/schemas/P",
        },
        [{"c": "x"}, {"k": "a"}, {"n": {"k": "b"}}],
        [{"k": "ab"}, {"n": {"k": "ab"}}],
    ),
    "definitions in groups": (
        {"definitions": {"g": {"P": {**NUMBER, "not": {"const": 1}}}}, "$ref": "#/definitions/g/P"},
        [2],
        [1],
    ),
    "a definition with blanks and brackets": (
        {"$defs": {"My [T] é<int>": NUMBER}, "$ref": "#/$defs/My [T] é<int>"},
        [1],
        ["x"],
    ),
}


ONE = {"patternProperties": {"^c$": NUMBER}, "additionalProperties": False}
ALL_WRITTEN: list[dict[str, Any]] = [
    {"type": "object", "required": ["c"], **ONE},
    {**of(c=NUMBER), "$ref": "#/$defs/O", "$defs": {"O": ONE}},
    {**of("c", b=TEXT), "anyOf": [{"patternProperties": {"^[bc]$": NUMBER}, "additionalProperties": False}]},
]


@pytest.mark.parametrize("schema", ALL_WRITTEN)
def test_behind_all_names_of_a_pattern_none_is_begun(schema: dict[str, Any]) -> None:
    """A comma could only be followed by nothing."""
    matcher = grammar_of(schema).matcher()
    for byte in b'{"c":1':
        matcher.advance(WORDS.letters.index(chr(byte)))
    assert not allows(matcher.mask(), WORDS.letters.index(","))


@pytest.mark.parametrize("case", CASES)
def test_what_is_valid_is_allowed_and_nothing_else(case: str) -> None:
    schema, good, bad = CASES[case]
    validator = jsonschema.Draft202012Validator(schema)
    assert [value for value in (*good, *bad) if validator.is_valid(value)] == good
    grammar = grammar_of(schema)
    assert [value for value in good if not taken(grammar, value)] == []
    assert [value for value in bad if taken(grammar, value)] == []


PATTERNS = ["^a", "b$", "^[ab]+$", "c", "^.$", "^a?b", "^$"]
NAMES = ["", "a", "b", "ab", "ba", "c", "abc", "bb", "x"]


@pytest.mark.parametrize("seed", range(16))
def test_any_names_hold(seed: int) -> None:
    rng = random.Random(seed)
    some: list[Any] = [NUMBER, TEXT, {"minimum": 2}, {"maxLength": 1}, True, False]
    schema: dict[str, Any] = {
        "type": "object",
        "patternProperties": {one: rng.choice(some) for one in rng.sample(PATTERNS, rng.randint(0, 3))},
        "properties": {one: rng.choice(some) for one in rng.sample(NAMES[1:4], rng.randint(0, 2))},
        "additionalProperties": rng.choice([*some, True]),
    }
    if rng.random() < 0.7:
        listed = {"enum": rng.sample(NAMES, 4)}
        sized, pattern = {"maxLength": 2}, {"pattern": rng.choice(PATTERNS)}
        schema["propertyNames"] = rng.choice(
            [pattern, {**pattern, **sized}, {"not": listed}, {"anyOf": [listed, sized]}]
        )
    validator = jsonschema.Draft202012Validator(schema)
    grammar = grammar_of(schema)
    values = [{name: value} for name in NAMES for value in (1, 3, "x", "xy")]
    assert [taken(grammar, value) for value in values] == [validator.is_valid(value) for value in values]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#", "type": "object"},
        {"$defs": {"N": {**AGAIN, "type": "object"}}, **AGAIN},
        {**of(a=AGAIN), "$defs": {"N": AGAIN}},
        {**of("a", a=AGAIN), "$defs": {"N": {"allOf": [{"$ref": "#/$defs/M"}]}, "M": AGAIN}},
    ],
)
def test_a_reference_that_stands_for_itself_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="stands for itself and for nothing else"):
        check(Form("format", "schema", json.dumps(schema)))


def test_names_that_take_too_long_to_tell_apart_are_refused() -> None:
    names = {"pattern": "^([^]*a[^]{9})$"}
    schema = {
        "type": "object",
        "propertyNames": names,
        "patternProperties": {"^([a-z]{1,40}){1,40}$": NUMBER},
    }
    with pytest.raises(RequestError, match="no grammar holds `propertyNames`"):
        check(Form("format", "schema", json.dumps(schema)))


@pytest.mark.parametrize("name", ["qwen3-coder", "kimi-k3", "gemma4"])
def test_a_listed_name_has_what_patterns_say_in_calls(name: str) -> None:
    style = style_of(name)
    words = words_of(style, tokens=True)
    schema = {
        **of("abc", abc=NUMBER),
        "patternProperties": {"^a": {"maximum": 5}},
        "additionalProperties": False,
    }
    asked = [{"name": "f", "parameters": schema, "strict": True}]
    shape = shape_of(style, Opening(), asked, "f")
    assert shape is not None
    grammar, called = words.grammars.shaped(shape), 0
    for seed in range(4):
        ids, whole = walk(words, grammar.matcher(), random.Random(seed), most=400)
        for call in (
            collected(events_of(style, Opening(), asked, words.pieces(ids))).tool_calls if whole else ()
        ):
            jsonschema.validate(dict(call.arguments), schema)
            called += 1
    assert called > 1
