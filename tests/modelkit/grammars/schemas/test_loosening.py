"""One part of a tool's schema that cannot be enforced, or that no value has, loosens that part alone."""

import json
import random
from typing import Any

import pytest

from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.style import Style
from modelkit.errors import RequestError
from modelkit.grammars.answers.shape import shape_of
from modelkit.grammars.compiling.grammar import Grammar
from modelkit.grammars.schemas.loosening import Loosenings, parts_of
from runtime.sampling.constraint import allows
from tests.support.styles import style_of
from tests.support.walks import Words, walk, words_of

AROUND = {"hermes": '{{"name": "f", "arguments": {{"n": {0}', "gemma4": "{{n:{0}", "lfm2": "n={0}"}
"""What a call of f begins with, its only required argument n being a digit."""
ROWS = pytest.mark.parametrize("name", AROUND)


def grammar_of(
    style: Style, schema: Any, *, strict: bool = False, must: bool = False
) -> tuple[Words, Grammar]:
    words = words_of(style, tokens=True)
    named = {"n": {"type": "integer", "minimum": 0, "maximum": 9}, "x": schema}
    parameters = {"type": "object", "properties": named, "required": ["n", "x"] if must else ["n"]}
    shape = shape_of(style, Opening("call"), [{"name": "f", "parameters": parameters, "strict": strict}], "f")
    assert shape is not None
    return words, words.grammars.shaped(shape)


def begins(words: Words, grammar: Grammar, text: str) -> bool:
    matcher = grammar.matcher()
    for token in words.tokenizer.encode(text, add_special=False):
        if not allows(matcher.mask(), token):
            return False
        matcher.advance(token)
    return True


EXOTIC: list[tuple[dict[str, Any], str]] = [
    ({"type": "string", "pattern": "(?!a)b"}, "pattern of $.x: `(?!` is a look ahead"),
    ({"type": "string", "format": "nosuch"}, "format of $.x"),
    ({"type": "array", "uniqueItems": True}, "uniqueItems of $.x"),
    ({"type": "object", "properties": {"y": {"not": {"const": {"a": 1}}}}}, "not of $.x.y"),
    ({"anyOf": [{"type": "null"}, {"type": "string", "pattern": r"(b)\1"}]}, "pattern of $.x.anyOf[1]"),
    ({"type": "array", "items": {"type": "string", "pattern": "("}}, "pattern of $.x[]"),
    ({"$ref": "http://example.org/x"}, "$ref of $.x"),
]


@ROWS
@pytest.mark.parametrize(("schema", "said"), EXOTIC, ids=[one[1][:24] for one in EXOTIC])
def test_an_exotic_property_loosens_itself(name: str, schema: dict[str, Any], said: str) -> None:
    style = style_of(name)
    words, grammar = grammar_of(style, schema)
    assert len(grammar.notes) == 1
    assert grammar.notes[0].startswith("arguments of f are not held to all of its schema: ")
    assert said in grammar.notes[0]
    head = AROUND[name]
    start = head.partition('"arguments": ')[2] if name == "hermes" else head
    assert begins(words, grammar, start.format(5))
    assert not begins(words, grammar, start.format(55))
    with pytest.raises(RequestError, match="strict tool f cannot be enforced"):
        grammar_of(style, schema, strict=True)


IMPOSSIBLE: list[dict[str, Any]] = [
    {"enum": ["a"], "pattern": "^b"},
    {"type": "string", "pattern": "^a$", "minLength": 3},
    {"type": "string", "format": "uuid", "pattern": "^z"},
    {"type": "integer", "minimum": 5, "maximum": 2},
    {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2},
    {"type": "number", "multipleOf": 0.1, "minimum": 0.05, "maximum": 0.06},
    {"type": "array", "items": {"enum": ["a"], "pattern": "^b"}, "minItems": 1},
    {"type": "object", "properties": {"y": {"enum": ["a"], "pattern": "^b"}}, "required": ["y"]},
    {"anyOf": [{"type": "string", "pattern": "^a$", "minLength": 3}, {"enum": ["a"], "pattern": "^b"}]},
]


@ROWS
@pytest.mark.parametrize("schema", IMPOSSIBLE, ids=[str(one)[:40] for one in IMPOSSIBLE])
def test_a_property_that_no_value_has_is_left_out(name: str, schema: dict[str, Any]) -> None:
    style = style_of(name)
    words, grammar = grammar_of(style, schema)
    assert grammar.notes == ()
    head = AROUND[name]
    start = head.partition('"arguments": ')[2] if name == "hermes" else head
    assert begins(words, grammar, start.format(5))
    assert not begins(words, grammar, start.format(5) + ",")


def test_a_choice_that_no_value_has_leaves_the_others() -> None:
    style = style_of("gemma4")
    either = {"anyOf": [{"enum": ["a"], "pattern": "^b"}, {"type": "boolean"}]}
    words, grammar = grammar_of(style, either, must=True)
    assert grammar.notes == ()
    assert begins(words, grammar, "{n:1,x:true}")
    assert not begins(words, grammar, '{n:1,x:<|"|>')


def test_what_many_parts_share_is_loosened_where_it_stands() -> None:
    shared: dict[str, Any] = {"type": "object", "$defs": {"t": {"type": "string", "x": 1}}, "properties": {}}
    shared["properties"] = {one: {"$ref": "#/$defs/t"} for one in "abc"}
    found = Loosenings(lambda schema: "x" if '"x": 1' in json.dumps(schema) else None, 1).of(shared)
    assert found is not None
    assert found[1] == ("x of $.$defs.t: x",)
    assert found[0]["properties"] == shared["properties"]


@pytest.mark.parametrize("where", ["$defs", "definitions"])
def test_what_refers_to_a_definition_stays_beside_what_is_loosened(where: str) -> None:
    style = style_of("hermes")
    words = words_of(style, tokens=True)
    node = {"type": "object", "properties": {"n": {"type": "integer"}, "next": {"$ref": f"#/{where}/node"}}}
    named = {
        "x": {"type": "array", "uniqueItems": True},
        "y": {"type": "array", "items": {"$ref": f"#/{where}/node"}},
    }
    parameters = {"type": "object", "properties": named, "required": ["y"], where: {"node": node}}
    shape = shape_of(style, Opening("call"), [{"name": "f", "parameters": parameters}], "f")
    assert shape is not None
    grammar = words.grammars.shaped(shape)
    (note,) = grammar.notes
    assert note.endswith("uniqueItems of $.x: no grammar holds it")
    assert begins(words, grammar, '{"y": [{"n": 1, "next": {"n": 2')
    assert not begins(words, grammar, '{"y": [{"n": "a"')


def test_too_many_parts_are_too_much() -> None:
    many = {"type": "object", "properties": {f"p{n}": {"not": {}} for n in range(500)}}
    assert Loosenings(lambda schema: "no" if "not" in str(schema) else None, 1).of(many) is None


def test_what_may_be_left_out_is_not_loosened_for_what_must_be_there() -> None:
    style = style_of("hermes")
    none = {"type": "integer", "minimum": 5, "maximum": 2}
    words = words_of(style, tokens=True)
    parameters = {"type": "object", "properties": {"a": none, "b": none}, "required": ["b"]}
    shape = shape_of(style, Opening("call"), [{"name": "f", "parameters": parameters}], "f")
    assert shape is not None
    (note,) = words.grammars.shaped(shape).notes
    assert note.endswith("minimum of $.b: no value has it")


@pytest.mark.parametrize("name", ["minimax-m3", "glm-4.7", "kimi-k3", "deepseek-v3.2"])
def test_a_multiple_is_followed_by_its_mark(name: str) -> None:
    style = style_of(name)
    words, grammar = grammar_of(style, {"type": "number", "minimum": 4, "maximum": 16, "multipleOf": 2})
    for seed in range(12):
        walk(words, grammar.matcher(), random.Random(seed), most=300)


def test_what_is_wrong_with_a_part_is_said_of_its_place() -> None:
    step = {"type": "integer", "multipleOf": 1_000_003}
    listed = {"type": "array", "items": {"type": "object", "properties": {"k": step}}}
    _, grammar = grammar_of(style_of("hermes"), {"anyOf": [listed, {"type": "null"}]})
    (note,) = grammar.notes
    place = "$.x.anyOf[0][].k"
    said = f"multipleOf of {place}: {place} is a multiple of 1,000,003 "
    assert note.startswith(f"arguments of f are not held to all of its schema: {said}")


def test_a_required_name_that_a_closed_object_does_not_have_is_left_out() -> None:
    closed = {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": False}
    words, grammar = grammar_of(style_of("hermes"), {**closed, "required": ["a", "b"]}, must=True)
    assert [note.partition("schema: ")[2] for note in grammar.notes] == [
        "required of $.x: 'b' is none of its properties"
    ]
    assert begins(words, grammar, '{"n": 5, "x": {"a": null}}')
    assert not begins(words, grammar, '{"n": 5, "x": {"a": null, "b"')
    assert not begins(words, grammar, '{"n": 5, "x": {}')


def test_a_long_list_of_required_names_is_not_searched_for_each_property() -> None:
    class Listed(list[str]):
        def __contains__(self, _: object) -> bool:
            raise AssertionError("20,000 names take a second")

    schema = {"properties": {"a": {}, "b": {}}, "required": Listed("b")}
    assert [(at, needed) for at, _, needed in parts_of(schema)] == [(".a", False), (".b", True)]
