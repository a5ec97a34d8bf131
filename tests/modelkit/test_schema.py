"""JSON schemas as people mean them: which objects are closed (those whose properties are named, where that
can do no harm), and what may be null.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import modelkit
from modelkit.schema import as_meant

ROOT = Path(__file__).resolve().parents[2]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
A: dict[str, Any] = {"properties": {"a": {"type": "integer"}}}
B: dict[str, Any] = {"properties": {"b": {"type": "string"}}}
SHUT = {**A, "additionalProperties": False}


def closed(schema: Any) -> Any:
    return json.loads(as_meant(json.dumps(schema)))


CLOSED: dict[str, tuple[Any, Any]] = {
    "the whole": (A, SHUT),
    "none": ({"properties": {}}, {"properties": {}, "additionalProperties": False}),
    "a property": ({"properties": {"x": A}}, {"properties": {"x": SHUT}, "additionalProperties": False}),
    "items": ({"type": "array", "items": A}, {"type": "array", "items": SHUT}),
    "prefix items": ({"prefixItems": [A, {}]}, {"prefixItems": [SHUT, {}]}),
    "choices": ({"anyOf": [A, {"type": "null"}]}, {"anyOf": [SHUT, {"type": "null"}]}),
    "one of": ({"oneOf": [A, A]}, {"oneOf": [SHUT, SHUT]}),
    "a definition": (
        {"$defs": {"T": A}, "items": {"$ref": "#/$defs/T"}},
        {"$defs": {"T": SHUT}, "items": {"$ref": "#/$defs/T"}},
    ),
    "a definition as pydantic wraps it": (
        {"$defs": {"T": A}, "items": {"allOf": [{"$ref": "#/$defs/T"}], "title": "t"}},
        {"$defs": {"T": SHUT}, "items": {"allOf": [{"$ref": "#/$defs/T"}], "title": "t"}},
    ),
    "values of an open object": ({"additionalProperties": A}, {"additionalProperties": SHUT}),
    "names that patterns describe": (
        {"patternProperties": {"^a": {}}, "minProperties": 1},
        {"patternProperties": {"^a": {}}, "minProperties": 1, "additionalProperties": False},
    ),
    "a tree": (
        {"properties": {"next": {"$ref": "#"}}},
        {"properties": {"next": {"$ref": "#"}}, "additionalProperties": False},
    ),
    "nothing that is not evaluated": ({**A, "unevaluatedProperties": False}, SHUT),
    "others that are not evaluated": (
        {
            "properties": {"x": {**A, "unevaluatedProperties": {"type": "null"}}},
            "unevaluatedProperties": True,
        },
        {"properties": {"x": {**A, "additionalProperties": {"type": "null"}}}, "additionalProperties": True},
    ),
    "evaluated all the same": (
        {**A, "additionalProperties": True, "unevaluatedProperties": False},
        {**A, "additionalProperties": True},
    ),
    "items that are not evaluated": (
        {"prefixItems": [A], "unevaluatedItems": False},
        {"prefixItems": [SHUT], "items": False},
    ),
    "one of which some must be there": (
        {**A, "anyOf": [{"required": ["a"]}, {"required": []}]},
        {**SHUT, "anyOf": [{"required": ["a"]}, {"required": []}]},
    ),
}


@pytest.mark.parametrize(("schema", "wanted"), CLOSED.values(), ids=CLOSED)
def test_named_properties_are_all_there_are(schema: Any, wanted: Any) -> None:
    assert closed(schema) == wanted


def test_an_object_of_as_many_as_are_named_is_closed() -> None:
    assert closed({**A, "minProperties": 1}) == {**SHUT, "minProperties": 1}


KEPT: dict[str, Any] = {
    "any object": {"type": "object"},
    "said to be open": {**A, "additionalProperties": True},
    "others of a kind": {**A, "additionalProperties": {"type": "string"}},
    "names by pattern": {**A, "patternProperties": {"^x": {}}},
    "more than are named": {**A, "minProperties": 3},
    "a count that is none": {**A, "minProperties": "1"},
    "required but not named": {**A, "required": ["b"]},
    "required with no name": {**A, "required": [{"a": 1}]},
    "put together": {"allOf": [A, B]},
    "choices that add": {**A, "anyOf": [B, {"type": "object"}]},
    "a definition that adds": {"$defs": {"T": B}, "$ref": "#/$defs/T", **A},
    "a definition that is added to elsewhere": {
        "$defs": {"T": B},
        "additionalProperties": True,
        "properties": {"x": {"$ref": "#/$defs/T"}, "y": {"allOf": [{"$ref": "#/$defs/T"}, A]}},
    },
    "conditions": {**A, "if": B, "then": B},
    "items that are looked at": {"contains": {"type": "null"}, "unevaluatedItems": False},
    "a reference that leads elsewhere": {**A, "$ref": "other.json"},
    "values that look like schemas": {"const": A, "enum": [A], "default": A},
}


@pytest.mark.parametrize("schema", KEPT.values(), ids=KEPT)
def test_what_closing_could_contradict_stays(schema: Any) -> None:
    assert closed(schema) == schema


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "{" * 100_000, '{"properties": {"a": {"maximum": 1e999}}}', "5"]
)
def test_what_cannot_be_read_or_written_is_left_to_the_compiler(text: str) -> None:
    assert as_meant(text) == text


def test_what_is_nullable_may_be_null() -> None:
    """As OpenAPI 3.0 has it: beside a type, and not in a list of values that lacks it."""
    text, both = {"type": "string", "nullable": True}, {"type": ["string", "null"], "nullable": True}
    assert closed(text) == both
    assert closed({"properties": {"default": text, "nullable": text}, "additionalProperties": True}) == {
        "properties": {"default": both, "nullable": both},
        "additionalProperties": True,
    }
    assert closed({"$defs": {"T": text}, "items": {"$ref": "#/$defs/T"}})["$defs"] == {"T": both}
    for kept in ({"type": "string", "nullable": False}, {"nullable": True}, {"const": text}):
        assert closed(kept) == kept


def test_order_and_numbers_stay() -> None:
    text = '{"properties": {"z": {"multipleOf": 0.01}, "a": {"maximum": 123456789012345678901234567890}}}'
    assert as_meant(text) == text[:-1] + ', "additionalProperties": false}'


@pytest.fixture(scope="module")
def island(tmp_path_factory: pytest.TempPathFactory) -> Iterator[modelkit.Model]:
    home = tmp_path_factory.mktemp("island")
    modelkit.create(ROOT / "Modelfile.example", name="island", quantize_draft="q4", home=home)
    with modelkit.load("island", home=home) as model:
        yield model


@pytest.mark.parametrize("asked", ["as it is", "any object", "two levels"])
def test_small_models_end_their_json(island: modelkit.Model, asked: str) -> None:
    nested = {"type": "object", "properties": {"of": CITY, "n": {"type": "integer"}}, "required": ["of"]}
    form = {"as it is": CITY, "any object": "json", "two levels": nested}[asked]
    whole = 0
    for seed in range(12):
        answer = island.generate("What is the capital of France?", format=form, seed=seed)
        outside = re.sub(r'"(?:[^"\\]|\\.)*"?', "", answer.text)
        assert max((len(run) for run in re.findall(r"\s+", outside)), default=0) <= 21
        assert answer.complete == (answer.cut is None)
        if answer.complete:
            whole += 1
            value = json.loads(answer.text)
            jsonschema.validate(value, {"type": "object"} if form == "json" else form)
            assert form == "json" or set(value) <= set(form["properties"])
    assert whole >= 8


def test_an_answer_says_what_cut_it(island: modelkit.Model) -> None:
    short = island.generate("Tell me a story.", format=CITY, num_predict=3, seed=0)
    assert (short.reason, short.cut, short.complete) == ("length", "num_predict", False)
    full = island.generate(
        [5] * (island.context_length - 4), raw=True, num_predict=-1, seed=0, regex="a{2000}"
    )
    assert (full.reason, full.cut, full.complete) == ("length", "context", False)
    exact = island.generate([5] * (island.context_length - 4), num_predict=4, seed=0, regex="a{2000}")
    assert (exact.reason, exact.cut) == ("length", "context")
    stopped = island.generate("Tell me a story.", stop=["a"], seed=0)
    assert (stopped.reason, stopped.cut, stopped.complete) == ("stop", None, False)
    ended = island.generate("Tell me a story.", temperature=0)
    assert (ended.reason, ended.cut, ended.complete) == ("stop", None, True)
