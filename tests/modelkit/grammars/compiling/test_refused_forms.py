"""Forms that cannot be used, or cost too much, are told before an answer begins: why, and where."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from modelkit.errors import RequestError
from modelkit.grammars.compiling.compiler import Grammars
from modelkit.grammars.compiling.matchers import check
from modelkit.grammars.forms import MOST_CHARACTERS, Form
from modelkit.model import Model
from modelkit.tokenizer import load_tokenizer
from runtime.sampling.constraint import ConstraintFault, allows
from tests.support.effort import at_most
from tests.support.tiny import write_tokenizer


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"format": "xml"}, ["format", "'xml'", "json"]),
        ({"format": 3}, ["format", "3"]),
        ({"format": "{"}, ["not a usable JSON schema", "line 1"]),
        ({"format": {"type": "objekt"}}, ["objekt"]),
        (
            {"format": {"properties": {"q": {"items": {"not": {"uniqueItems": True}}}}}},
            [
                "`not` cannot be enforced: what does not fit `uniqueItems`",
                "#/properties/q/items/not",
                "anyOf",
            ],
        ),
        (
            {"format": {"x-guidance": {"lenient": True}, "type": "array", "contains": {}, "maxContains": 9}},
            ["contains"],
        ),
        ({"format": {"x": {1, 2}}}, ["not a JSON schema", "set"]),
        ({"format": {"enum": []}}, ["not a usable JSON schema"]),
        (
            {"format": {"properties": {"q": {"oneOf": [{"type": "string"}, {"format": "uri"}]}}}},
            ["several ways of oneOf (at #/properties/q/oneOf)", "Write anyOf"],
        ),
        (
            {"format": {"type": "object", "patternProperties": {"a": {}, r"^b|\p{L}": {}}}},
            ["one name may fit several of patternProperties (at #/patternProperties)", "Tell the patterns"],
        ),
        (
            {"format": {"type": "string", "pattern": r"^a\d(?!x)"}},
            ["`(?!` is a look ahead", "(at #/pattern)"],
        ),
        (
            {"format": {"properties": {"pattern": {}, "q": {"pattern": "^a(?!x).*$"}}}},
            ["schema: `(?!` is a look ahead, which no grammar can hold (at #/properties/q/pattern)"],
        ),
        (
            {
                "format": {
                    "properties": {
                        "propertyNames": {},
                        "a/b": {"propertyNames": {"minLength": 1, "pattern": r"\pL"}},
                    }
                }
            },
            ["no grammar holds `propertyNames` (at #/properties/a~1b/propertyNames)", "Leave it out"],
        ),
        (
            {
                "format": {
                    "anyOf": [
                        {"type": "object", "properties": {f"p{way}-{n}": {} for n in range(60)}}
                        for way in range(60)
                    ]
                }
            },
            ["too many choices are possible at one place"],
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


LONG = "ab" * 10_001


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("schema", json.dumps({"items": {"enum": [{"a": LONG}]}})),
        ("schema", json.dumps({"properties": {LONG: {}}})),
        ("schema", json.dumps({"items": {"pattern": f"^{LONG}$"}})),
        ("schema", json.dumps({"items": {"pattern": "^a{20002}$"}})),
        ("regex", LONG),
        ("lark", f'start: "{LONG}"'),
        ("lark", f'root ::= "{LONG}" | "b"'),
    ],
)
def test_a_long_text_of_which_nothing_is_to_be_chosen_is_refused(kind: Any, text: str) -> None:
    """All of it is looked through at every token, on the thread of all answers."""
    with pytest.raises(RequestError, match=r"20,00[24] (characters|bytes).*at most 20,000 are taken"):
        check(Form("form", kind, text))
    check(Form("format", "schema", json.dumps({"type": "string", "description": LONG, "default": LONG})))


def test_many_readings_of_one_text_end_an_answer_before_they_take_long(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    tokenizer = load_tokenizer({"tokenizer.json": tmp_path / "tokenizer.json"})
    grammars = Grammars(tokenizer, 320, frozenset({256}))
    matcher = grammars.compile(
        Form("grammar", "lark", 'start: x{0,9000}\nx: y{0,10}\ny: "a" | "b"')
    ).matcher()
    (letter,) = tokenizer.encode("a", add_special=False)

    def go_on() -> None:
        for _ in range(60):
            matcher.mask()
            matcher.advance(letter)

    # Where a row has three times as much it takes 17 s.
    with at_most(5), pytest.raises(ConstraintFault, match="Current row has 3"):
        go_on()
    grammars.compile(Form("grammar", "lark", "start: " + " | ".join(f'"w{n}" start?' for n in range(4_000))))


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


@pytest.mark.parametrize(
    ("kind", "text", "place"),
    [
        ("regex", "ab{3}\n(a|aa){300}", "{300} at line 2, column 7"),
        ("lark", 'start: x "a"{60000}\nx: "b"{7}', "{60000} at line 1, column 13"),
        ("lark", 'root ::= "b"{2} "a"{1000000}', "{1000000} at line 1, column 20"),
        (
            "lark",
            'root ::= "b"\n# {9}\nx ::= "a"{3,1000000000000} "b"',
            "line 3: {3,1000000000000} repeats more than 2,147,483,647",
        ),
        (
            "schema",
            '{"items": {"anyOf": [{"pattern": "^a{3}$"}, {"pattern": "^a{1000000}$"}]}}',
            "at #/items/anyOf/1/pattern",
        ),
        (
            "schema",
            '{"pattern": "^a{10000000000}$"}',
            "repeated 10000000000 times; at most 2,147,483,647 are read (at #/pattern",
        ),
    ],
)
def test_what_is_repeated_too_often_is_told_with_its_place(kind: Any, text: str, place: str) -> None:
    with pytest.raises(RequestError) as caught:
        check(Form("grammar", kind, text))
    assert place in str(caught.value)
