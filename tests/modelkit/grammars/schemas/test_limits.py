"""What a schema must be before a grammar is made of it. Without these refusals the library would end the
process or take gigabytes, or a model would be led into a value that never ends.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLTokenizer

from modelkit.errors import RequestError
from modelkit.grammars.compiling.compiler import Grammars
from modelkit.grammars.compiling.matchers import check, definition_of, started
from modelkit.grammars.forms import Form
from modelkit.grammars.notations.limits import grammar_fault
from modelkit.grammars.notations.outline import DEEPEST_RULE
from modelkit.grammars.schemas.depth import DEEPEST_JSON, depth_of_json
from modelkit.grammars.schemas.limits import schema_fault
from modelkit.grammars.schemas.numbers import unenforceable_number
from modelkit.tokenizer import load_tokenizer
from runtime.sampling.constraint import allows
from tests.support.tiny import write_tokenizer
from tests.support.walks import takes, words_of

NULL = {"type": "null"}


@pytest.fixture(scope="module")
def grammars(tmp_path_factory: pytest.TempPathFactory) -> Grammars:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return Grammars(load_tokenizer({"tokenizer.json": folder / "tokenizer.json"}), 320, frozenset({256}))


def of(required: bool, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties] if required else []}


def chain(count: int) -> dict[str, Any]:
    """A schema whose references lead so far."""
    links = {f"d{i}": of(True, n={"$ref": f"#/$defs/d{i + 1}"}) for i in range(count)}
    return {"$defs": {**links, f"d{count}": NULL}, "$ref": "#/$defs/d0"}


ITSELF = {"$ref": "#"}
ENDLESS = {
    "at once": (of(True, a=ITSELF), r"\$ -> \$\.a -> "),
    "in a list with an item": (of(True, a={"type": "array", "minItems": 1, "items": ITSELF}), r"\$\.a\[0\]"),
    "by every choice": (of(True, a={"anyOf": [ITSELF, of(True, b=ITSELF)]}), r"\$\.a"),
    "by a part": (of(True, a={"allOf": [ITSELF, {"title": "again"}]}), r"\$\.a"),
    "in turns": (
        {
            "$defs": {"x": of(True, y={"$ref": "#/$defs/y"}), "y": of(True, x={"$ref": "#/$defs/x"})},
            **of(False, start={"$ref": "#/$defs/x"}),
        },
        r"\$\.start",
    ),
}
FREE = {"type": "object", "minProperties": 2}
ENDING = {
    "any property": {"type": "object", "minProperties": 1},
    "any property beside a required one": {**FREE, "required": ["b"]},
    "left out": of(False, a=ITSELF),
    "null": of(True, a={"anyOf": [ITSELF, NULL]}),
    "an empty list": of(True, a={"type": "array", "items": ITSELF}),
    "another choice": of(True, a={"anyOf": [{"type": "string"}, ITSELF]}),
    "one of two types": {**of(True, a=ITSELF), "type": ["object", "null"]},
}


@pytest.mark.parametrize("case", ENDLESS)
def test_a_schema_that_requires_itself_is_refused_with_its_circle(grammars: Grammars, case: str) -> None:
    schema, circle = ENDLESS[case]
    with pytest.raises(RequestError, match=rf"without end .*{circle}"):
        grammars.compile(Form("format", "schema", json.dumps(schema)))


@pytest.mark.parametrize("case", ENDING)
def test_a_schema_whose_values_can_end_is_taken(grammars: Grammars, case: str) -> None:
    grammars.compile(Form("format", "schema", json.dumps(ENDING[case])))


def test_an_object_that_may_have_too_few_properties_is_refused_with_the_reason(grammars: Grammars) -> None:
    with pytest.raises(RequestError, match="JSON schema: Unsatisfiable"):
        grammars.compile(Form("format", "schema", json.dumps({**FREE, "additionalProperties": False})))


@pytest.mark.parametrize("links", [1_000, 20_000])
def test_references_that_lead_deep_do_not_end_the_process(grammars: Grammars, links: int) -> None:
    with pytest.raises(RequestError, match="schemas deep when its references are followed"):
        grammars.compile(Form("format", "schema", json.dumps(chain(links))))


@pytest.mark.parametrize("depth", [80, 300, 2_000])
@pytest.mark.parametrize(
    ("inner", "ends"), [('{"items":', "}"), ('{"enum":[', "]}")], ids=["schemas", "values"]
)
def test_a_schema_that_is_written_deep_is_refused_with_the_reason(depth: int, inner: str, ends: str) -> None:
    text = '{"properties":{"a":' * depth + inner + "1" + ends + "}}" * depth
    with pytest.raises(RequestError, match=r"written (too|[\d,]+ objects and lists) deep"):
        check(Form("format", "schema", text))


def test_a_schema_that_is_written_as_deep_as_may_be_is_taken() -> None:
    for inner in ("{}", '{"maximum":0.55}', '{"format":"date","pattern":"^2"}'):
        depth = DEEPEST_JSON - depth_of_json(json.loads(inner))
        check(Form("format", "schema", '{"items":' * depth + inner + "}" * depth))


def test_rules_that_lead_deep_do_not_end_the_process(grammars: Grammars) -> None:
    rules = [f'r{i}: "a" r{i + 1}' for i in range(5_000)]
    with pytest.raises(RequestError, match=f"deep; at most {DEEPEST_RULE} are taken"):
        grammars.compile(Form("grammar", "lark", "\n".join(["start: r0", *rules, 'r5000: "b"'])))


@pytest.mark.parametrize(
    "rule",
    [
        "?{one}: {next}",  # in place of it, where it has one part
        "!{one}: {next}",
        "{one}: {next}X",  # two names
        "{one}: /x\nq{one}: y/? {next}",
        '{one}: "a"i{next}',
        "{one}: X~1e0{next}",
        '{one}[stop="]"]: {next}',
        "%import common.INT {one}: {next}",
        '{one}: "q:" {next}',
    ],
)
def test_every_way_to_write_a_rule_counts(rule: str) -> None:
    rules = [rule.format(one=f"r{i}", next=f"r{i + 1}") for i in range(600)]
    why = grammar_fault("\n".join(["start: r0", 'X: "x"', *rules, 'r600: "b"']))
    assert why == f"its rules refer to each other 602 deep; at most {DEEPEST_RULE} are taken"


def test_capital_letters_of_gbnf_tell_its_rules_apart(grammars: Grammars) -> None:
    rules = [f'Rule{i} ::= "a" Rule{i + 1}' for i in range(600)]
    with pytest.raises(RequestError, match=f"deep; at most {DEEPEST_RULE} are taken"):
        grammars.compile(Form("grammar", "lark", "\n".join(["root ::= Rule0", *rules, 'Rule600 ::= "b"'])))


@pytest.mark.parametrize("text", [r"start: /[^\s\S]/", "root ::= [^\\x00-\\U0010ffff]"])
def test_a_grammar_of_no_text_is_told_so(text: str, grammars: Grammars) -> None:
    with pytest.raises(RequestError, match="not a usable grammar: no text fits it, or its rules never"):
        grammars.compile(Form("grammar", "lark", text))


@pytest.mark.parametrize("text", ["", "# nothing", 'a: "b"', 'START: "a"'])
def test_a_grammar_without_a_start_is_told_so(text: str, grammars: Grammars) -> None:
    with pytest.raises(RequestError, match=r"Empty grammar|no start rule found"):
        grammars.compile(Form("grammar", "lark", text))


@pytest.mark.parametrize(
    "text", ["start[max_tokens=3]: /.*/", 'start[lazy]: "::="', '?start: "a"', '!start: "a"']
)
def test_a_start_may_be_written_in_every_way(text: str, grammars: Grammars) -> None:
    grammars.compile(Form("grammar", "lark", text))


@pytest.mark.parametrize("attributes", ["temperature=0.5", 'stop="]", temperature=0'])
def test_a_temperature_of_a_rule_is_refused(attributes: str) -> None:
    """The library reads it, and nothing here acts on it."""
    assert "has no effect" in (grammar_fault(f"start: a\na[{attributes}]: /x+/") or "")
    assert (
        grammar_fault('start: a\na[max_tokens=3]: "[temperature=1]" temperature\ntemperature: /[t=]/') is None
    )


def test_schemas_in_a_grammar_are_looked_at() -> None:
    assert "without end" in (grammar_fault(f"start: %json {json.dumps(of(True, a=ITSELF))}") or "")


def test_chains_of_a_usual_length_are_taken(grammars: Grammars) -> None:
    grammars.compile(Form("format", "schema", json.dumps(chain(60))))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (of(False, **{f"p{i}": {} for i in range(6_000)}), "6,000 properties that may be left out"),
        (of(True, a={"type": "number", "multipleOf": 99_999_989}), r"\$\.a is a multiple of 99,999,989"),
        (of(True, a={"type": "integer", "multipleOf": 2**31}), r"\$\.a is a multiple of 2,147,483,648"),
        (of(True, a={"type": "number", "multipleOf": 99_991}), r"\$\.a is a multiple of 99,991"),
        (
            {"allOf": [of(False, **{f"p{i}": {}}) for i in range(5_000)]},
            r"\$ is held to too many schemas at once",
        ),
        ({"allOf": [{}] * 5_000, "required": [f"p{i}" for i in range(5_000)]}, "too many schemas at once"),
        ({"allOf": [{} for _ in range(5_000)], "anyOf": [{}] * 5_000}, "too many schemas at once"),
        ({"allOf": [{"type": "string", "pattern": "a" * n} for n in range(1, 6)]}, "5 patterns and formats"),
    ],
    ids=[
        "optional",
        "step",
        "step of twos",
        "odd step",
        "properties of many",
        "required of many",
        "choices of many",
        "patterns",
    ],
)
def test_what_takes_gigabytes_to_compile_or_cannot_be_held_is_refused(
    grammars: Grammars, schema: dict[str, Any], why: str
) -> None:
    with pytest.raises(RequestError, match=why):
        grammars.compile(Form("format", "schema", json.dumps(schema)))


@pytest.mark.parametrize(
    "inner",
    [
        {"const": -(2**63)},
        {"const": [{"deep": -(2**63) + 1}]},
        {"enum": ["a", -(2**63) + 512]},
        {"type": "integer", "enum": [-1e300]},
        {"type": "integer", "minimum": -1e300, "maximum": -(2**63)},
        {"type": "integer", "allOf": [{"exclusiveMinimum": -1e19}, {"exclusiveMaximum": -1e19}]},
    ],
    ids=str,
)
def test_the_lowest_numbers_of_64_bits_do_not_end_the_process(
    grammars: Grammars, inner: dict[str, Any]
) -> None:
    """The library takes what is below zero for the negative of what is above, and goes on so for ever."""
    text = json.dumps(of(True, a={"type": "array", "items": inner}))
    with pytest.raises(RequestError, match="the lowest that a grammar is made for"):
        grammars.compile(Form("format", "schema", text))
    with pytest.raises(RequestError, match="the lowest that a grammar is made for"):
        grammars.compile(Form("grammar", "lark", f"start: %json {text}"))


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 12345678901234567890, 2**64])
def test_numbers_that_no_double_is_are_refused(grammars: Grammars, number: int) -> None:
    """The library would write another one."""
    with pytest.raises(RequestError, match="doubles, which have no such one"):
        grammars.compile(Form("format", "schema", json.dumps({"enum": [1, {"id": number}]})))


@pytest.mark.parametrize("step", [0.57, 0.07, 1.005, 2**33, 1e-20])
def test_steps_of_more_digits_than_are_counted_are_refused(grammars: Grammars, step: float) -> None:
    """By the number that was written, not by what doubles make of it on the way."""
    text = json.dumps(of(True, a={"type": "number", "multipleOf": step}))
    with pytest.raises(RequestError, match=f"multipleOf {step}, and a grammar's numbers are doubles"):
        grammars.compile(Form("format", "schema", text))


@pytest.mark.parametrize("step", [0.01, 0.35, 4.35, 1e-7, 2.5, 2**18, 10**9])
def test_steps_whose_digits_are_counted_are_taken(step: float) -> None:
    schema = {"type": "number", "multipleOf": step}
    assert unenforceable_number(schema) is None
    assert not started(
        LLTokenizer("byte"), definition_of(Form("format", "schema", json.dumps(schema)), {})
    ).is_error()


@pytest.mark.parametrize("number", [-(10**18), 2**63 - 1, 2**60, 10000, -0.5, -(2**53)])
def test_other_numbers_are_written_as_they_are(number: float) -> None:
    words = words_of(None, tokens=False)
    matcher = words.grammars.compile(Form("format", "schema", json.dumps({"const": number}))).matcher()
    for token in words.tokenizer.encode(json.dumps(number), add_special=False):
        assert allows(matcher.mask(), token)
        matcher.advance(token)


@pytest.mark.parametrize("bound", [2**63 - 1, 2**64 - 1, 1e300])
def test_bounds_beyond_64_bits_are_those_of_64_bits(bound: float) -> None:
    words = words_of(None, tokens=False)
    for kind in ("integer", "number"):
        for more in ({"minimum": 0, "maximum": bound}, {"minimum": -bound}, {"exclusiveMaximum": bound}):
            text = json.dumps(of(True, a={"type": kind, **more}))
            grammar = words.grammars.compile(Form("format", "schema", text))
            assert takes(words, grammar, '{"a": 7}')
            low, high = more.get("minimum", -7), more.get("maximum", more.get("exclusiveMaximum", 7))
            for number in (
                low - 1 if low > -1e20 else "-1" + "0" * 301,
                high + 1 if high < 1e20 else "1" + "0" * 301,
            ):
                assert takes(words, grammar, f'{{"a": {number}}}') == (number in (-8, 8))


@pytest.mark.parametrize(
    "key", ["required", "properties", "type", "items", "anyOf", "allOf", "minItems", "multipleOf", "$ref"]
)
@pytest.mark.parametrize(
    "value", [5, "x", [1], [[1]], {}, None, float("nan"), float("inf"), -1, 1e300], ids=repr
)
def test_values_of_wrong_kinds_are_no_reason_to_fail(key: str, value: object) -> None:
    schema_fault({"type": "object", "properties": {"a": {key: value}}, key: value})
