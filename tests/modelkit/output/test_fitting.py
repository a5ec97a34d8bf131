"""Which of two readings of a raw value is meant: the one that its schema has."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkit.chat.styles.opening import Opening
from modelkit.output.reading.schemas import Schema
from modelkit.output.reading.tags import typed
from modelkit.output.reading.validation import fits
from tests.support.answers import collected
from tests.support.styles import style_of
from tests.support.walks import events_of, words_of

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, 1.0, -0.0, 1e300]),
    st.text("ab1", max_size=3),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=5,
)
KINDS = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])
SMALL = st.integers(-2, 3)
SAYINGS = st.one_of(
    KINDS.map(lambda kind: {"type": kind}),
    st.lists(KINDS, min_size=1, max_size=3, unique=True).map(lambda kinds: {"type": kinds}),
    st.lists(VALUES, min_size=1, max_size=3).map(lambda listed: {"enum": listed}),
    VALUES.map(lambda value: {"const": value}),
    st.tuples(st.sampled_from(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]), SMALL).map(
        lambda two: {two[0]: two[1]}
    ),
    st.tuples(
        st.sampled_from(["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"]),
        st.integers(0, 3),
    ).map(lambda two: {two[0]: two[1]}),
    st.sampled_from([2, 0.5]).map(lambda step: {"multipleOf": step}),
    st.lists(st.sampled_from("abc"), max_size=2, unique=True).map(lambda names: {"required": names}),
    st.booleans().map(lambda open_: {"additionalProperties": open_}),
)
LEAVES = st.one_of(
    st.booleans(),
    st.lists(SAYINGS, max_size=3).map(lambda some: {k: v for one in some for k, v in one.items()}),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["anyOf", "allOf"]), st.lists(inner, min_size=1, max_size=3), SAYINGS).map(
            lambda parts: {**parts[2], parts[0]: parts[1]}
        ),
        inner.map(lambda items: {"items": items}),
        st.dictionaries(st.sampled_from("ab"), inner, max_size=2).map(lambda named: {"properties": named}),
    ),
    max_leaves=5,
)


REFERRED = st.one_of(SCHEMAS, SCHEMAS.map(lambda one: {"$defs": {"d": one}, "$ref": "#/$defs/d"}))


@settings(max_examples=150, derandomize=True)
@given(value=VALUES, schema=REFERRED)
def test_it_says_what_the_standard_says(value: object, schema: Any) -> None:
    said = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert fits(value, schema, schema if isinstance(schema, dict) else {}) == said


@pytest.mark.parametrize(
    ("schema", "written", "read"),
    [
        ({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0, "maximum": 0}]}, "3", "3"),
        ({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0, "maximum": 0}]}, "0", 0),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "3", 3),
        ({"type": "array", "nullable": True}, "null", None),  # as OpenAPI 3.0 has it
        ({"anyOf": [{"type": "string"}, {"type": "object", "nullable": True}]}, "null", None),
        ({"type": "string", "nullable": False}, "null", "null"),
        ({"enum": ["3", 4, "null"]}, "3", "3"),
        ({"enum": ["3", 4, "null"]}, "4", 4),
        ({"enum": ["3", 4, "null"]}, "null", "null"),
        ({"anyOf": [{"type": "string"}, {"type": "array", "maxItems": 1}]}, "[1, 2]", "[1, 2]"),
        ({"anyOf": [{"type": "string"}, {"type": "array", "maxItems": 1}]}, "[1]", [1]),
        ({"type": ["string", "object"], "required": ["a"]}, '{"b": 1}', '{"b": 1}'),
        ({"type": ["string", "number"], "multipleOf": 2}, "3", "3"),
        ({"type": "integer", "minimum": 5}, "3", 3),  # no text is meant, whatever the bounds say
        ({"type": ["string", "integer"], "maxLength": 0, "maximum": 0}, "3", 3),  # neither fits
        ({}, "3", 3),
    ],
)
def test_a_raw_value_is_what_its_schema_has(schema: dict[str, Any], written: str, read: object) -> None:
    its = Schema(schema)
    assert json.loads(typed(written, its.types, its)) == read


@pytest.mark.parametrize(
    ("schema", "kept"),
    [
        ({"pattern": "^[a-z]+$"}, False),
        ({"pattern": "^[a-z]*$"}, True),
        ({"pattern": "\\p{L}"}, True),  # of another dialect
        ({"pattern": "[[a]&&[b]]"}, True),
        ({"pattern": r"(?:a?|b*|c?)\b" * 40}, True),  # which would take years to try
        ({"anyOf": [{"format": "date"}, {"type": "object"}]}, False),
        ({"format": "json-pointer"}, True),
        ({"allOf": [{"pattern": "a" * 15_000}, {"pattern": "b" * 15_000}]}, False),
        ({"allOf": [{"pattern": "^$" * 9_000}, {"pattern": "b" * 9_000}]}, True),  # too much to look at
    ],
)
def test_an_empty_text_is_held_to_patterns_and_formats(schema: dict[str, Any], kept: bool) -> None:
    assert fits("", schema, schema) == kept


@pytest.mark.parametrize(
    ("items", "types"),
    [
        ([{"type": "boolean"}, {"type": "string"}], {"boolean", "string"}),
        ([{"type": "boolean"}], {"boolean"}),
        (
            [{"anyOf": [{"type": "null"}, {"$ref": "#/$defs/n"}]}, {"type": "string"}],
            {"null", "integer", "string"},
        ),
    ],
)
def test_elements_and_members_are_what_any_choice_says(items: list[Any], types: set[str]) -> None:
    lists = [{"type": "array", "items": one} for one in items]
    objects = [{"type": "object", "properties": {"a": one}} for one in items]
    defs = {"$defs": {"n": {"type": "integer"}}}
    assert Schema({"anyOf": [{"type": "null"}, *lists], **defs}).element(0).types == types
    assert Schema({"oneOf": [{"type": "null"}, *objects], **defs}).member("a").types == types


def test_all_that_is_said_of_a_member_holds() -> None:
    one, other = (
        {"properties": {"a": {"type": kinds}}} for kinds in (["string", "null"], ["null", "integer"])
    )
    assert Schema({"allOf": [one, other]}).member("a").types == {"null"}
    assert Schema({"allOf": [one, {}], "additionalProperties": {"type": "null"}}).member("b").types == {
        "null"
    }


def test_a_schema_that_doubles_inside_itself_costs_little() -> None:
    schema = {"anyOf": [{"$ref": "#"}, {"$ref": "#"}], "type": ["string", "integer"], "maximum": 0}
    assert fits(3, {**schema, "maximum": 5}, schema)


def test_what_is_as_deep_as_can_be_read_is_no_fault() -> None:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    assert fits(deep, {"enum": [deep[0]]}, {})
    assert fits(deep, {"items": {"items": {"$ref": "#"}}}, {"items": {"$ref": "#"}})


@pytest.mark.parametrize("value", [10**400, -(10**400)])
def test_numbers_beyond_floats(value: int) -> None:
    assert fits(value, {"type": "integer", "multipleOf": 0.5}, {})
    assert not fits(value, {"maximum": 1.5, "minimum": -1.5}, {})


OPEN_WAYS = {
    "oneOf": [
        {"properties": {"a": {"type": "number"}}, "required": ["a"], "additionalProperties": True},
        {"properties": {"b": {"type": "string"}}, "required": ["b"], "additionalProperties": True},
    ]
}


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [("number", "3", 3), ("null", "null", None), ("array", "[1]", [1]), ("string", "3", "3")],
)
def test_what_a_call_says_of_a_type_holds_where_one_way_takes_anything(
    kind: str, written: str, value: object
) -> None:
    """Of `{"a": 1, "b": "3"}` both ways would have been, and the call is of the first."""
    style = style_of("kimi-k3")
    tag = '<|open|>argument key="{}" type="{}"<|sep|>{}<|close|>argument<|sep|>'
    arguments = tag.format("a", "number", 1) + tag.format("b", kind, written)
    call = f'<|open|>call tool="f" index="0"<|sep|>{arguments}<|close|>call<|sep|>'
    words = words_of(style, tokens=True)
    ids = words.tokenizer.encode(f"<|open|>tools<|sep|>{call}<|close|>tools<|sep|>", add_special=False)
    tools = [{"name": "f", "parameters": OPEN_WAYS}]
    (made,) = collected(events_of(style, Opening(), tools, words.pieces(ids))).tool_calls
    assert dict(made.arguments) == {"a": 1, "b": value}
    assert Schema(OPEN_WAYS).member("b").types == {"string"}
