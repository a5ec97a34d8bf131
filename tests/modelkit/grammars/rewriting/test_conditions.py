"""Conditions of a schema are held as `jsonschema` has them: each document is allowed where it is valid, and
nowhere else. Those that no grammar holds are refused by name and place.
"""

import json
import random
from itertools import product
from typing import Any

import jsonschema
import pytest

from modelkit.chat.styles.opening import Opening
from modelkit.errors import RequestError
from modelkit.grammars.answers.shape import shape_of
from modelkit.grammars.calls.tools import read_tools
from modelkit.grammars.compiling.grammar import Grammar
from modelkit.grammars.compiling.matchers import check
from modelkit.grammars.forms import Form
from modelkit.grammars.rewriting.conditions import without_conditions
from modelkit.grammars.rewriting.excluded_values import pattern_of_others
from tests.support.answers import collected
from tests.support.styles import style_of
from tests.support.walks import events_of, takes, walk, words_of

WORDS = words_of(None, tokens=False)
NUMBER, TEXT = {"type": "integer"}, {"type": "string"}


def grammar_of(schema: Any) -> Grammar:
    return WORDS.grammars.compile(Form("format", "schema", json.dumps(schema)))


def taken(grammar: Grammar, value: Any) -> bool:
    return takes(WORDS, grammar, json.dumps(value, ensure_ascii=False))


def of(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*required]}


KINDS = {"enum": ["a", "b", "c"]}
HELD: dict[str, tuple[dict[str, Any], list[Any], list[Any]]] = {
    "no whole number": (
        {"type": "array", "items": {"oneOf": [{"type": "integer"}, {"type": "number"}]}},
        [[0.5, -7.25]],
        [[1], [2.0], [""]],
    ),
    "items in front, in a word that says nothing beside them": (
        {"type": "array", "prefixItems": [of("a", a=NUMBER)], "additionalItems": False},
        [[{"a": 1}, {}], []],
        [[{}], [1]],
    ),
    "no multiple": (
        {"type": "array", "items": {"type": "number", "not": {"multipleOf": 2}}},
        [[3, -15, 0.5]],
        [[2], [-4], [0]],
    ),
    "no multiple within bounds far away": (
        {"type": "array", "items": {"minimum": 1000, "type": "integer", "not": {"multipleOf": 7}}},
        [[1000, 1100]],
        [[999], [1001], [1008]],
    ),
    "a multiple of one of two": (
        {"type": "array", "items": {"type": "integer", "oneOf": [{"multipleOf": 5}, {"multipleOf": 3}]}},
        [[3, 5, -9, 10]],
        [[15], [0], [7]],
    ),
    "another name than those that are listed": (
        {**of(a=TEXT), "additionalProperties": True, "not": {**of(a={}), "additionalProperties": False}},
        [{"b": 1}, {"a": "", "b": 1}],
        [{}, {"a": ""}],
    ),
    "no such value by a pattern of its name": (
        {"type": "object", "not": {"patternProperties": {"^x": TEXT}}},
        [{"x": 1}],
        [{}, {"x": ""}, {"y": 1}],
    ),
    "another name that is listed, beside any": (
        {**of("ab", ab={}), "additionalProperties": True, "not": {"propertyNames": {"maxLength": 1}}},
        [{"ab": 1}, {"ab": 1, "c": 1}],
        [{}, {"c": 1}],
    ),
    "no such name": (
        {"type": "object", "not": {"propertyNames": {"pattern": "^x"}}},
        [{"y": 1}],
        [{}, {"x": 1}],
    ),
    "names of one that another has none of": (
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {"xb": NUMBER},
            "allOf": [{"patternProperties": {"b$": {"minimum": 1}}}],
            "not": {"required": ["c"]},
        },
        [{}, {"xb": 1}],
        [{"b": 1}, {"xb": 0}],
    ),
    "names of one that another may have": (
        {
            "type": "object",
            "allOf": [
                {"patternProperties": {"^x": NUMBER}, "not": {"required": ["x"]}},
                {"patternProperties": {"y$": NUMBER}, "additionalProperties": False},
            ],
        },
        [{"xy": 1}, {"y": 1}, {}],
        [{"x1": 1}, {"y": ""}, {"x": 1}],
    ),
    "if and then": (
        {
            **of("kind", kind=KINDS, x=NUMBER),
            "if": {"properties": {"kind": {"const": "a"}}},
            "then": {"required": ["x"]},
        },
        [{"kind": "b"}, {"kind": "a", "x": 1}],
        [{"kind": "a"}],
    ),
    "one else in another": (
        {
            **of("kind", kind=KINDS, x=NUMBER, y=TEXT),
            "if": {"properties": {"kind": {"const": "a"}}},
            "then": {"required": ["x"]},
            "else": {
                "if": {"properties": {"kind": {"const": "b"}}},
                "then": {"required": ["y"]},
                "else": {"required": ["x", "y"]},
            },
        },
        [{"kind": "a", "x": 1}, {"kind": "b", "y": ""}, {"kind": "c", "x": 1, "y": ""}],
        [{"kind": "a", "y": ""}, {"kind": "b", "x": 1}, {"kind": "c", "x": 1}],
    ),
    "what then adds": (
        {
            **of("kind", kind=KINDS),
            "if": {"properties": {"kind": {"const": "a"}}},
            "then": of("x", x={"type": "string", "pattern": "^[0-9]{2}$"}),
        },
        [{"kind": "b"}, {"kind": "a", "x": "12"}],
        [{"kind": "a"}, {"kind": "a", "x": "1"}],
    ),
    "a condition by reference": (
        {
            "$defs": {"A": {"properties": {"kind": {"const": "a"}}}},
            **of("kind", kind=TEXT, x=NUMBER),
            "if": {"$ref": "#/$defs/A"},
            "then": {"required": ["x"]},
        },
        [{"kind": "ab"}, {"kind": ""}, {"kind": "a", "x": 1}],
        [{"kind": "a"}],
    ),
    "without a type": (
        {"if": of("a", a=True), "then": {"properties": {"a": NUMBER}}, "else": {"type": "null"}},
        [{"a": 1}, None],
        [{"a": "x"}, {}, 1],
    ),
    "if alone, then alone": ({**NUMBER, "if": {"minimum": 3}, "allOf": [{"then": False}]}, [1, 5], ["x"]),
    "no such text": (
        {**TEXT, "maxLength": 4, "not": {"enum": ["ab", "abc", 'é"\n']}},
        ["", "a", "abcd", "b", "é", 'é"', "äb"],
        ["ab", "abc", 'é"\n'],
    ),
    "no such text, in a pattern and a part": (
        {"allOf": [{"type": "string"}, {"if": {"const": "a"}, "then": False, "else": {"pattern": "^.$"}}]},
        ["b"],
        ["a", "bc", 1],
    ),
    "no such number": ({**NUMBER, "minimum": -1, "maximum": 2, "not": {"const": 0}}, [-1, 1, 2], [0, 3]),
    "no such value of any type": (
        {"not": {"enum": [None, 1, True, "x"]}},
        [False, 0, "y", [], {}],
        [None, 1, "x"],
    ),
    "not of a type": ({"not": {"type": ["string", "array"]}}, [1, None, {}], ["x", []]),
    "not not": ({"not": {"not": {"type": "string", "pattern": "^a"}}}, ["ab"], ["b", 1]),
    "not what leaves out halves": (
        {"not": {"not": {"type": ["integer", "string"]}}},
        [2, "x"],
        [2.5, None],
    ),
    "not what leaves out far items": (
        {
            "type": "array",
            "items": {"enum": ["x", 1]},
            "if": {"contains": {"const": 1}},
            "then": {"maxItems": 3},
        },
        [[], [1], ["x"] * 20],
        [[1] * 4, [*["x"] * 20, 1]],
    ),
    "beside references into the schema": (
        {
            **of(
                a=NUMBER,
                b={"$ref": "#/properties/a"},
                c={"type": "array", "items": {"$ref": "#/properties/a"}},
            ),
            "if": {"properties": {"a": {"const": 1}}, "required": ["a"]},
            "then": {"properties": {"d": {"anyOf": [{"$ref": "#/properties/c"}, {"const": "x"}]}}},
        },
        [{"a": 1, "b": 2}, {"a": 2, "c": []}],
        [{"a": 1, "b": "x"}],
    ),
    "a reference into a choice": (
        {
            **of(a={"oneOf": [NUMBER, {"const": "x"}, {"type": "string", "maxLength": 1}]}),
            "properties": {
                "a": {"oneOf": [NUMBER, {"const": "x"}, {"type": "string", "maxLength": 1}]},
                "b": {"$ref": "#/properties/a/oneOf/2"},
            },
        },
        [{"a": 1, "b": "x"}, {"a": "y"}],
        [{"a": "x"}, {"b": "xy"}],
    ),
    "beside const and enum": ({"const": 1, "enum": [2, 1], "not": {"const": 2}}, [1], [2, 3]),
    "beside items of draft 7": (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "array",
            "items": [NUMBER],
            "additionalItems": False,
            "not": {"maxItems": 0},
        },
        [[1]],
        [[], ["x"], [1, 2]],
    ),
    "never": (of(a={"not": {}}, b=NUMBER), [{"b": 1}, {}], [{"a": 1}]),
    "nothing else, as zod writes it": (
        {**of(a=NUMBER, b=NUMBER), "additionalProperties": {"not": {}}, "minProperties": 2},
        [{"a": 1, "b": 1}],
        [{"a": 1}, {"a": 1, "b": 1, "c": 1}],
    ),
    "an object of no names without one": (
        {"type": "object", "not": {"required": ["key"]}},
        [{}, {"a": 1}, {"a": 1, "b": 2}],
        [{"key": 1}, {"a": 1, "key": 1}],
    ),
    "not both": (
        {
            **of(a=NUMBER, b=NUMBER, c=NUMBER),
            "not": {"anyOf": [{"required": ["a", "b"]}, {"required": ["c"]}]},
        },
        [{}, {"a": 1}, {"b": 1}],
        [{"a": 1, "b": 1}, {"c": 1}],
    ),
    "an open object without a name": (
        {**of("id", id=NUMBER), "additionalProperties": True, "not": {"required": ["key"]}},
        [{"id": 1}, {"id": 1, "x": 2}],
        [{"id": 1, "key": 2}],
    ),
    "dependentRequired": (
        {**of(lat=NUMBER, lon=NUMBER), "dependentRequired": {"lat": ["lon"], "lon": ["lat"]}},
        [{}, {"lat": 1, "lon": 2}],
        [{"lat": 1}, {"lon": 1}],
    ),
    "dependentSchemas": (
        {**of("a", a=TEXT, card=NUMBER), "dependentSchemas": {"card": of("to", to=TEXT)}},
        [{"a": "x"}, {"a": "x", "card": 1, "to": "y"}],
        [{"a": "x", "card": 1}],
    ),
    "dependencies of draft 7": (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            **of("pets", pets={"enum": ["no", "yes"]}),
            "dependencies": {
                "pets": {"oneOf": [of(pets={"enum": ["no"]}), of("n", pets={"enum": ["yes"]}, n=NUMBER)]}
            },
        },
        [{"pets": "no"}, {"pets": "yes", "n": 1}],
        [{"pets": "yes"}],
    ),
    "contains": (
        {"type": "array", "items": {"enum": [1, 2]}, "contains": {"const": 1}, "maxItems": 3},
        [[1], [2, 2, 1], [2, 1]],
        [[], [2], [2, 2, 2], [2, 2, 2, 1]],
    ),
    "contains, and no end": (
        {"type": "array", "contains": {"const": 1}},
        [[1], [2, 1], [*["x"] * 15, 1, None, {}]],
        [[], ["x"] * 20],
    ),
    "contains so many": (
        {"contains": NUMBER, "minContains": 2},
        ["x", [1, 2], ["x", 1, "y", 2, "z"], [1, 2, 3]],
        [[], [1], [1, "x"]],
    ),
    "contains at most so many": (
        {"type": "array", "contains": {"const": 1}, "minContains": 0, "maxContains": 1},
        [[], [1], ["x", 1, None, {}], [2] * 30],
        [[1, 1], ["x", 1, 2, 1]],
    ),
    "contains at most so many as there may be": (
        {"type": "array", "contains": NUMBER, "maxContains": 2.0, "maxItems": 2},
        [[1], ["x", 1], [1, 1]],
        [[], ["x"]],
    ),
    "no such pattern": (
        {**TEXT, "not": {"pattern": "^a|b$"}},
        ["", "b ", "ca", "\n"],
        ["a", "ab", "xb", 1],
    ),
    "no such format": ({**TEXT, "not": {"format": "ipv4"}}, ["", "1.2.3", "1.2.3.256"], ["1.2.3.4"]),
    "if it fits a pattern": (
        {
            **of("id", id=TEXT, n=NUMBER),
            "if": {"properties": {"id": {"pattern": "^x-"}}},
            "then": {"required": ["n"]},
        },
        [{"id": "y"}, {"id": "x"}, {"id": "x-1", "n": 1}],
        [{"id": "x-1"}],
    ),
    "if all items fit": (
        {"type": "array", "if": {"items": NUMBER}, "then": {"minItems": 2}},
        [[1, 2], ["x"], [1, "x"]],
        [[], [1]],
    ),
    "no such items in front": (
        {"type": "array", "not": {"prefixItems": [{"const": 1}, TEXT]}},
        [[2], [1, 1], [2, "x"]],
        [[], [1], [1, "x", 3]],
    ),
    "no item that fits": ({"type": "array", "not": {"contains": NUMBER}}, [[], ["x"]], [[1], ["x", 1]]),
    "not what one property needs of others": (
        {**of(a=NUMBER, b=NUMBER), "not": {"dependentRequired": {"a": ["b"]}}},
        [{"a": 1}],
        [{}, {"b": 1}, {"a": 1, "b": 1}],
    ),
    "not what a condition says": (
        {**NUMBER, "not": {"if": {"minimum": 3}, "then": {"maximum": 5}, "else": {"minimum": 0}}},
        [-1, 6],
        [0, 2, 3, 5],
    ),
    "not of patterns of names that are listed": (
        {**of(ab=NUMBER, b=TEXT), "additionalProperties": False, "not": {"patternProperties": {"^a": TEXT}}},
        [{"ab": 1}, {"ab": 1, "b": ""}],
        [{}, {"b": ""}],
    ),
    "not of names that are listed": (
        {**of(ab=NUMBER, b=TEXT), "additionalProperties": False, "not": {"propertyNames": {"maxLength": 1}}},
        [{"ab": 1}, {"ab": 1, "b": ""}],
        [{}, {"b": ""}],
    ),
    "a remark in what is not": ({**TEXT, "not": {"const": "a", "x-go-type": "T"}}, ["b"], ["a"]),
    "contains of no list": (
        {"type": ["array", "null"], "contains": NUMBER, "maxItems": 2},
        [None, ["x", 1]],
        [["x"]],
    ),
}


@pytest.mark.parametrize("case", HELD)
def test_what_is_valid_is_allowed_and_nothing_else(case: str) -> None:
    schema, good, bad = HELD[case]
    draft = jsonschema.Draft7Validator if "$schema" in schema else jsonschema.Draft202012Validator
    validator = draft(schema, format_checker=jsonschema.FormatChecker(["ipv4", "ipv6"]))
    assert [value for value in (*good, *bad) if validator.is_valid(value)] == good
    grammar = grammar_of(schema)
    assert [value for value in good if not taken(grammar, value)] == []
    assert [value for value in bad if taken(grammar, value)] == []


SOME: list[Any] = [
    *[
        {"const": "x"},
        {"enum": ["x", 1]},
        {"type": "string"},
        {"type": ["integer", "null"]},
        {"not": {"const": "x"}},
        {"pattern": "^x"},
    ],
    *[
        {"type": "integer", "minimum": 2},
        True,
        {"not": {"type": "string"}},
        {"anyOf": [{"type": "null"}, {"const": 1}]},
    ],
]
ANY = {"enum": ["x", "y", 1, 2, None]}
NAMES = ("a", "b", "c")


def some_part(rng: random.Random, depth: int) -> Any:
    inner = [some_part, some_part, some_condition] if depth else []
    match rng.choice(["properties", "properties", "required", "both", "size", *(["inner"] * len(inner))]):
        case "properties":
            return {"properties": {name: rng.choice(SOME) for name in rng.sample(NAMES, rng.choice([1, 2]))}}
        case "required":
            return {"required": rng.sample(NAMES, rng.choice([1, 2]))}
        case "both":
            name = rng.choice(NAMES)
            return {"properties": {name: rng.choice(SOME)}, "required": [name]}
        case "size":
            return rng.choice([{"maxProperties": 2}, {"minProperties": 2}, True, False])
        case _:
            two = [rng.choice(inner)(rng, depth - 1) for _ in range(2)]
            return {rng.choice(["anyOf", "allOf", "oneOf"]): two}


def some_condition(rng: random.Random, depth: int = 2) -> dict[str, Any]:
    part = [some_part(rng, depth) for _ in range(3)]
    listed = {name: rng.sample(NAMES, rng.choice([0, 1, 2])) for name in rng.sample(NAMES, 2)}
    return rng.choice(
        [
            {"if": part[0], "then": part[1], "else": part[2]},
            {"if": part[0], rng.choice(["then", "else"]): part[1]},
            {"not": part[0]},
            {"dependentRequired": listed},
            {"dependentSchemas": {rng.choice(NAMES): part[0]}},
            {"oneOf": part[: rng.choice([2, 3])]},
        ]
    )


@pytest.mark.parametrize("seed", range(60))
def test_any_conditions_hold(seed: int) -> None:
    rng = random.Random(seed)
    schema: dict[str, Any] = {
        **of(
            *rng.sample(NAMES, rng.choice([0, 1])),
            **{name: rng.choice([*SOME, *[ANY] * 6]) for name in NAMES},
        ),
        "additionalProperties": rng.choice([False, False, True]),
        "allOf": [some_condition(rng) for _ in range(rng.choice([1, 1, 2]))],
    }
    schema |= some_condition(rng) if rng.random() < 0.5 else {}
    every = [
        dict(zip(NAMES, chosen, strict=True)) for chosen in product([..., "x", "y", 1, 2, None], repeat=3)
    ]
    values = [{name: one for name, one in value.items() if one is not ...} for value in rng.sample(every, 20)]
    validator = jsonschema.Draft202012Validator(schema)
    grammar, why = None, ""
    try:
        grammar = grammar_of(schema)
    except RequestError as error:
        why = str(error)
    if grammar is None:
        beyond = ("cases", "several ways", "are counted", "several properties", "Unsatisfiable")
        assert any(word in why for word in beyond)
        assert "Unsatisfiable" not in why or not any(map(validator.is_valid, values))
        return
    assert [taken(grammar, value) for value in values] == [validator.is_valid(value) for value in values]


def test_many_conditions_on_one_property_are_few_cases() -> None:
    kinds = [f"k{number}" for number in range(80)]
    schema = {
        **of("kind", kind={"enum": [*kinds, "other"]}, a=NUMBER, b=NUMBER),
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
                "then": {"required": ["ab"[place % 2]]},
            }
            for place, kind in enumerate(kinds)
        ],
    }
    grammar = grammar_of(schema)
    assert taken(grammar, {"kind": "k2", "a": 1})
    assert not taken(grammar, {"kind": "k3", "a": 1})
    assert taken(grammar, {"kind": "other"})


def test_properties_stay_in_their_order_and_closed() -> None:
    schema = {
        **of("a", a=KINDS, b=NUMBER, c=NUMBER),
        "allOf": [{"if": {"properties": {"c": NUMBER, "a": {"const": "a"}}}, "then": {"required": ["c"]}}],
    }
    grammar = grammar_of(schema)
    assert taken(grammar, {"a": "a", "b": 1, "c": 1})
    assert not taken(grammar, {"a": "a", "b": 1, "c": 1, "d": 1})


@pytest.mark.parametrize(
    ("schema", "why", "place"),
    [
        ({"not": {"format": "uri"}}, "what does not fit the pattern .* has no", "#/not"),
        ({"not": {"pattern": "a(?!x)"}}, "what does not fit the pattern", "#/not"),
        ({"items": {"if": {"uniqueItems": True}, "then": {}}}, "`if` cannot .* `uniqueItems`", "#/items/if"),
        (
            {"allOf": [{"title": "t", "if": {"uniqueItems": True}, "then": {}}]},
            "`uniqueItems`",
            "#/allOf/0/if",
        ),
        (
            {"dependentSchemas": {"a/b": {"not": {"uniqueItems": True}}}},
            "`uniqueItems`",
            "#/dependentSchemas/a~1b/not",
        ),
        ({"\0letter": True, "not": {"\0letter": {}, "uniqueItems": True}}, "`uniqueItems`", "#/not"),
        ({"contains": NUMBER, "minContains": 100_000}, "not counted; at most 64", "#/contains"),
        ({"contains": NUMBER, "maxContains": 9}, "counted to 6 here", "#/contains"),
        ({"not": {"const": {"a": 1}}}, "listed values of the type object", "#/not"),
        (
            {"properties": {"b": {"$ref": "#/properties/a"}}, "not": {"required": ["a"]}},
            "'#/properties/a' leads to nothing in the schema",
            "#/not",
        ),
        (
            {"allOf": [{"not": {"required": [f"a{n}", f"b{n}"]}} for n in range(9)]},
            "more than 256 cases",
            "#/allOf/8/not",
        ),
    ],
)
def test_what_has_no_cases_is_refused_by_name_and_place(schema: Any, why: str, place: str) -> None:
    with pytest.raises(RequestError, match=rf"{why}.* \(at {place}\)"):
        check(Form("format", "schema", json.dumps(schema)))


def test_conditions_that_multiply_end_in_a_moment() -> None:
    names = {f"p{number}": NUMBER for number in range(1_000)}
    pairs = {f"p{number}": [f"p{number + 1}"] for number in range(999)}
    with pytest.raises(RequestError, match="too many to be written as cases"):
        check(Form("format", "schema", json.dumps({**of(**names), "dependentRequired": pairs})))


def in_each_other(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"pattern": "b$"}
    for _ in range(depth):
        one = {"type": "string", "pattern": "^a"}
        schema = {"oneOf": [{"type": "array", "contains": schema}, one, {"not": schema}]}
    return schema


def test_conditions_in_each_other_end_in_a_moment() -> None:
    with pytest.raises(RequestError, match=r"oneOf|cannot be enforced"):
        check(Form("format", "schema", json.dumps(in_each_other(5))))


@pytest.mark.parametrize("value", [5, "x", [1], {"a": 1}, None, [[1]]], ids=repr)
@pytest.mark.parametrize(
    "key", ["not", "if", "then", "dependentRequired", "dependentSchemas", "contains", "required"]
)
def test_what_is_no_schema_is_no_condition_to_refuse(key: str, value: Any) -> None:
    schema = {"type": "object", "then": {}, "not": {"required": ["a"]}, key: value}
    assert without_conditions(schema) == {}


def test_a_pattern_of_other_texts_is_of_a_bounded_length() -> None:
    assert len(pattern_of_others(["ab", "abc"])) < 100
    with pytest.raises(ValueError, match="so many listed texts"):
        pattern_of_others([f"word {number}" for number in range(5_000)])


@pytest.mark.parametrize("name", ["hermes", "gemma4", "qwen3-coder", "lfm2", "glm-4.7", "kimi-k3"])
def test_conditions_of_tools_hold(name: str) -> None:
    """Calls are read with the types that a condition gives, too."""
    style = style_of(name)
    words, called = words_of(style, tokens=True), 0
    for case in ("if and then", "what then adds", "dependentSchemas", "dependentRequired", "not both"):
        schema = HELD[case][0]
        asked = [{"name": "f", "parameters": schema, "strict": True}]
        shape = shape_of(style, Opening(), asked, "f")
        assert shape is not None
        grammar = words.grammars.shaped(shape)
        assert grammar.notes == ()
        for seed in range(3):
            ids, whole = walk(words, grammar.matcher(), random.Random(seed), most=600)
            calls = collected(events_of(style, Opening(), asked, words.pieces(ids))).tool_calls
            for call in calls if whole else calls[:-1]:
                jsonschema.validate(dict(call.arguments), schema)
                called += 1
    assert called > 5


def test_arguments_are_an_object_whatever_a_condition_leaves() -> None:
    tools = [{"name": "f", "parameters": {"not": {"type": "string"}}}]
    tools += [{"name": "g", "parameters": {"type": ["object", "null"]}}]
    assert [tool.parameters["type"] for tool in read_tools(tools)] == ["object", "object"]
