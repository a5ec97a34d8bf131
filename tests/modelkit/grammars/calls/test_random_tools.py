"""Whatever tools there are: what a grammar allows is split into calls whose arguments fit."""

import random
from itertools import product
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.style import MarkedCall, Style
from modelkit.grammars.answers.shape import shape_of
from runtime.sampling.constraint import allows
from tests.support.answers import collected, folded, plain
from tests.support.styles import style_of
from tests.support.walks import Words, events_of, walk, words_of

# Some of each way to write a call.
ROWS = [
    *["hermes", "xlam", "command-a", "mistral-v11", "kimi-k2", "harmony", "lfm2", "olmo3", "gemma4"],
    *["qwen3-coder", "glm-4.7", "minimax-m3", "deepseek-v3.2", "kimi-k3"],
]

NAMES = st.sampled_from(
    ["city", "größe", "日本", "a.b", "x-y", "_", "n1", "CamelCase", "item", "name", "true"]
)
ODD = st.sampled_from(["two words", 'say"s', "it's", "$ref", "a/b", "a:b", "a=b", "(x)", "[0]", "π r²", "🙂"])
TEXTS = st.text("abé日\"'\\<>{}[]|:, \n1", max_size=6)
NUMBERS = st.integers(-99, 99)


def numbers(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    both = st.tuples(NUMBERS, NUMBERS).map(sorted).map(lambda two: {"minimum": two[0], "maximum": two[1]})
    bounds = st.one_of(st.just({}), NUMBERS.map(lambda least: {"exclusiveMinimum": least}), both)
    return bounds.map(lambda more: {"type": kind, **more})


LENGTHS = st.one_of(
    st.just({}),
    st.tuples(st.integers(0, 3), st.integers(0, 5)).map(lambda n: {"minLength": n[0], "maxLength": sum(n)}),
)
SAID = st.one_of(
    st.sampled_from(["^[a-z]+$", "[0-9]", "^a|b$", r"^\d{2}\w?$", "^$", "^.{0,3}$"]).map(
        lambda pattern: {"type": "string", "pattern": pattern}
    ),
    st.sampled_from(["date", "email", "uuid", "ipv4"]).map(lambda name: {"type": "string", "format": name}),
    st.integers(1, 4).map(lambda least: {"type": "string", "minLength": least}),
)
VALUES = st.one_of(TEXTS, NUMBERS, st.booleans(), st.none())
LEAVES = st.one_of(
    LENGTHS.map(lambda more: {"type": "string", **more}),
    numbers("integer"),
    numbers("number"),
    SAID,
    SAID.map(lambda text: {"anyOf": [text, {"type": "integer"}]}),
    st.sampled_from(["boolean", "null"]).map(lambda kind: {"type": kind}),
    st.lists(TEXTS, min_size=1, max_size=3, unique=True).map(lambda listed: {"enum": listed}),
    st.lists(st.one_of(NUMBERS, st.none()), min_size=1, max_size=3, unique=True).map(
        lambda listed: {"enum": listed}
    ),
    VALUES.map(lambda value: {"const": value}),
    st.lists(
        st.sampled_from(["string", "integer", "boolean", "null"]), min_size=2, max_size=3, unique=True
    ).map(lambda kinds: {"type": kinds}),
    LENGTHS.map(lambda more: {"anyOf": [{"type": "string", **more}, {"type": "null"}]}),
)


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    named = draw(st.dictionaries(st.one_of(NAMES, NAMES, ODD), inner, max_size=3))
    required = [name for name in named if draw(st.booleans())]
    more = draw(st.sampled_from([{}, {}, {"additionalProperties": False}, {"additionalProperties": True}]))
    return {"type": "object", "properties": named, "required": required, **more}


def lists(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    sizes = st.one_of(
        st.just({}),
        st.tuples(st.integers(0, 2), st.integers(0, 2)).map(lambda n: {"minItems": n[0], "maxItems": sum(n)}),
    )
    return st.tuples(inner, sizes).map(lambda two: {"type": "array", "items": two[0], **two[1]})


def choices(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.lists(inner, min_size=1, max_size=2).map(lambda ways: {"anyOf": ways})


VALUED = st.recursive(
    LEAVES, lambda inner: st.one_of(objects(inner), lists(inner), choices(inner)), max_leaves=4
)
PARAMETERS = st.one_of(objects(VALUED), objects(VALUED), st.none())
TOOLS = st.dictionaries(
    st.sampled_from(["f", "get_weather", "ns.do-it", "größe", "f2"]), PARAMETERS, min_size=1, max_size=3
)


CHECKER = jsonschema.FormatChecker(["date", "email", "uuid", "ipv4"])


def check(style: Style, tools: dict[str, dict[str, Any] | None], seed: int) -> None:
    rng, words = random.Random(seed), words_of(style, tokens=True)
    asked = [{"name": name, **({"parameters": its} if its else {})} for name, its in tools.items()]
    choice = rng.choice(["required", *tools])
    shape = shape_of(style, Opening(), asked, choice)
    assert shape is not None
    grammar = words.grammars.shaped(shape)
    no_way = ("with the name", "that the schema does not name")  # to write it in this style
    assert all(any(one in note for one in no_way) for note in grammar.notes)
    loose = {note.split()[2] for note in grammar.notes}
    ids, whole = walk(words, grammar.matcher(), rng, most=1200)
    calls = collected(events_of(style, Opening(), asked, words.pieces(ids))).tool_calls
    assert calls or not whole, words.text(ids)
    for call in calls if whole else calls[:-1]:
        if call.name in loose:
            continue
        assert call.written is None, call.written
        schema = tools[call.name] or {"additionalProperties": False}
        closed = {"additionalProperties": False, **schema}
        jsonschema.validate(dict(call.arguments), closed, format_checker=CHECKER)
    same_however_it_comes(style, asked, words, ids, rng)


def same_however_it_comes(
    style: Style, asked: list[dict[str, Any]], words: Words, ids: list[int], rng: random.Random
) -> None:
    text = words.text(ids)
    cuts = sorted(rng.sample(range(len(text) + 1), min(len(text), rng.randint(0, 20))))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    one, many = (events_of(style, Opening(), asked, plain(some)) for some in ([text], parts))
    assert folded(one) == folded(many)


@pytest.mark.parametrize("name", ROWS)
@settings(max_examples=4, derandomize=True)
@given(tools=TOOLS, seed=st.integers(0, 2**32))
def test_any_tools(name: str, tools: dict[str, dict[str, Any] | None], seed: int) -> None:
    style = style_of(name)
    check(style, tools, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
@settings(max_examples=150)
@given(tools=TOOLS, seed=st.integers(0, 2**32))
def test_any_tools_for_long(name: str, tools: dict[str, dict[str, Any] | None], seed: int) -> None:
    style = style_of(name)
    check(style, tools, seed)


@pytest.mark.parametrize("name", ["deepseek-v3.2", "harmony"])
@pytest.mark.parametrize("seed", range(4))
def test_going_back_over_marks_leaves_nothing_behind(name: str, seed: int) -> None:
    """As a block of drafts does it, of which none stands."""
    style = style_of(name)
    rng, words = random.Random(seed), words_of(style, tokens=True)
    shape = shape_of(style, Opening(), [{"name": "look", "parameters": MIXED}], "required")
    assert shape is not None
    grammar = words.grammars.shaped(shape)
    ids, _ = walk(words, grammar.matcher(), rng, most=150)
    matcher = grammar.matcher()
    while ids:
        size = rng.randint(1, 12)
        block, ids = ids[:size], ids[size:]
        for token in block:
            matcher.advance(token)
        matcher.back(len(block))
        for token in block:
            assert allows(matcher.mask(), token)
            matcher.advance(token)


MIXED = {"type": "object", "properties": {"x": {"enum": ["ab", 3, None]}}, "required": ["x"]}


@pytest.mark.parametrize("name", ["qwen3-coder", "minimax-m3", "kimi-k3"])
def test_choices_of_several_types_hold_where_texts_are_raw(name: str) -> None:
    style = style_of(name)
    for seed in range(6):
        check(style, {"f": MIXED}, seed)


def test_nothing_between_marks_is_no_text_that_its_pattern_forbids() -> None:
    style = style_of("minimax-m3")
    lower, empty = {"type": "string", "pattern": "^[a-z]+$"}, {"type": "object", "properties": {}}
    for seed in range(4):
        check(style, {"f": {"properties": {"x": {"anyOf": [lower, empty]}}, "required": ["x"]}}, seed)


@pytest.mark.parametrize("name", ["qwen3-coder", "glm-4.7", "minimax-m3", "gemma4", "kimi-k3"])
@pytest.mark.parametrize(("least", "most"), [(2, 2), (0, 1), (1, 3)])
def test_a_raw_text_as_long_as_it_may_be_is_followed_by_its_mark(name: str, least: int, most: int) -> None:
    style = style_of(name)
    schema = {
        "properties": {"x": {"type": "string", "minLength": least, "maxLength": most}},
        "required": ["x"],
    }
    for seed in range(4):
        check(style, {"f": {"type": "object", **schema}}, seed)


@pytest.mark.parametrize("name", ["qwen3-coder", "minimax-m3", "glm-4.7"])
def test_a_raw_text_that_is_too_short_does_not_take_its_mark_in(name: str) -> None:
    style = style_of(name)
    assert isinstance(style.form, MarkedCall)
    assert style.form.tag is not None
    words = words_of(style, tokens=False)
    text = {"type": "string", "minLength": 30, "maxLength": 60}
    tool = {"name": "f", "parameters": {"properties": {"x": text}, "required": ["x"]}}
    shape = shape_of(style, Opening("call"), [tool], "f")
    assert shape is not None
    matcher = words.grammars.shaped(shape).matcher()
    for token in matcher.forced(100):
        matcher.advance(token)
    mark = style.form.tag.close.replace("{name}", "x").strip()
    for token in map(words.letters.index, mark[:-1]):
        matcher.advance(token)
    mask = matcher.mask()
    assert not allows(mask, words.letters.index(mark[-1]))
    assert allows(mask, words.letters.index("a"))


@pytest.mark.parametrize("name", ["qwen3-coder", "minimax-m3"])
def test_a_raw_text_that_no_number_may_be_is_read_as_one(name: str) -> None:
    style = style_of(name)
    either = {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0, "maximum": 0}]}
    for seed in range(8):
        check(style, {"f": {"type": "object", "properties": {"x": either}, "required": ["x"]}}, seed)


@pytest.mark.parametrize("name", ["lfm2", "gemma4"])
def test_a_way_that_no_value_has_is_none_of_a_call(name: str) -> None:
    """Here one of a condition: x is an object, and where it is a text it is "a"."""
    x = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    text, a = ({"properties": {"x": one}} for one in ({"type": "string"}, {"const": "a"}))
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "required": ["x"]}
    schema |= {"if": text, "then": a}
    for seed in range(2):
        check(style_of(name), {"f": {**schema, "$defs": {"x": x}}}, seed)


@pytest.mark.parametrize("name", ["lfm2", "gemma4"])
@pytest.mark.parametrize("must", [True, False], ids=["required", "optional"])
def test_thousands_of_properties_are_enforced(name: str, must: bool) -> None:
    style = style_of(name)
    named = {f"p{i}": {"const": i} for i in range(2_000)}
    tool = {"name": "f", "parameters": {"properties": named, "required": [*named] if must else ["p0"]}}
    shape = shape_of(style, Opening("call"), [tool], "f")
    assert shape is not None
    assert words_of(style, tokens=True).grammars.shaped(shape).notes == ()


@pytest.mark.parametrize("name", ["lfm2", "gemma4"])
@given(musts=st.lists(st.booleans(), max_size=5))
@settings(max_examples=12, derandomize=True)
def test_exactly_those_properties_that_may_be_left_out_are(name: str, musts: list[bool]) -> None:
    style = style_of(name)
    words = words_of(style, tokens=True)
    named = {f"p{i}": {"const": i} for i in range(len(musts))}
    required = [one for one, must in zip(named, musts, strict=True) if must]
    tool = {"name": "f", "parameters": {"type": "object", "properties": named, "required": required}}
    shape = shape_of(style, Opening("call"), [tool], "f")
    assert shape is not None
    grammar = words.grammars.shaped(shape)
    form = {"lfm2": "{name}={value}", "gemma4": "{name}:{value}"}[name]
    opened, comma, closed = {"lfm2": ("", ", ", ")"), "gemma4": ("{", ",", "}")}[name]
    for chosen in product([True, False], repeat=len(musts)):
        parts = [form.format(name=f"p{i}", value=i) for i, one in enumerate(chosen) if one]
        whole = opened + comma.join(parts) + closed
        matcher, taken = grammar.matcher(), 0
        for token in map(words.letters.index, whole):
            if not allows(matcher.mask(), token):
                break
            matcher.advance(token)
            taken += 1
        fits = all(one or not must for one, must in zip(chosen, musts, strict=True))
        assert (taken == len(whole)) == fits, whole


@pytest.mark.parametrize(
    ("name", "wrong"), [("lfm2", "two words"), ("gemma4", "a:b"), ("qwen3-coder", "a>b")]
)
def test_a_name_that_a_style_cannot_write_is_noted(name: str, wrong: str) -> None:
    style = style_of(name)
    tool = {"name": "f", "parameters": {"properties": {wrong: {"type": "null"}}, "required": [wrong]}}
    shape = shape_of(style, Opening(), [tool], "f")
    assert shape is not None
    (note,) = words_of(style, tokens=True).grammars.shaped(shape).notes
    assert note.startswith("arguments of f are any object: ")
    assert wrong in note
