"""Schemas in the words of other dialects are held as they are meant."""

import json
from typing import Any

import pytest

from modelkit.chat.message import ToolCall
from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.writing import write_calls
from modelkit.grammars.answers.shape import shape_of
from modelkit.grammars.forms import Form
from tests.support.answers import collected, plain
from tests.support.styles import style_of
from tests.support.walks import events_of, takes, words_of

WORDS = words_of(None, tokens=False)
BOUND = {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "maximum": 5, "exclusiveMaximum": False}
CASES: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    ({"x": BOUND}, [{"x": 1}, {"x": 5}, {}], [{"x": 0}, {"x": 6}]),
    ({"x": {"not": BOUND, "type": "integer"}}, [{"x": 0}, {"x": 6}], [{"x": 1}, {"x": 5}]),
    (
        {"x": {"type": "string", "required": True}, "y": {"type": "null", "required": False}},
        [{"x": ""}],
        [{}],
    ),
]
NAMES = [
    ("STRING", "3", 3),
    ("str", "3", 3),
    ("int", 3, "a"),
    ("INTEGER", 3, 1.5),
    ("float", 1.5, "a"),
    ("bool", True, 0),
    ("dict", {"a": 1}, []),
    ("tuple", [1], {"a": 1}),
    (["STRING", "NULL"], None, 3),
]


@pytest.mark.parametrize(("properties", "fit", "others"), CASES)
def test_flags_are_held(properties: dict[str, Any], fit: list[Any], others: list[Any]) -> None:
    schema = json.dumps({"type": "object", "properties": properties})
    grammar = WORDS.grammars.compile(Form("format", "schema", schema))
    assert grammar.notes == ()
    assert [one for one in fit if not takes(WORDS, grammar, json.dumps(one))] == []
    assert [one for one in others if takes(WORDS, grammar, json.dumps(one))] == []


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder"])
def test_types_of_tools_have_other_names(name: str) -> None:
    style = style_of(name)
    for number, (kind, fits, other) in enumerate(NAMES):
        parameters = {"type": "OBJECT" if number % 2 else "dict", "properties": {"x": {"type": kind}}}
        tools = [{"name": "f", "parameters": {**parameters, "required": ["x"]}, "strict": True}]
        shape = shape_of(style, Opening(), tools, "f")
        assert shape is not None
        grammar = WORDS.grammars.shaped(shape)
        said = write_calls(style, [ToolCall("f", {"x": fits}, "")])
        assert takes(WORDS, grammar, said)
        (call,) = collected(events_of(style, Opening(), tools, plain([said]))).tool_calls
        assert call.arguments == {"x": fits}
        if name == "hermes":  # elsewhere any text is one
            assert not takes(WORDS, grammar, write_calls(style, [ToolCall("f", {"x": other}, "")]))


def test_flags_are_held_where_arguments_are_raw() -> None:
    style = style_of("qwen3-coder")
    shape = shape_of(style, Opening(), [{"name": "f", "parameters": {"properties": {"x": BOUND}}}], "f")
    assert shape is not None
    grammar = WORDS.grammars.shaped(shape)
    texts = [write_calls(style, [ToolCall("f", {"x": number}, "")]) for number in range(7)]
    assert [takes(WORDS, grammar, one) for one in texts] == [False, *[True] * 5, False]


@pytest.mark.parametrize("kind", ["array", "string"])
def test_a_call_whose_arguments_cannot_be_tagged_ends(kind: str) -> None:
    style = style_of("qwen3-coder")
    shape = shape_of(style, Opening(), [{"name": "f", "parameters": {"type": kind}}], "f")
    assert shape is not None
    assert takes(WORDS, WORDS.grammars.shaped(shape), write_calls(style, [ToolCall("f", {}, "")]))
