"""What a schema says of a text holds where texts are written raw, or a note says that it does not."""

import json
from typing import Any

import pytest

from modelkit.chat.message import ToolCall
from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.style import MarkedCall
from modelkit.chat.styles.writing import write_calls
from modelkit.errors import RequestError
from modelkit.grammars.answers.shape import shape_of
from modelkit.grammars.compiling.grammar import Grammar
from modelkit.grammars.forms import Form
from modelkit.grammars.patterns.formats import FORMATS
from runtime.sampling.constraint import Matcher, allows
from tests.support.answers import collected, plain
from tests.support.styles import style_of
from tests.support.walks import STOP, Words, events_of, takes, words_of

AROUND = {
    "qwen3-coder": ("<parameter=x>\n", "\n</parameter>\n</function>\n</tool_call>"),
    "glm-4.7": ("<arg_key>x</arg_key><arg_value>", "</arg_value></tool_call>"),
    "gemma4": ('{x:<|"|>', '<|"|>}<tool_call|>'),
    "minimax-m3": ("]<]minimax[>[<x>", "]<]minimax[>[</x>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>"),
}
"""What stands around a text that is the argument x, and the only one."""
EITHER = pytest.mark.parametrize("tokens", [True, False], ids=["tokens", "spelt"])


def grammar_of(name: str, schema: Any, *, tokens: bool, strict: bool = False) -> tuple[Words, Grammar]:
    style = style_of(name)
    words = words_of(style, tokens=tokens)
    parameters = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    tool = {"name": "f", "parameters": parameters, "strict": strict}
    shape = shape_of(style, Opening("call"), [tool], "f")
    assert shape is not None
    return words, words.grammars.shaped(shape)


def begun(words: Words, grammar: Grammar, text: str) -> Matcher | None:
    """Where the grammar is behind a text; None where it does not go along with all of it."""
    matcher = grammar.matcher()
    for token in words.tokenizer.encode(text, add_special=False):
        if matcher.ended or not allows(matcher.mask(), token):
            return None
        matcher.advance(token)
    return matcher


def taken(words: Words, grammar: Grammar, text: str) -> bool:
    """Does the grammar go along with all of it, and end there?"""
    matcher = begun(words, grammar, text)
    return matcher is not None and (matcher.ended or allows(matcher.mask(), STOP))


SAYINGS: list[tuple[dict[str, Any], str, str]] = [
    ({"pattern": "^[a-z]+$"}, "abc", "ab1"),
    ({"pattern": "[0-9]"}, "a1b", "ab"),
    ({"pattern": "^a|b$"}, "xb", "ba"),
    ({"pattern": "^a/b[/\n]$"}, "a/b/", "a/bb"),
    ({"pattern": r"^\d{2}[\w-]?$"}, "12-", "1²"),
    ({"pattern": "^$"}, "", "a"),
    ({"pattern": "(^|,)a(,|$)"}, "b,a", "ba"),
    ({"pattern": "^a", "maxLength": 2}, "ab", "abc"),
    ({"pattern": "b$", "maxLength": 4}, "aab", "aabab"),
    ({"pattern": r"\bid\b", "maxLength": 9}, "an id", "idea"),
    ({"allOf": [{"pattern": "^a"}, {"pattern": "b$"}]}, "a-b", "a-"),
    ({"anyOf": [{"pattern": "^a+$"}, {"maxLength": 1}], "type": "string"}, "aaa", "bb"),
    ({"minLength": 3}, "abcd", "ab"),
    ({"format": "date"}, "2024-02-29", "2024-13-01"),
    ({"format": "email", "pattern": "^a"}, "a@b.c", "b@b.c"),
    ({"$ref": "#/properties/x/$defs/t", "$defs": {"t": {"pattern": "^q"}}, "maxLength": 2}, "qx", "qxx"),
    ({"enum": ["ab", "cd"], "pattern": "^a"}, "ab", "cd"),
    ({"enum": ["ab", "abcd"], "maxLength": 3}, "ab", "abcd"),
]


@EITHER
@pytest.mark.parametrize("name", AROUND)
@pytest.mark.parametrize(("schema", "good", "bad"), SAYINGS, ids=[str(one[0])[:40] for one in SAYINGS])
def test_what_is_said_of_a_text_holds(
    name: str, schema: dict[str, Any], good: str, bad: str, tokens: bool
) -> None:
    words, grammar = grammar_of(name, {"type": "string", **schema}, tokens=tokens)
    before, behind = AROUND[name]
    assert grammar.notes == ()
    assert taken(words, grammar, f"{before}{good}{behind}")
    assert not taken(words, grammar, f"{before}{bad}{behind}")


@pytest.mark.parametrize(("name", "tokens"), [("glm-4.7", False), ("qwen3-coder", True)])
def test_a_long_bound_holds(name: str, tokens: bool) -> None:
    words, grammar = grammar_of(name, {"type": "string", "maxLength": 4500}, tokens=tokens)
    before, behind = AROUND[name]
    assert taken(words, grammar, f"{before}{'a' * 4500}{behind}")
    assert not taken(words, grammar, f"{before}{'a' * 4501}{behind}")


MAP = {"type": "object", "additionalProperties": {"type": "integer"}, "properties": {"a": {"type": "null"}}}
ODD: list[tuple[dict[str, Any], list[str], list[str]]] = [
    (MAP, ["{a:null}", "{b:1,c:2}", "{a:null,b:1}", "{}"], ["{a:1}", "{b:null}"]),
    (
        {"type": "object", "patternProperties": {"^n_": {"type": "null"}}, "additionalProperties": False},
        ["{n_x:null}", "{}"],
        ["{x:null}", "{n_x:1}"],
    ),
    (
        {
            "type": "object",
            "patternProperties": {"(^|_)id$": {"type": "null"}},
            "additionalProperties": False,
        },
        ["{id:null}", "{a_id:null}", "{}"],
        ["{aid:null}", "{id_a:null}"],
    ),
    (
        {"type": "object", "additionalProperties": {}, "minProperties": 1, "maxProperties": 2},
        ["{a:1}", "{a:1,b:2}"],
        ["{}", "{a:1,b:2,c:3}"],
    ),
    (
        {"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}, "maxItems": 3},
        ["[]", "[1]", "[1,2]", "[1,2,3]"],
        ["[2]", "[1,3]", "[1,2,3,3]"],
    ),
    ({"allOf": [{"properties": {"a": {"const": 1}}}, MAP]}, ["{}", "{b:1}"], ["{a:1}", "{a:null}"]),
    ({"anyOf": [{"const": 1}, {"type": "boolean"}], "type": "boolean"}, ["true"], ["1"]),
    ({"$ref": "#/properties/x/$defs/n", "$defs": {"n": {"type": "integer"}}, "minimum": 5}, ["5"], ["4"]),
]


@pytest.mark.parametrize(("schema", "good", "bad"), ODD, ids=[str(one[0])[:40] for one in ODD])
def test_what_is_said_together_holds_in_a_notation_of_its_own(
    schema: dict[str, Any], good: list[str], bad: list[str]
) -> None:
    words, grammar = grammar_of("gemma4", schema, tokens=True)
    assert grammar.notes == ()
    assert [one for one in good if not taken(words, grammar, f"{{x:{one}}}<tool_call|>")] == []
    assert [one for one in bad if taken(words, grammar, f"{{x:{one}}}<tool_call|>")] == []


@EITHER
@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ({"pattern": "^</parameter>$"}, "no text without '</parameter>' was found"),
        ({"pattern": r"(a)\1"}, "`\\1` is a reference to a group"),
        ({"pattern": "(?=a)b"}, "`(?=` is a look ahead"),
        ({"maxLength": 100_000}, "32,768"),
        ({"allOf": [{"anyOf": [{"minLength": i}, {"maxLength": i}]} for i in range(1, 8)]}, "choices"),
    ],
)
def test_what_cannot_be_held_is_said_and_nothing_else_of_the_tool_is_lost(
    schema: dict[str, Any], what: str, tokens: bool
) -> None:
    text = {"type": "string", **schema}
    words, grammar = grammar_of("qwen3-coder", text, tokens=tokens)
    (note,) = grammar.notes
    assert note.startswith("arguments of f are not held to all of its schema: ")
    assert "$.x" in note
    assert what in note
    before, behind = AROUND["qwen3-coder"]
    assert taken(words, grammar, f"{before}{'anything ' * 600}{behind}")
    assert not taken(words, grammar, behind.strip())  # x is required
    with pytest.raises(RequestError, match=r"strict tool f cannot be enforced: .*\$\.x"):
        grammar_of("qwen3-coder", text, tokens=tokens, strict=True)


@pytest.mark.parametrize("name", ["hermes", "gemma4"])
def test_names_that_may_be_written_twice_are_said(name: str) -> None:
    schema = {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2}
    _, grammar = grammar_of(name, schema, tokens=True)
    (note,) = grammar.notes
    assert note.startswith("arguments of f are not held to all of its schema: a name may be written twice, ")
    assert note.endswith(" ($.x)")
    with pytest.raises(RequestError, match=r"strict tool f cannot be enforced: .* \(\$\.x\)"):
        grammar_of(name, schema, tokens=True, strict=True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '{"x": {"%s": 1}}'),
        ("qwen3-coder", '<parameter=x>\n{"%s": 1}\n'),
        ("glm-4.7", '<arg_key>x</arg_key><arg_value>{"%s": 1}</arg_value>'),
        ("gemma4", "{x:{%s:1}}"),
        ("lfm2", 'x={"%s": 1})'),
    ],
)
@pytest.mark.parametrize("names", [{"enum": ["a", "b"]}, {"pattern": "^[ab]$"}, {"maxLength": 1}])
def test_names_that_a_tool_describes_are_the_only_ones(name: str, text: str, names: Any) -> None:
    schema = {"type": "object", "propertyNames": names, "additionalProperties": {"type": "integer"}}
    words, grammar = grammar_of(name, schema, tokens=False, strict=True)
    assert not grammar.notes
    assert begun(words, grammar, text % "b")
    assert not begun(words, grammar, text % "bc")


GOOD = {
    "date": ["2024-02-29", "2000-02-29", "1999-12-31"],
    "time": ["23:59:60Z", "23:59:60-00:00", "00:00:00.25+05:30"],
    "date-time": ["2024-02-29T12:00:00Z", "2024-01-01t00:00:00.1-01:00"],
    "duration": ["P1Y2M3D", "PT5M", "P3W", "P1DT12H", "PT1H2M3S"],
    "email": ["a.b+c@x-y.org", "a@[127.0.0.1]"],
    "hostname": ["a", "x-y.example.org"],
    "ipv4": ["0.0.0.0", "255.249.199.9"],
    "ipv6": ["::", "::1", "1::", "1:2:3:4:5:6:7:8", "fe80::1:2", "::ffff:1.2.3.4", "1:2:3:4:5:6:1.2.3.4"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"],
    **{f"uuid{one}": [f"123e4567-e89b-{one}2d3-a456-426614174000"] for one in range(1, 9)},
    "ipvanyaddress": ["1.2.3.4", "::1"],
    **{one: ["", "TWFu", "TWE=", "TQ==", "+/+/TQ=="] for one in ("base64", "byte")},
    "uri": ["https://u:p@x.org:80/a/b?c=d#e", "mailto:a@b.c", "http://[::1]/", "urn:a:b", "file:///x", "a:"],
}
BAD = {
    "date": ["2024-02-30", "2023-02-29", "1900-02-29", "2024-2-1", "24-01-01", ""],
    "time": ["24:00:00Z", "12:00Z", "12:00:00", "12:00:60Z", "23:59:60+01:00"],
    "date-time": ["2024-01-01", "2024-01-01 00:00:00Z", "2024-01-01T00:00:00", "2023-02-29T00:00:00Z"],
    "duration": ["P", "PT", "P1Y2D", "1D", "P1W2D"],
    "email": ["a", "a@", ".a@b", "a b@c"],
    "hostname": ["-a", "a.", "a_b", "a" * 64],
    "ipv4": ["256.0.0.1", "01.2.3.4", "1.2.3"],
    "ipv6": ["1", ":1", "1:2:3:4:5:6:7:8:9", "1::2::3", "12345::", "1:2:3:4:5:6:7::8:9"],
    "uuid": ["123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400g"],
    **{f"uuid{one}": [f"123e4567-e89b-{one}2d3-c456-426614174000"] for one in range(1, 9)},
    "ipvanyaddress": ["1.2.3", "1", "::g"],
    **{one: ["TWF", "T===", "TWE", "T-_="] for one in ("base64", "byte")},
    "uri": ["x.org/a", "http://a b", "1a:b", "//x"],
}


@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_those_of_their_rfcs(name: str) -> None:
    words, grammar = grammar_of("glm-4.7", {"type": "string", "format": name}, tokens=True)
    before, behind = AROUND["glm-4.7"]
    assert [one for one in GOOD[name] if not taken(words, grammar, f"{before}{one}{behind}")] == []
    assert [one for one in BAD[name] if taken(words, grammar, f"{before}{one}{behind}")] == []


@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_the_same_in_json(name: str) -> None:
    words = words_of(None, tokens=False)
    schema = {"type": "string", "format": name, "pattern": "^[^xX]*$"}  # and hold beside a pattern
    grammar = words.grammars.compile(Form("format", "schema", json.dumps(schema)))
    good = [one for one in GOOD[name] if "x" not in one]
    assert [one for one in good if not taken(words, grammar, json.dumps(one))] == []
    others = [*BAD[name], *(one for one in GOOD[name] if "x" in one)]
    assert [one for one in others if taken(words, grammar, json.dumps(one))] == []


@pytest.mark.parametrize("name", ["minimax-m3", "gemma4", "lfm2", "qwen3-coder"])
def test_a_schema_inside_itself_takes_no_longer_with_its_branches(name: str) -> None:
    style = style_of(name)
    tree = {"type": "object", "properties": {one: {"$ref": "#"} for one in "abcdef"}}
    shape = shape_of(style, Opening("call"), [{"name": "f", "parameters": tree}], "f")
    assert shape is not None
    assert words_of(style, tokens=True).grammars.shaped(shape).notes == ()


INSIDE = ["<p>x{}\n y", "{}", "a\n{}\nb\n{}", "{} "]
"""Texts with what closes them."""


@pytest.mark.parametrize("said_of_x", [{}, {"minLength": 1}], ids=["free", "filled"])
@pytest.mark.parametrize("name", ["qwen3-coder", "mimo", "seed-oss", "minimax-m2"])
def test_a_text_may_have_in_it_what_closes_it(name: str, said_of_x: dict[str, int]) -> None:
    style, words = style_of(name), words_of(None, tokens=False)
    form = style.form
    assert isinstance(form, MarkedCall)
    assert form.tag is not None
    named = {"x": {"type": "string", **said_of_x}, "n": {"type": "integer"}}
    parameters = {"type": "object", "properties": named}
    tools = [{"name": "f", "parameters": {**parameters, "additionalProperties": {"type": "string"}}}]
    shape = shape_of(style, Opening(), tools, "f")
    assert shape is not None
    grammar = words.grammars.shaped(shape)
    close = form.tag.close.strip()
    for text in (one.replace("{}", close) for one in INSIDE):
        for more in ({}, {"n": 3}, {"y": text, "z": ""}):
            said = write_calls(style, [ToolCall("f", {"x": text, **more}, "")])
            assert takes(words, grammar, said)
            calls = collected(events_of(style, Opening(), tools, plain([said]))).tool_calls
            assert [dict(one.arguments) for one in calls] == [{"x": text, **more}]
        astray = f"{said.partition(close)[0]}{close}\n{form.prefix}"
        assert begun(words, grammar, astray[: astray.index("<", astray.index(close) + 1)]) is not None
        assert begun(words, grammar, astray) is None
    assert takes(words, grammar, write_calls(style, [ToolCall("f", {"x": ""}, "")])) == (not said_of_x)


@pytest.mark.parametrize("more", [{}, {"minProperties": 1}], ids=["followed", "listed"])
def test_a_text_that_is_not_empty_is_closed_as_any_is(more: dict[str, int]) -> None:
    words = words_of(None, tokens=False)
    parameters = {"type": "object", "properties": {"x": {"type": "string", "minLength": 1}}, **more}
    shape = shape_of(style_of("qwen3-coder"), Opening("call"), [{"name": "f", "parameters": parameters}], "f")
    assert shape is not None
    grammar = words.grammars.shaped(shape)
    before, end = "<parameter=x>\n", "</parameter>\n</function>\n</tool_call>"
    assert all(taken(words, grammar, f"{before}{one}{end}") for one in ("a", "a\n", "\n\n", "<", "</p\n"))
    assert not any(taken(words, grammar, f"{before}{one}{end}") for one in ("", "\n"))
