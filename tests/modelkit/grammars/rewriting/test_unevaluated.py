"""What no part of a schema looks at is held as `jsonschema` has it, whatever parts hold beside each other."""

import json
import random
from typing import Any

import jsonschema
import pytest

from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.table import style_named
from modelkit.errors import RequestError
from modelkit.grammars.answers.shape import shape_of
from modelkit.grammars.compiling.matchers import check
from modelkit.grammars.forms import Form
from tests.support.answers import collected
from tests.support.walks import events_of, takes, walk, words_of

WORDS = words_of(None, tokens=False)
NUMBER, TEXT = {"type": "integer"}, {"type": "string"}
NONE = {"unevaluatedProperties": False}
NO_ITEM = {"unevaluatedItems": False}


def of(*required: str, **properties: Any) -> dict[str, Any]:
    return {"properties": properties, "required": [*required]}


A, B = of("a", a=NUMBER), of("b", b=NUMBER)
HELD: dict[str, tuple[dict[str, Any], list[Any], list[Any]]] = {
    "of anyOf": (
        {"type": "object", "properties": {"c": TEXT}, "anyOf": [A, B], **NONE},
        [{"a": 1}, {"c": "", "b": 1}, {"a": 1, "b": 1}],
        [{"a": 1, "b": ""}, {"c": ""}, {"a": 1, "d": 1}],
    ),
    "of oneOf": (
        {"type": "object", "oneOf": [{**A, "required": []}, B], **NONE},
        [{"a": 1}, {}, {"a": "", "b": 1}][:2],
        [{"a": 1, "b": 1}, {"b": 1}],
    ),
    "of conditions": (
        {"type": "object", "if": of("a", a={"const": 1}), "then": B, "else": of(c=TEXT), **NONE},
        [{"a": 1, "b": 1}, {"c": ""}, {}],
        [{"a": 2}, {"a": 1}, {"a": 1, "b": 1, "c": ""}],
    ),
    "of a condition alone": (
        {"type": "object", "if": {"patternProperties": {"^a": NUMBER}}, **NONE},
        [{"a": 1}, {}],
        [{"a": ""}, {"b": 1}],
    ),
    "of what goes with a name": (
        {"type": "object", **of(a=NUMBER), "dependentSchemas": {"a": of(b=NUMBER)}, **NONE},
        [{"a": 1, "b": 1}, {}, {"a": 1}],
        [{"b": 1}],
    ),
    "of what goes with one name of many": (
        {
            "type": "object",
            "properties": dict.fromkeys("abcdefgl", NUMBER),
            "dependentSchemas": {**{one: {"required": ["l"]} for one in "bcdefg"}, "a": of(m=TEXT)},
            **NONE,
        },
        [{"a": 1, "m": ""}, {"b": 1, "l": 1}],
        [{"m": ""}, {"b": 1}],
    ),
    "of references": (
        {"type": "object", "$defs": {"A": {**A, "allOf": [{"$ref": "#/$defs/B"}]}, "B": {"anyOf": [B, {}]}}}
        | {"$ref": "#/$defs/A", **NONE},
        [{"a": 1, "b": 1}, {"a": 1}],
        [{"a": 1, "b": ""}, {"a": 1, "c": 1}, {"b": 1}],
    ),
    "that are so": (
        {"type": "object", "allOf": [A, {"anyOf": [B, {}]}], "unevaluatedProperties": TEXT},
        [{"a": 1, "x": ""}, {"a": 1, "b": ""}, {"a": 1, "b": 1}],
        [{"a": 1, "x": 1}],
    ),
    "none where one part looks at all": (
        {"type": "object", "anyOf": [A, {"required": ["b"], "unevaluatedProperties": NUMBER}], **NONE},
        [{"a": 1}, {"b": 1, "c": 1}],
        [{"b": ""}, {"a": 1, "c": 1}],
    ),
    "in what does not fit": (
        {"type": "object", "not": {"anyOf": [A, B], **NONE}, **of("a", a=NUMBER), **NONE},
        [],
        [{"a": 1}, {}],
    ),
    "of items": (
        {"type": "array", "prefixItems": [NUMBER], "anyOf": [{"prefixItems": [True, TEXT]}, {}], **NO_ITEM},
        [[], [1], [1, ""]],
        [[""], [1, 1], [1, "", 1]],
    ),
    "of items by a schema": (
        {"type": "array", "oneOf": [{"items": NUMBER, "minItems": 1}, {"maxItems": 0}], **NO_ITEM},
        [[], [1, 2]],
        [[""]],
    ),
    "of items that are contained": (
        {"type": "array", "contains": TEXT, "unevaluatedItems": NUMBER},
        [[1, "", 1], [""]],
        [[1], [None, ""]],
    ),
}


def test_ways_that_are_told_apart_are_no_more_choices_than_they_are() -> None:
    ways = [{**of("t", t={"const": n}), "patternProperties": {f"^{n}$": NUMBER}} for n in range(40)]
    grammar = WORDS.grammars.compile(
        Form("format", "schema", json.dumps({"type": "object", "anyOf": ways, **NONE}))
    )
    assert takes(WORDS, grammar, '{"t": 7, "7": 1}')
    assert not takes(WORDS, grammar, '{"t": 7, "8": 1}')


@pytest.mark.parametrize(("schema", "fits", "others"), HELD.values(), ids=HELD)
def test_what_nothing_looks_at_is_held(schema: Any, fits: list[Any], others: list[Any]) -> None:
    validator = jsonschema.Draft202012Validator(schema)
    assert [validator.is_valid(one) for one in (*fits, *others)] == [True] * len(fits) + [False] * len(others)
    form = Form("format", "schema", json.dumps(schema))
    if not fits:
        with pytest.raises(RequestError, match="Unsatisfiable"):
            check(form)
        return
    grammar = WORDS.grammars.compile(form)
    assert [takes(WORDS, grammar, json.dumps(one)) for one in fits] == [True] * len(fits)
    assert not any(takes(WORDS, grammar, json.dumps(one)) for one in others)
    for seed in range(3):
        ids, whole = walk(WORDS, grammar.matcher(), random.Random(seed))
        assert not whole or validator.is_valid(json.loads(WORDS.text(ids)))


@pytest.mark.parametrize("name", ["qwen3-coder", "glm-4.7"])
def test_arguments_of_tools_are_held_to_it(name: str) -> None:
    style, schema = style_named(name), HELD["of anyOf"][0]
    assert style is not None
    words, asked, called = (
        words_of(style, tokens=True),
        [{"name": "f", "parameters": schema, "strict": True}],
        0,
    )
    shape = shape_of(style, Opening(), asked, "f")
    assert shape is not None
    grammar = words.grammars.shaped(shape)
    for seed in range(3):
        ids, whole = walk(words, grammar.matcher(), random.Random(seed), most=400)
        calls = collected(events_of(style, Opening(), asked, words.pieces(ids))).tool_calls
        for call in calls if whole else calls[:-1]:
            jsonschema.Draft202012Validator(schema).validate(dict(call.arguments))
            called += 1
    assert called


def test_before_2020_items_that_are_contained_are_looked_at_by_nothing() -> None:
    schema = {"$schema": "https://json-schema.org/draft/2019-09/schema", "type": "array", "contains": TEXT}
    grammar = WORDS.grammars.compile(
        Form("format", "schema", json.dumps({**schema, "unevaluatedItems": {"maxLength": 0}}))
    )
    assert takes(WORDS, grammar, '[""]')
    assert not takes(WORDS, grammar, '["a"]')


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"$ref": "other.json", **NONE}, "where 'other.json' leads is not known"),
        ({"allOf": [{"$ref": "#"}], **NONE}, "it refers to itself"),
        ({"anyOf": [of(**{f"a{n}": {}}) for n in range(9)], **NONE}, "more than 64 choices"),
    ],
)
def test_what_cannot_be_written_is_refused_by_its_place(schema: Any, why: str) -> None:
    with pytest.raises(RequestError, match=rf"`unevaluatedProperties` cannot .*{why}.*#/unevaluatedP"):
        check(Form("format", "schema", json.dumps(schema)))
