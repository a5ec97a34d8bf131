"""Answers in JSON of a model of random weights: what is right about them, the grammar alone has made."""

import json
import random
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from modelkit.errors import RequestError
from modelkit.grammars.compiling.matchers import check
from modelkit.grammars.forms import Form, read_form
from modelkit.grammars.patterns.formats import FORMATS
from modelkit.model import Model
from modelkit.tokenizer import load_tokenizer
from runtime.sampling.constraint import allows
from tests.support.effort import at_most
from tests.support.forms import PERSON, matcher_of


def some_schema(rng: random.Random, depth: int = 2) -> dict[str, Any]:
    """A schema whose answers are short."""
    simple = [
        {"type": "boolean"},
        {"type": "null"},
        {"type": "integer", "minimum": rng.randint(-50, 0), "maximum": rng.randint(1, 999)},
        {"type": "string", "maxLength": rng.randint(0, 6)},
        {"enum": rng.sample(["a", "bé", 1, 2.5, None, "\n"], 3)},
        {"const": {"fixed": [1, "x"]}},
        {"type": "string", "pattern": "^[a-f]{2,4}-[0-9]$"},
    ]
    if depth == 0 or rng.random() < 0.4:
        return rng.choice(simple)
    inner = [some_schema(rng, depth - 1) for _ in range(3)]
    if rng.random() < 0.3:
        return {"anyOf": [inner[0], {"type": "null"}]}
    if rng.random() < 0.4:
        return {"type": "array", "items": inner[0], "minItems": 1, "maxItems": 3}
    names = rng.sample(["x", "some name", "é", "z_1"], 3)
    return {
        "type": "object",
        "properties": dict(zip(names, inner, strict=True)),
        "required": names[: rng.randint(0, 3)],
        "additionalProperties": False,
    }


@pytest.mark.parametrize("seed", range(8))
def test_answers_to_random_schemas_parse_and_fit(model: Model, seed: int) -> None:
    schema = some_schema(random.Random(seed))
    answer = model.generate("Say it", format=schema, seed=seed, temperature=1.2, num_predict=3000)
    assert answer.reason == "stop"
    jsonschema.validate(json.loads(answer.text), schema)


def test_a_format_that_is_not_known_says_nothing_of_a_text(model: Model) -> None:
    text = {"type": "string", "maxLength": 12}
    more = {"$ref": "#/$defs/More", "contentMediaType": "application/json"}
    schema = {
        "type": "object",
        "properties": {
            "file": {**text, "format": "path"},
            "more": {"type": "array", "items": more, "minItems": 1, "maxItems": 1},
            "day": {"type": "string", "format": "date"},
            "size": {
                "type": "integer",
                "format": "int32",
                "minimum": 0,
                "maximum": 9,
                "contentEncoding": "x",
            },
            "format": {"enum": ["path"]},
        },
        "required": ["file", "more", "day", "size", "format"],
        "$defs": {"More": {"type": ["string", "null"], "maxLength": 3, "format": "binary"}},
    }
    answer = model.generate("Say it", format=schema, seed=3, num_predict=3000)
    assert [*answer.notes] == [
        "format: any text is taken for 'binary' ($.$defs.More)",
        "format: any text is taken for 'path' ($.file)",
        "format: any text is taken for 'application/json' ($.more[])",
    ]
    jsonschema.validate(answer.parsed, schema)
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", answer.parsed["day"])
    again = model.chat([{"role": "user", "content": "Who?"}], format=json.dumps(schema), num_predict=1)
    assert answer.notes == again.notes


def test_that_items_may_come_twice_is_taken_and_said(model: Model) -> None:
    def kept(**more: Any) -> dict[str, Any]:
        return {"type": "array", "items": {"enum": [7]}, "minItems": 2, "maxItems": 2, **more}

    schema = {
        "type": "object",
        "properties": {
            "sizes": kept(uniqueItems=False),
            "tags": {"anyOf": [kept(uniqueItems=True), {"const": "x", "uniqueItems": True}]},
            "more": {"$ref": "#/$defs/More"},
            "uniqueItems": {"const": True},
        },
        "required": ["sizes", "tags", "more", "uniqueItems"],
        "$defs": {"More": kept(uniqueItems=True)},
    }
    answer = model.generate("Say it", format=schema, seed=3, num_predict=3000)
    said = "format: an item may come twice, uniqueItems is not enforced"
    assert [*answer.notes] == [f"{said} ($.$defs.More)"]
    assert (answer.parsed["sizes"], answer.parsed["more"]) == ([7, 7], [7, 7])
    assert answer.parsed["uniqueItems"] is True
    check(Form("format", "schema", json.dumps(schema)))
    assert not model.generate("", format=schema["properties"]["sizes"], num_predict=1).notes
    with pytest.raises(RequestError, match="uniqueItems"):
        model.generate("", format={"type": "array", "uniqueItems": "yes"})


def test_that_a_name_may_come_twice_is_taken_and_said(model: Model) -> None:
    two: dict[str, Any] = {
        "type": "object",
        "additionalProperties": {"const": 1},
        "minProperties": 2,
        "maxProperties": 2,
    }
    two["propertyNames"] = {"maxLength": 3}
    answer = model.generate(
        "Say it", format={"type": "object", "properties": {"a": two}, "required": ["a"]}, seed=3
    )
    assert len(json.loads(answer.text, object_pairs_hook=list)[0][1]) == 2
    assert [*answer.notes] == ["format: a name may be written twice, minProperties counts it as often ($.a)"]
    named = {"properties": {"a": {}, "b": {}}, "additionalProperties": False, "minProperties": 2}
    assert not model.generate("", format={"type": "object", **named}, num_predict=1).notes


LISTED: dict[str, dict[str, Any]] = {
    "a list": {"propertyNames": {"enum": ["a", "b", "c"]}},
    "one name": {"propertyNames": {"const": "a"}, "minProperties": 1},
    "a reference": {"propertyNames": {"$ref": "#/$defs/Names"}, "minProperties": 1},
    "at most": {"propertyNames": {"$ref": "#/$defs/Names"}, "maxProperties": 1},
    "none": {"propertyNames": {"$ref": "#/$defs/Names"}, "additionalProperties": False},
    "its own": {
        "properties": {"b": {"const": "x"}},
        "required": ["b"],
        "propertyNames": {"$ref": "#/$defs/Names"},
    },
    "a pattern": {"propertyNames": {"pattern": "^[ab]$"}},
    "a reference to a pattern": {"propertyNames": {"$ref": "#/$defs/Short"}},
    "a length": {"propertyNames": {"type": "string", "maxLength": 2}},
    "a format": {"propertyNames": {"format": "ipv4"}, "minProperties": 1},
    "texts": {"propertyNames": {"type": "string"}, "maxProperties": 0},
    "one in another": {
        "propertyNames": {"enum": ["d"]},
        "additionalProperties": {
            "type": "object",
            "propertyNames": {"$ref": "#/$defs/Names"},
            "additionalProperties": {"enum": [1, 2]},
        },
    },
}


@pytest.mark.parametrize("case", LISTED)
def test_names_that_are_described_are_the_only_ones(model: Model, case: str) -> None:
    inner = {"type": "object", "additionalProperties": {"enum": [3, None]}, **LISTED[case]}
    schema = {
        "type": "object",
        "properties": {"v": inner},
        "required": ["v"],
        "$defs": {
            "Names": {"enum": ["a", "b"], "title": "Names", "type": "string"},
            "Short": {"pattern": "^.$", "description": "One letter."},
        },
    }
    found = set[str]()
    for seed in range(12):
        answer = model.generate("Say it", format=schema, seed=seed, num_predict=2000, temperature=2)
        assert answer.complete
        jsonschema.validate(answer.parsed, schema)
        found.add(json.dumps(answer.parsed))
    assert len(found) > 1 or case in ("none", "one name", "its own", "one in another", "texts")
    assert not answer.notes


def test_names_that_make_a_schema_too_long_are_refused() -> None:
    names = {"enum": [f"n{number}" for number in range(2000)]}
    inner: dict[str, Any] = {"type": "object", "propertyNames": {"$ref": "#/$defs/Names"}}
    for schema in (
        {"anyOf": [inner] * 20_000},
        {"propertyNames": {"enum": [*names["enum"], *range(1000)]}},
        {"propertyNames": {"pattern": r"^\p{L}", "maxLength": 3}},
    ):
        with at_most(5), pytest.raises(RequestError, match="format is not a usable JSON schema"):
            check(Form("format", "schema", json.dumps({**schema, "$defs": {"Names": names}})))


def test_what_is_no_format_is_refused_as_before(model: Model) -> None:
    for wrong in (5, None, ["path"]):
        with pytest.raises(RequestError, match="format is not a usable JSON schema"):
            model.generate("", format={"type": "object", "properties": {"a": {"format": wrong}}})


def test_a_key_that_is_there_twice_is_refused(model: Model) -> None:
    """As in every other JSON: nobody can know which one was meant."""
    twice = '{"type": "object", "properties": {"a": {"type": "string", "type": "integer"}}}'
    with pytest.raises(RequestError, match="the key `type` is there twice"):
        model.generate("", format=twice)
    assert read_form(twice.replace(', "type": "integer"', ""))


def test_all_formats_of_texts_that_the_library_knows_are_known() -> None:
    known = {"date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"}
    assert set(FORMATS) >= known
    for name in known:
        check(Form("format", "schema", json.dumps({"type": "string", "format": name})))


def test_any_object_will_do_for_json(model: Model) -> None:
    assert model.generate("hello", format="json", seed=3, num_predict=8).text.startswith("{")


@pytest.mark.parametrize(("text", "fits"), [('{"a":[1,null]}', True), ('{ "b" : {} }', True), ("[1]", False)])
def test_json_means_an_object(tmp_path: Path, text: str, fits: bool) -> None:
    form = read_form("json")
    assert form is not None
    matcher = matcher_of(tmp_path, form, frozenset({256}))
    ids = load_tokenizer({"tokenizer.json": tmp_path / "tokenizer.json"}).encode(text, add_special=False)
    for token in ids:
        if not allows(matcher.mask(), token):
            break
        matcher.advance(token)
    assert matcher.ended is fits


def test_an_answer_that_is_cut_says_length(model: Model) -> None:
    answer = model.generate("hello", format=PERSON, seed=3, num_predict=5)
    assert (answer.reason, len(answer.ids)) == ("length", 5)


def flat(count: int) -> dict[str, Any]:
    """An object of so many properties."""
    return {"type": "object", "properties": {f"p{n}": {"type": "boolean"} for n in range(count)}}


def test_an_object_may_have_hundreds_of_properties(model: Model) -> None:
    schema = flat(700)
    answer = model.generate("Hi", raw=True, format=schema, num_predict=200, seed=1, temperature=0)
    if answer.complete:
        jsonschema.validate(json.loads(answer.text), schema)
    assert answer.text.lstrip().startswith("{")


def test_too_many_properties_are_told_before_an_answer_begins(model: Model) -> None:
    with pytest.raises(RequestError, match=r"format is not a usable JSON schema: .*2,600 properties"):
        model.generate("Hi", raw=True, format=flat(2600), num_predict=5)
