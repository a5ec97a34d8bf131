"""No schema is narrowed in silence: what is valid is taken, or a note says that some of it is not."""

import json
import sys
from typing import Any

import jsonschema
import pytest

from modelkit.grammars.compiling.grammar import Grammar
from modelkit.grammars.forms import Form
from tests.support.walks import takes, words_of

WORDS = words_of(None, tokens=False)
WHOLE, NUMBER, TEXT = {"type": "integer"}, {"type": "number"}, {"type": "string"}
LIST, OBJECT = {"type": "array"}, {"type": "object"}
ODD = {**WHOLE, "not": {"multipleOf": 2}}
HAS_ONE = {**LIST, "contains": {"const": 1}}
SEVEN = dict.fromkeys("abcdefg", WHOLE)
DOUBLE = sys.float_info.max
ITEMS, NAMES, BITS = "of the first 16", "of any name", "beyond 64 bits"

LESS: dict[str, tuple[dict[str, Any], list[Any], list[Any], str]] = {
    "odd numbers": (ODD, [3, -15], [21, -999], "not a multiple of 2"),
    "within another": (
        {**OBJECT, "properties": {"a": ODD, "b": TEXT}, "dependentRequired": {"b": ["a"]}},
        [{"a": 1, "b": ""}],
        [{"a": 21, "b": ""}],
        "(#/properties/a)",
    ),
    "in a condition that is written anew": (
        {
            **OBJECT,
            "properties": {"a": TEXT, "b": TEXT},
            "if": {"properties": {"a": {"const": ""}}},
            "then": {"properties": {"b": True, "c": ODD}},
            "additionalProperties": True,
        },
        [{"a": "", "c": 1}],
        [{"a": "", "c": 21}],
        "(#/then/properties/c)",
    ),
    "by a reference": (
        {"$defs": {"A": {**LIST, "items": {"anyOf": [ODD, {"$ref": "#/$defs/A"}]}}}, "$ref": "#/$defs/A"},
        [[[1]]],
        [[[21]]],
        "not a multiple of 2",
    ),
    "fractions": ({**NUMBER, "not": WHOLE}, [0.5], [100.5], "not a multiple of 1,"),
    "fractions among others": ({"type": ["number", "string"], "not": WHOLE}, ["x"], [0.5], "no number"),
    "one of two": (
        {"oneOf": [{**WHOLE, "multipleOf": 3}, {**WHOLE, "multipleOf": 5}]},
        [9, 10],
        [999],
        "not a multiple of 5",
    ),
    "contains": (HAS_ONE, [[0, 1]], [[0] * 16 + [1]], ITEMS),
    "contains, or a short one": (
        {"if": HAS_ONE, "then": {"minItems": 2}, **LIST},
        [[0], [0, 1]],
        [[0] * 16 + [1]],
        ITEMS,
    ),
    "an item that does not fit": ({**LIST, "not": {"items": WHOLE}}, [[1, ""]], [[1] * 16 + [""]], ITEMS),
    "a property that does not": (
        {**OBJECT, "not": {"additionalProperties": TEXT}},
        [{"a": 1}],
        [{"a": "", "b": 1}],
        NAMES,
    ),
    "a name that does not": (
        {**OBJECT, "not": {"propertyNames": {"pattern": "^x"}}},
        [{"y": 1}],
        [{"x": 1, "y": 1}],
        NAMES,
    ),
    "far bounds": ({**NUMBER, "maximum": 1e30}, [1e15], [1e25], BITS),
    "far bounds of whole numbers": (
        {**WHOLE, "minimum": 0, "maximum": 2**64 - 1},
        [2**63 - 1],
        [2**63],
        BITS,
    ),
    "many names": (
        {**OBJECT, "properties": SEVEN, "additionalProperties": True, "maxProperties": 8},
        [{"a": 1, "b": 1}, {**dict.fromkeys("abcdefg", 1), "x": 1}],
        [{"a": 1, "x": 1}],
        "all there or none (maxProperties)",
    ),
}
"""(a schema, documents that are taken, valid ones that are not, what is said of them)."""

WHOLLY: list[tuple[dict[str, Any], list[Any]]] = [
    ({**ODD, "minimum": 1000, "maximum": 1030}, [1001, 1029]),
    ({**HAS_ONE, "maxItems": 5}, [[0, 0, 0, 0, 1]]),
    ({**LIST, "not": HAS_ONE}, [[0] * 20]),
    (
        {
            **LIST,
            "items": TEXT,
            "if": {"minItems": 1},
            "then": {"not": {"items": {"const": ""}}, "maxItems": 9},
        },
        [[], ["", "x"]],
    ),
    ({**NUMBER, "minimum": -DOUBLE, "maximum": DOUBLE}, [1e300, -1e300]),
    ({**WHOLE, "minimum": -DOUBLE, "maximum": DOUBLE}, [10**30]),
    ({**WHOLE, "minimum": -(2**31), "maximum": 2**63 - 1}, [2**63 - 1]),
]


def grammar_of(schema: Any) -> Grammar:
    return WORDS.grammars.compile(Form("format", "schema", json.dumps(schema)))


def taken(grammar: Grammar, value: Any) -> bool:
    return takes(WORDS, grammar, json.dumps(value))


@pytest.mark.parametrize("case", LESS)
def test_what_is_valid_and_not_taken_is_said(case: str) -> None:
    schema, some, others, said = LESS[case]
    assert all(map(jsonschema.Draft202012Validator(schema).is_valid, (*some, *others)))
    grammar = grammar_of(schema)
    assert [value for value in (*some, *others) if taken(grammar, value)] == some
    assert any(said in note for note in grammar.notes)


@pytest.mark.parametrize(("schema", "documents"), WHOLLY)
def test_where_all_is_taken_nothing_is_said(schema: dict[str, Any], documents: list[Any]) -> None:
    assert all(map(jsonschema.Draft202012Validator(schema).is_valid, documents))
    grammar = grammar_of(schema)
    assert all(taken(grammar, value) for value in documents)
    assert grammar.notes == ()


def test_a_schema_has_no_say_in_what_is_said_of_it() -> None:
    assert grammar_of({**TEXT, "\0narrowed": {"a": "b"}, "\0letter": 1}).notes == ()
