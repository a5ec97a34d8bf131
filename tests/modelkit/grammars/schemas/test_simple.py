"""Tools' schemas of usual keywords go into the answer's grammar without a trial by themselves."""

import json
import random
from typing import Any

import llguidance
import pytest

from modelkit.chat.styles.opening import Opening
from modelkit.grammars.answers.shape import shape_of
from modelkit.grammars.compiling import compiler, joint_trial, matchers
from modelkit.grammars.compiling.compiler import Grammars
from modelkit.grammars.compiling.grammar import Grammar
from modelkit.grammars.forms import Form
from modelkit.grammars.schemas import simple
from modelkit.grammars.schemas.simple import is_simple
from tests.support import random_tools
from tests.support.styles import style_of
from tests.support.walks import STOP, words_of

SIMPLE: list[dict[str, Any]] = [
    {"x": {"type": "string", "minLength": 1, "maxLength": 40, "description": "d"}},
    {"x": {"type": ["integer", "null"], "minimum": 0, "exclusiveMaximum": 2, "default": None}},
    {"x": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 3}},
    {"x": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "title": "X"}},
    {"x": {"type": "object", "additionalProperties": {"type": "number"}}, "y": {"const": "k"}},
]
NOT_SIMPLE: list[dict[str, Any]] = [
    {"x": {"type": "string", "pattern": "^a"}},
    {"x": {"$ref": "#"}},
    {"x": {"type": "object", "properties": {}, "required": ["y"]}},
    {"x": {"type": "integer", "enum": ["a"]}},
    {"x": {"type": "integer", "minimum": "1"}},
    {"x": {"type": "integer", "minimum": True}},
    {"x": {"type": "string", "minLength": 3, "maxLength": 2}},
    {"x": {"type": "integer", "minimum": 5, "exclusiveMaximum": 6}},
    {"x": {"type": "array", "items": {"const": "a"}, "minItems": 10_000}},
    {"x": {"type": "strin"}},
    {"x": {"type": []}},
    {"x": {"type": ["string", []]}},
    {"x": {"enum": []}},
    {"x": {"enum": [1]}},
    {"x": {"anyOf": []}},
    {"x": {"anyOf": [{}], "type": "string"}},
    {"x": {"format": "date", "maxLength": 3}},
    {"x": {"format": "nosuch"}},
    {"x": {"not": {}}},
    {"x": True},
]


def of(properties: Any) -> dict[str, Any]:
    required = ["x"] if "x" in properties else []
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The schemas that are looked at by themselves, or with other tools' in one grammar."""
    found, alone, several = list[str](), compiler.made_of, joint_trial.accepted_together

    def made_of(native: Any, form: Any, marks: Any) -> Any:
        found.append(form.text)
        return alone(native, form, marks)

    def accepted_together(native: Any, schemas: Any) -> Any:
        found.extend(schemas)
        return several(native, schemas)

    monkeypatch.setattr(compiler, "made_of", made_of)
    monkeypatch.setattr(joint_trial, "accepted_together", accepted_together)
    return found


def grammar_of(name: str, schemas: list[Any], *, strict: bool = False) -> Grammar:
    """Of tools with these properties, for a model that is asked for the first time."""
    words = words_of(style_of(name), tokens=True)
    tools = [{"name": f"f{i}", "parameters": of(one), "strict": strict} for i, one in enumerate(schemas)]
    shape = shape_of(style_of(name), Opening(), tools)
    assert shape is not None
    return Grammars(words.tokenizer, words.size, frozenset({STOP})).shaped(shape)


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "harmony", "gemma4"])
def test_simple_schemas_are_not_tried(name: str, tried: list[str]) -> None:
    assert grammar_of(name, SIMPLE).notes == ()
    assert tried == []
    (note,) = grammar_of(name, [*SIMPLE, {"x": {"type": "string", "pattern": r"(a)\1"}}]).notes
    assert note.startswith("arguments of f5 are not held")
    assert all("pattern" in one for one in tried[:1])


def test_each_schema_is_tried_where_the_whole_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, tried: list[str]
) -> None:
    monkeypatch.setattr(simple, "is_simple", lambda _: True)
    (note,) = grammar_of("hermes", [*SIMPLE, {"x": {"type": "string", "pattern": "("}}]).notes
    assert note.startswith("arguments of f5 are not held to all of its schema: pattern of $.x")
    assert len({*tried}) > len(SIMPLE)


def test_only_schemas_whose_keywords_fit_are_simple() -> None:
    assert all(is_simple(of(one)) for one in SIMPLE)
    assert [one for one in NOT_SIMPLE if is_simple(of(one))] == []


def test_what_is_simple_is_taken_alone() -> None:
    byte = llguidance.LLTokenizer("byte")
    every = [random_tools.whole(random.Random(seed), ["a", "b", "c", "d"])[0] for seed in range(40)]
    found = [one for one in every if is_simple(one)]
    assert len(found) > 12
    for one in [*found, *map(of, SIMPLE)]:
        form = Form("parameters", "schema", json.dumps(one))
        assert not matchers.made_of(byte, form, {}).matcher.is_error()
