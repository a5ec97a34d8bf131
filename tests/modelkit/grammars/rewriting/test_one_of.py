"""Exactly one of several ways, so many of an object's properties, and lists without an item twice: each as
`jsonschema` has it.
"""

import json
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from pydantic import BaseModel, Field

from modelkit.chat.styles.opening import Opening
from modelkit.errors import RequestError
from modelkit.grammars.answers.shape import shape_of
from modelkit.grammars.compiling.matchers import check
from modelkit.grammars.forms import Form
from modelkit.grammars.rewriting.unique_items import MOST_LISTS
from tests.modelkit.grammars.rewriting.test_conditions import NUMBER, TEXT, grammar_of, of, taken
from tests.support.styles import style_of
from tests.support.walks import words_of

FORMATS = ["ipv4", "ipv6"]
OPEN = {"additionalProperties": True}
OLD = "http://json-schema.org/draft-07/schema#"
CASES: dict[str, tuple[dict[str, Any], list[Any], list[Any]]] = {
    "open objects that overlap": (
        {"oneOf": [{**of("a", a=NUMBER), **OPEN}, {**of("b", b=TEXT), **OPEN}]},
        [{"a": 1}, {"b": "x"}, {"a": 1, "b": 2}, {"b": "x", "a": "x"}, {"a": 1, "c": 3}],
        [{"a": 1, "b": "x"}, {}, {"c": 1}],
    ),
    "one required name of several": (
        {**of(a=NUMBER, b=NUMBER, c=NUMBER), "oneOf": [{"required": [name]} for name in "abc"]},
        [{"a": 1}, {"b": 1}, {"c": 1}],
        [{}, {"a": 1, "c": 1}],
    ),
    "tags that may be left out": (
        {"oneOf": [of(k={"const": "a"}, x=TEXT), of(k={"const": "b"}, x=NUMBER)]},
        [{"k": "a", "x": "x"}, {"k": "b"}, {"x": "x"}, {"x": 1}],
        [{}, {"k": "a", "x": 1}, {"k": "c"}],
    ),
    "names of one that the other has none of": (
        {"oneOf": [of(k={"const": "a"}, x=TEXT), of("k", k={"const": "b"}, y=TEXT), {"type": "null"}]},
        [{"k": "a", "x": "x"}, {"k": "b"}, {}, {"x": "x"}, None],
        [{"k": "c"}, {"x": 1}],
    ),
    "one that says more": (
        {"oneOf": [of("a", a=TEXT), of("a", "b", a=TEXT, b=TEXT)]},
        [{"a": "x"}],
        [{"a": "x", "b": "x"}, {"b": "x"}],
    ),
    "references with remarks, and more, beside them": (
        {
            "oneOf": [
                {"$ref": "#/$defs/T", "description": "a text"},
                {"$ref": "#/$defs/O", "required": ["a"]},
                {"$ref": "#/$defs/O", "required": ["b"], "title": "b"},
            ],
            "$defs": {"T": {**TEXT, "format": "uri"}, "O": of(a={"format": "uri"}, b={"format": "uri"})},
        },
        ["https://a.b", {"a": "https://a.b"}, {"b": "https://a.b"}],
        [{}, {"a": "https://a.b", "b": "https://a.b"}],
    ),
    "ways in ways": (
        {"oneOf": [{"oneOf": [of("k", k={"const": "a"}), of("k", k={"const": "b"})]}, of(k={"const": "b"})]},
        [{"k": "a"}, {}],
        [{"k": "b"}],
    ),
    "ranges": (
        {"oneOf": [{**NUMBER, "maximum": 5}, {**NUMBER, "minimum": 3}]},
        [2, 6, -7],
        [3, 4, 5],
    ),
    "ranges apart": ({"oneOf": [{**NUMBER, "maximum": 2}, {**NUMBER, "minimum": 3}]}, [2, 3], ["x"]),
    "a text and one of them": ({"oneOf": [TEXT, {"const": "auto"}]}, ["", "aut", "autos"], ["auto", 1]),
    "lists of a length": (
        {"oneOf": [{"type": "array", "maxItems": 1}, {"type": "array", "minItems": 3, "items": NUMBER}]},
        [[], ["x"], [1, 2, 3]],
        [[1, 2], [1, 2, "x"]],
    ),
    "patterns that overlap": (
        {**TEXT, "oneOf": [{"pattern": "^a"}, {"pattern": "b$"}]},
        ["a", "xb", "b"],
        ["ab", "", "ba"],
    ),
    "five patterns that overlap": (
        {**TEXT, "oneOf": [{"pattern": one} for one in ("a", "b", "c", "d", "e")]},
        ["a", "xe", "cc"],
        ["", "ab", "x", "abcde"],
    ),
    "patterns apart": (
        {"oneOf": [{**TEXT, "pattern": "^[0-9]+$"}, {**TEXT, "pattern": "^[a-z]+$"}]},
        ["12", "ab"],
        ["", "a1", 1],
    ),
    "objects by a pattern": (
        {
            "oneOf": [
                {**of("id", id={"pattern": "^usr_", **TEXT}, a=NUMBER), **OPEN},
                {**of("id", id={"pattern": "^org_", **TEXT}, b=NUMBER), **OPEN},
            ]
        },
        [{"id": "usr_1", "a": 1}, {"id": "org_1", "b": 1}, {"id": "usr_", "b": "x"}],
        [{"id": "x"}, {"id": "usr_1", "a": "x"}],
    ),
    "one format within another": (
        {**TEXT, "oneOf": [{"pattern": "^[a-z0-9.]+$"}, {"format": "ipv4"}, {"format": "ipv6"}]},
        ["a.b", "::1"],
        ["1.2.3.4", ":"],
    ),
    "a thing or a list of things, without a type": (
        {
            "$defs": {"T": {"properties": {"a": NUMBER}, "required": ["a"], "additionalProperties": False}},
            "oneOf": [{"$ref": "#/$defs/T"}, {"type": "array", "items": {"$ref": "#/$defs/T"}}],
        },
        [{"a": 1}],
        [[{"a": 1}], {"a": "x"}],
    ),
    "with words that no draft has": (
        {
            "oneOf": [
                {**of("a", a=NUMBER), "x-go-type": "A", **OPEN},
                {**of("b", b=TEXT), "propertyOrder": 2, **OPEN},
            ]
        },
        [{"a": 1}, {"b": "x"}],
        [{"a": 1, "b": "x"}],
    ),
    "told apart, by reference": (
        {
            "$defs": {
                "A": {**of("t", t={"const": "a"}), **OPEN},
                "B": {**of("t", "n", t={"const": "b"}, n=NUMBER), **OPEN},
            },
            "oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}],
        },
        [{"t": "a", "x": 1}, {"t": "b", "n": 1}],
        [{"t": "b"}],
    ),
    "no others than those of all parts": (
        {
            "$defs": {"A": of("a", a=NUMBER)},
            "allOf": [{"$ref": "#/$defs/A"}],
            "properties": {"b": TEXT},
            "unevaluatedProperties": False,
        },
        [{"a": 1, "b": ""}, {"a": 1}],
        [{"a": 1, "c": 1}, {"b": ""}],
    ),
    "two of three": (
        {**of(a=NUMBER, b=NUMBER, c=NUMBER), "minProperties": 2},
        [{"a": 1, "c": 1}],
        [{"b": 1}, {}],
    ),
    "at most two of twelve": (
        {**of("a", **dict.fromkeys("abcdefghijkl", NUMBER)), "maxProperties": 2},
        [{"a": 1}, {"a": 1, "l": 1}],
        [{"l": 1}, {"a": 1, "b": 1, "c": 1}],
    ),
    "up to three, some of which are named": (
        {**of(a=NUMBER, b=NUMBER), **OPEN, "minProperties": 1, "maxProperties": 3},
        [{"a": 1}, {"b": 1, "c": 1, "d": 1}, {"c": 1}, {"a": 1, "b": 1, "x": 1}],
        [{}, {"a": 1, "b": 1, "x": 1, "y": 1}, {"x": 1, "y": 1, "z": 1, "u": 1}, {"a": ""}],
    ),
    "up to a hundred, with many that are named, and some by a pattern": (
        {**of(**dict.fromkeys("abcdefg", NUMBER)), "patternProperties": {"^x": TEXT}}
        | {"additionalProperties": False, "minProperties": 1, "maxProperties": 100},
        [{"g": 1}, {"x": "", "x1": ""}, {"a": 1, "f": 1}],
        [{}, {"x": 1}, {"y": 1}],
    ),
    "one or two of four": (
        {**of(**dict.fromkeys("abcd", NUMBER)), "minProperties": 1, "maxProperties": 2.0},
        [{"a": 1}, {"b": 1, "d": 1}],
        [{}, {"a": 1, "b": 1, "d": 1}],
    ),
    "one of those that are named, or another": (
        {**of(**dict.fromkeys("ab", NUMBER)), "additionalProperties": TEXT, "minProperties": 1},
        [{"a": 1}, {"b": 1, "x": ""}, {"a": 1, "b": 2}, {"x": ""}],
        [{}, {"x": 1}, {"a": ""}],
    ),
    "one more than must be there": (
        {**of("a", a=NUMBER, b=NUMBER), "patternProperties": {"^x": TEXT}, "minProperties": 2.0},
        [{"a": 1, "b": 1}, {"a": 1, "xy": ""}, {"a": 1, "b": 1, "x": ""}],
        [{"a": 1}, {"b": 1, "x": ""}, {"a": 1, "x": 1}],
    ),
    "each item once": (
        {"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True, "minItems": 1},
        [["a"], ["c", "a"], ["b", "c", "a"]],
        [[], ["a", "a"], ["a", "b", "a"]],
    ),
    "each item once, as zod says it": (
        {"$schema": OLD, "type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True, "minItems": 1},
        [["a"], ["b", "a"]],
        [[], ["a", "a"]],
    ),
    "lists as earlier drafts have them": (
        {
            "$schema": OLD,
            "oneOf": [
                {"type": "array", "items": [NUMBER, TEXT], "additionalItems": False, "minItems": 1},
                {"type": "array", "items": [NUMBER], "minItems": 2},
            ],
        },
        [[1], [1, 2], [1, "x", 2]],
        [[1, "x"], [], ["x"]],
    ),
    "truths once, or nothing": (
        {"type": ["array", "null"], "items": {"type": "boolean"}, "uniqueItems": True},
        [None, [], [True], [False, True]],
        [[True, True], 1],
    ),
    "by reference, of equal values": (
        {
            "$defs": {"N": {"enum": [1, 1.0, 2]}},
            "type": "array",
            "items": {"$ref": "#/$defs/N"},
            "uniqueItems": True,
        },
        [[1, 2], [2, 1], [2]],
        [[1, 1], [1, 2, 1]],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_valid_is_allowed_and_nothing_else(case: str) -> None:
    schema, good, bad = CASES[case]
    draft = jsonschema.Draft7Validator if "$schema" in schema else jsonschema.Draft202012Validator
    validator = draft(schema, format_checker=jsonschema.FormatChecker(FORMATS))
    assert [value for value in (*good, *bad) if validator.is_valid(value)] == good
    grammar = grammar_of(schema)
    assert [value for value in good if not taken(grammar, value)] == []
    assert [value for value in bad if taken(grammar, value)] == []
    assert not any("several ways" in note for note in grammar.notes)


@pytest.mark.parametrize(
    ("ways", "good", "bad"),
    [
        ([of("a", a=NUMBER), of("a", a=NUMBER, b=TEXT)], [{"a": 1, "b": "x"}], [{"a": 1}]),
        ([of(a=TEXT), of(b=TEXT)], [{"a": "x"}, {"b": "x"}], [{}, {"a": "x", "b": "x"}]),
        (  # what is not an address has no pattern, so that nobody knows what is left to the letter
            [of("a", a=TEXT, b={"format": "uri"}), of("a", a=TEXT, c={"format": "uri"})],
            [{"a": "x", "b": "https://x.y"}, {"a": "x", "c": "https://x.y"}],
            [{"a": "x"}],
        ),
    ],
)
def test_ways_that_only_differ_in_what_they_do_not_have_are_noted(
    ways: list[Any], good: list[Any], bad: list[Any]
) -> None:
    schema = of("x", x={"oneOf": ways})
    grammar = grammar_of(schema)
    assert [value for value in good if not taken(grammar, {"x": value})] == []
    assert [value for value in bad if taken(grammar, {"x": value})] == []
    (note,) = grammar.notes
    assert "several ways of oneOf" in note
    assert note.endswith("(#/properties/x/oneOf)")
    tool = {"name": "f", "parameters": schema}
    shape = shape_of(style_of("hermes"), Opening(), [tool])
    assert shape is not None
    assert note.removeprefix("format: ") in words_of(None, tokens=False).grammars.shaped(shape).notes[0]
    shape = shape_of(style_of("hermes"), Opening(), [{**tool, "strict": True}])
    assert shape is not None
    with pytest.raises(RequestError, match="several ways of oneOf"):
        words_of(None, tokens=False).grammars.shaped(shape)


def test_a_tag_with_a_default_is_written_all_the_same() -> None:
    """pydantic does not read an object without it."""

    class Cat(BaseModel):
        kind: Literal["cat"] = "cat"
        lives: int = 9

    class Dog(BaseModel):
        kind: Literal["dog"] = "dog"
        name: str

    class Owner(BaseModel):
        pet: Annotated[Cat | Dog, Field(discriminator="kind")]

    grammar = grammar_of(Owner.model_json_schema())
    assert taken(grammar, {"pet": {"kind": "cat"}})
    assert taken(grammar, {"pet": {"kind": "dog", "name": "x"}})
    assert not taken(grammar, {"pet": {"name": "x"}})
    assert not taken(grammar, {"pet": {"lives": 1}})


def test_many_ways_with_many_properties_are_told_apart() -> None:
    names = {f"p{number}": NUMBER for number in range(60)}
    ways = [of("kind", kind={"const": f"k{number}"}, **names) for number in range(60)]
    assert taken(grammar_of({"oneOf": ways}), {"kind": "k7", "p3": 1})


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"oneOf": [TEXT, {**TEXT, "format": "uri"}]}, "several ways of oneOf"),
        ({"oneOf": [{"type": "null"}, {"$ref": "#"}]}, "several ways of oneOf"),
        (
            {**of(**{f"p{n}": NUMBER for n in range(24)}), "maxProperties": 22},
            r"counted .*\(at #/maxProperties\)",
        ),
        (
            {**of(a=NUMBER, b=NUMBER), "additionalProperties": NUMBER, "maxProperties": 1},
            r"properties are counted .*\(at #/maxProperties\)",
        ),
        (
            {**of(**{f"p{n}": NUMBER for n in range(99)}), "minProperties": 3},
            r"counted .*\(at #/minProperties\)",
        ),
    ],
)
def test_what_is_too_much_or_has_no_cases_is_refused(schema: Any, why: str) -> None:
    with pytest.raises(RequestError, match=why):
        check(Form("format", "schema", json.dumps(schema)))


def test_lists_that_are_many_are_taken_and_said() -> None:
    for items in (
        {"enum": [*range(MOST_LISTS)]},
        {"enum": ["a", 1]},
        NUMBER,
        {"type": "string", "enum": ["a", 1]},
    ):
        schema = {"type": "array", "items": items, "uniqueItems": True}
        notes = grammar_of(schema).notes
        few = items == {"enum": ["a", 1]}
        assert bool(notes) is not few
