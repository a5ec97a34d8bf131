"""Structured answers of a model of random weights: what is right about them, the grammar alone has made."""

import json
import random
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import modelkit
from modelkit.errors import RequestError
from modelkit.grammars.compiler import Grammars
from modelkit.grammars.forms import MOST_CHARACTERS, Form, read_form
from modelkit.grammars.native import check
from modelkit.grammars.patterns import FORMATS
from modelkit.model import Model
from modelkit.tokenizer import load_tokenizer
from runtime.sampling.constraint import ConstraintFault, allows
from tests.support.tiny import TEMPLATE, write_model, write_tokenizer
from tests.support.walks import STOP, words_of

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["cat", "dog"]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = write_model(tmp_path_factory.mktemp("model"), template=TEMPLATE, max_position_embeddings=4096)
    with modelkit.load(folder) as model:
        yield model


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
        {"propertyNames": {"pattern": "^n", "maxLength": 3}},
    ):
        started = time.process_time()
        with pytest.raises(RequestError, match="format is no usable JSON schema"):
            check(Form("format", "schema", json.dumps({**schema, "$defs": {"Names": names}})))
        assert time.process_time() - started < 5


def test_what_is_no_format_is_refused_as_before(model: Model) -> None:
    for wrong in (5, None, ["path"]):
        with pytest.raises(RequestError, match="format is no usable JSON schema"):
            model.generate("", format={"type": "object", "properties": {"a": {"format": wrong}}})


def test_a_key_that_is_there_twice_is_refused(model: Model) -> None:
    """As in every other JSON: nobody can know which one was meant."""
    twice = '{"type": "object", "properties": {"a": {"type": "string", "type": "integer"}}}'
    with pytest.raises(RequestError, match="the key `type` is there twice"):
        model.generate("", format=twice)
    assert read_form(twice.replace(', "type": "integer"', ""))


def test_all_formats_of_texts_that_the_library_knows_are_known() -> None:
    known = {"date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"}
    assert set(FORMATS) == known
    for name in known:
        check(Form("format", "schema", json.dumps({"type": "string", "format": name})))


def test_the_answer_is_the_same_however_far_is_guessed(model: Model) -> None:
    asked: dict[str, Any] = {"format": PERSON, "seed": 7, "num_predict": 500, "repeat_penalty": 1.1}
    plain = model.chat([{"role": "user", "content": "Who?"}], draft_num_predict=0, **asked)
    guessing = model.chat([{"role": "user", "content": "Who?"}], **asked)
    assert guessing.text == plain.text
    jsonschema.validate(json.loads(plain.text), PERSON)


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


def test_a_regular_expression_is_matched_as_a_whole(model: Model) -> None:
    answer = model.generate("hello", regex="[a-c]{3,5}(é|ü)", seed=1, num_predict=50)
    assert re.fullmatch("[a-c]{3,5}(é|ü)", answer.text)


@pytest.mark.parametrize("grammar", ['root ::= "yes" | "no"', 'start: "yes" | "no"'], ids=["gbnf", "lark"])
def test_a_grammar_of_either_syntax(model: Model, grammar: str) -> None:
    assert model.generate("hello", grammar=grammar, seed=1).text in ("yes", "no")


@pytest.mark.parametrize(
    ("grammar", "wanted"),
    [
        ('root ::= (("ab")?){2} "c" # (x?)*', "(ab){0,2}c"),
        ('root ::= ((r{1,2} )? )+ "(a?)*" [?)*]\nr ::= "d" | "e"', r"[de]*\(a\?\)\*[?)*]"),
    ],
)
def test_repeats_of_repeats_in_gbnf(model: Model, grammar: str, wanted: str) -> None:
    text = model.generate("hello", grammar=grammar, seed=1, logit_bias={model.encode("(")[0]: 9.0}).text
    assert re.fullmatch(wanted, text)


GBNF = {
    "escapes": (
        'root ::= "\\u00e9\\U0001F600\\x41\\[" [\\u3042-\\u3044\\]]',
        ["\u00e9\U0001f600A[\u3043"],
        ["\u00e9"],
    ),
    "no operators": ("root ::= [a-z&&b] [+--] [~~]", ["a,~", "&-~"], ["a*~"]),
    "any character": ('root ::= .{2} "x"', ["\n\u00e9x"], ["ax"]),
    "text over lines": ('root ::= "a\nb"', ["a\nb"], ["ab"]),
    "a class and more of it": ('root ::= word "end"\nword ::= [a-z]+', ["aend", "endend"], ["end"]),
    "slashes": ('root ::= [/]+ "//" [^/]', ["///a", "////a"], ["//a"]),
    "circles": ('root ::= "(" root ")" | "x"', ["((x))"], ["(x"]),
    "a rule called start": ('start ::= "a"\nroot ::= "(" start ")"', ["(a)"], ["a"]),
    "names that are almost the same": (
        'Root ::= "1"\nroot ::= Root foo a-b a_b a-root fooBar foo-bar\nfoo ::= "2"\na-b ::= "3"\n'
        'a_b ::= "4"\na-root ::= "5"\nfooBar ::= "6"\nfoo-bar ::= "7"',
        ["1234567"],
        ["1133567", "1234566"],
    ),
    "an empty rule": ('root ::= "a" x\nx ::= ', ["a"], ["b"]),
    "repeated no time": (
        'root ::= "a" ("b" [(]{2} | r # ){0}\n){0} "c"{0,0} (("d"){0} "e")* r{ 0 } [f]{0} | "g"{0}\n'
        'r ::= "x"',
        ["a", "aee", ""],
        ["ab", "ac", "ade", "ax", "af", "g", "x"],
    ),
    "counted": ('root ::= (("a"{100}){100}){100} | "b"', ["b"], ["a"]),
}


@pytest.mark.parametrize("case", list(GBNF))
def test_gbnf_means_what_it_does_to_llama_cpp(case: str) -> None:
    grammar, good, bad = GBNF[case]
    words = words_of(None, tokens=False)
    made = words.grammars.compile(Form("grammar", "lark", grammar))

    def taken(text: str) -> bool:
        matcher = made.matcher()
        for token in words.tokenizer.encode(text, add_special=False):
            if matcher.ended or not allows(matcher.mask(), token):
                return False
            matcher.advance(token)
        return matcher.ended or allows(matcher.mask(), STOP)

    assert [text for text in good if not taken(text)] == []
    assert [text for text in bad if taken(text)] == []


def test_gbnf_that_leads_deep_is_refused_at_once() -> None:
    rules = "\n".join(f'{i} ::= {i + 1} "x" | "b"' for i in range(10_000))
    text = f'{rules}\n10000 ::= "q"\nroot ::= 0'
    assert len(text) <= MOST_CHARACTERS["lark"]
    begun = time.process_time()
    with pytest.raises(RequestError, match="refer to each other 10,002 deep"):
        check(Form("grammar", "lark", text))
    assert time.process_time() - begun < 5


def test_stop_strings_and_log_probabilities_stay_at_work(model: Model) -> None:
    answer = model.generate("hello", regex="a{3}b{50}", stop="bb", top_logprobs=2, seed=1)
    assert (answer.text, answer.stop, answer.reason) == ("aaa", "bb", "stop")
    assert len(answer.logprobs) == len(answer.ids)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"format": "xml"}, ["format", "'xml'", "json"]),
        ({"format": 3}, ["format", "3"]),
        ({"format": "{"}, ["no usable JSON schema", "line 1"]),
        ({"format": {"type": "objekt"}}, ["objekt"]),
        (
            {"format": {"properties": {"q": {"items": {"not": {"pattern": "a"}}}}}},
            ["`not` cannot be enforced: what does not fit `pattern`", "#/properties/q/items/not", "anyOf"],
        ),
        ({"format": {"x-guidance": {"lenient": True}, "type": "array", "contains": {}}}, ["contains"]),
        ({"format": {"x": {1, 2}}}, ["no JSON schema", "set"]),
        ({"format": {"enum": []}}, ["no usable JSON schema"]),
        (
            {"format": {"properties": {"q": {"oneOf": [{"type": "number"}, {"type": "integer"}]}}}},
            ["several ways of oneOf (at #/properties/q/oneOf)", "Write anyOf"],
        ),
        (
            {"format": {"type": "object", "patternProperties": {"a": {}, "^b": {}}}},
            ["one name may fit several of patternProperties (at #/patternProperties)", "Tell the patterns"],
        ),
        (
            {"format": {"properties": {"pattern": {}, "q": {"pattern": "^(?!x).*$"}}}},
            ["schema: `(?!` is a look ahead, which no grammar can hold (at #/properties/q/pattern)"],
        ),
        ({"format": {"$ref": "http://example.com/s.json"}}, ["http://example.com/s.json"]),
        ({"regex": "a("}, ["regex", "unclosed group"]),
        ({"grammar": "start: ("}, ["grammar", "1(9)"]),
        ({"grammar": "root ::= ("}, ["grammar", "line 1"]),
        ({"grammar": "start: start"}, ["grammar"]),
        ({"regex": "a" * (MOST_CHARACTERS["regex"] + 1)}, ["65,537 characters"]),
        ({"format": "json", "regex": "a"}, ["format and regex"]),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(
    model: Model, wanted: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(RequestError) as caught:
        model.generate("hello", **wanted)
    for word in words:
        assert word in str(caught.value)


def nested(depth: int) -> str:
    return '{"items":' * depth + "{}" + "}" * depth


HOSTILE = {
    "deep": Form("format", "schema", nested(30_000)),
    "many": Form("format", "schema", json.dumps({"enum": [f"v{i}" for i in range(60_000)]})),
    "long": Form("format", "schema", '{"type":"string","minLength":100000000}'),
    "loop": Form("format", "schema", '{"$ref":"#"}'),
    "repeats": Form("regex", "regex", "(a{0,1000}){0,1000}"),
    "blowup": Form("regex", "regex", "(.*a.{20}){30}"),
    "gbnf": Form("grammar", "lark", "root ::= " + "(" * 100_000),
}


@pytest.mark.parametrize("pattern", ["(a|aa){300}", "((a?){50}){50}a{2500}", "a{1000000}"])
def test_repeats_that_cost_too_much_are_refused_before_an_answer_begins(pattern: str) -> None:
    """The first mask is made; the token behind it would end the answer."""
    with pytest.raises(RequestError, match=r"^regex .* costs more to look through"):
        check(Form("regex", "regex", pattern))
    with pytest.raises(RequestError, match=r"^format .* costs more to look through"):
        check(Form("format", "schema", json.dumps({"type": "string", "pattern": f"^{pattern}$"})))
    inner = {"b": {"items": {"pattern": f"^{pattern}$"}}, "c": {"pattern": "^[a-z]{1,50000}$"}}
    with pytest.raises(RequestError, match=r"^format .* costs more to look through"):
        check(Form("format", "schema", json.dumps({"properties": {"a": {}, **inner}})))
    del inner["b"]
    check(Form("format", "schema", json.dumps({"properties": {"a": {}, **inner}})))


@pytest.mark.parametrize("form", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_end_one_way_or_the_other(tmp_path: Path, form: Form) -> None:
    write_tokenizer(tmp_path)
    tokenizer = load_tokenizer({"tokenizer.json": tmp_path / "tokenizer.json"})
    with suppress(RequestError, ConstraintFault):
        matcher = Grammars(tokenizer, 320, frozenset({256})).compile(form).matcher()
        for _ in range(50):
            mask = matcher.mask()
            matcher.advance(next(token for token in range(319, -1, -1) if allows(mask, token)))
            if matcher.ended:
                break


def matcher_of(folder: Path, form: Form, stops: frozenset[int]) -> Any:
    write_tokenizer(folder)
    tokenizer = load_tokenizer({"tokenizer.json": folder / "tokenizer.json"})
    return Grammars(tokenizer, 320, stops).compile(form).matcher()


def test_every_stop_id_may_end_the_answer_and_spare_ids_never_come(tmp_path: Path) -> None:
    matcher = matcher_of(tmp_path, Form("regex", "regex", "[a-z]+"), frozenset({256, 7}))
    begun = matcher.mask()
    assert not allows(begun, 256)
    matcher.advance(next(token for token in range(256) if allows(begun, token)))
    mask = matcher.mask()
    assert allows(mask, 256)
    assert allows(mask, 7)
    assert not any(allows(mask, token) for token in range(257, 320))


def test_without_stop_ids_an_answer_ends_when_nothing_can_follow(tmp_path: Path) -> None:
    matcher = matcher_of(tmp_path, Form("regex", "regex", "ab?"), frozenset())
    for left in (False, True):
        mask = matcher.mask()
        allowed = [token for token in range(320) if allows(mask, token)]
        assert len(allowed) == 1
        matcher.advance(allowed[0])
        assert matcher.ended is left


@pytest.mark.parametrize("tokens", [256, 100])
def test_without_stop_ids_no_token_is_taken_for_an_end(tmp_path: Path, tokens: int) -> None:
    """`!` is the first of all tokens."""
    write_tokenizer(tmp_path, tokens)
    grammars = Grammars(
        load_tokenizer({"tokenizer.json": tmp_path / "tokenizer.json"}), tokens + 1, frozenset()
    )
    matcher = grammars.compile(Form("regex", "regex", "!!")).matcher()
    for _ in range(2):
        assert not matcher.ended
        assert [token for token in range(tokens + 1) if allows(matcher.mask(), token)] == [0]
        matcher.advance(0)
    assert matcher.ended
    with pytest.raises(RequestError, match="nothing but an empty text"):
        grammars.compile(Form("grammar", "lark", 'start: ""'))


def test_a_matcher_goes_back_to_where_it_was(tmp_path: Path) -> None:
    matcher = matcher_of(tmp_path, Form("format", "schema", json.dumps(PERSON)), frozenset({256}))
    masks: list[bytes] = []
    taken: list[int] = []
    for _ in range(12):
        masks.append(matcher.mask())
        taken.append(next(token for token in range(320) if allows(masks[-1], token)))
        matcher.advance(taken[-1])
    matcher.back(7)
    assert matcher.mask() == masks[5]
    refused = next(token for token in range(320) if not allows(masks[5], token))
    with pytest.raises(ConstraintFault):
        matcher.advance(refused)
    matcher.back(0)
    assert matcher.mask() == masks[5]
    matcher.advance(taken[5])
    assert matcher.mask() == masks[6]


def test_equal_forms_are_compiled_once(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    grammars = Grammars(
        load_tokenizer({"tokenizer.json": tmp_path / "tokenizer.json"}), 320, frozenset({256})
    )
    forms = [read_form(dict(PERSON)), read_form(json.dumps(PERSON))]
    assert forms[0] == forms[1]
    assert forms[0] is not None
    assert grammars.compile(forms[0]) is grammars.compile(Form(forms[0].option, "schema", forms[0].text))


def test_a_caret_stays_under_what_it_points_at(model: Model) -> None:
    with pytest.raises(RequestError) as caught:
        model.generate("x", regex="a(b")
    assert caught.value.message.endswith(": unclosed group\n    a(b\n     ^")
    with pytest.raises(RequestError) as caught:
        model.generate("x", regex="x" * 5000 + "(")
    assert caught.value.message.endswith(": unclosed group")
    with pytest.raises(RequestError) as caught:
        model.generate("x", grammar='start: "a" b\nb: %%\n')
    lines = caught.value.message.splitlines()
    assert (lines[2].strip(), lines[3].strip()) == ("2 | b: %%", "^")


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
    with pytest.raises(RequestError, match=r"format is no usable JSON schema: .*2,600 properties"):
        model.generate("Hi", raw=True, format=flat(2600), num_predict=5)
