"""Whatever a grammar of calls allows, the splitter reads as calls whose arguments fit the tools' schemas."""

import json
import random
from typing import Any

import jsonschema
import pytest

from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.style import Style
from modelkit.chat.styles.table import styles
from modelkit.errors import RequestError
from modelkit.grammars.answers.shape import Shape, shape_of
from modelkit.grammars.forms import read_form
from runtime.sampling.constraint import allows
from tests.support.answers import collected, folded, plain
from tests.support.styles import style_of
from tests.support.walks import STOP, Words, events_of, takes, walk, words_of

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "unit": {"enum": ["c", "f"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "at": {"type": "object", "properties": {"deep": {"type": "boolean"}}, "required": ["deep"]},
    },
    "required": ["city", "unit"],
}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now", "description": "The time."}},
]
SCHEMAS = {
    "get_weather": {**WEATHER, "additionalProperties": False},
    "now": {"properties": {}, "additionalProperties": False},
}
CALLING = [style for style in styles() if style.form is not None]


def shape(style: Style, *given: Any, **more: Any) -> Shape:
    found = shape_of(style, *given, **more)
    assert found is not None
    return found


def asked(style: Style, rng: random.Random, *, tokens: bool) -> tuple[Opening, str, bool]:
    places = ["start", *([] if style.header else ["text", *(["thinking"] if style.think else [])])]
    place = rng.choice(places)
    written = style.think.open if place == "thinking" and style.think else ""
    # Marks that are text are not met by chance.
    choice = rng.choice(["auto", "required", "now", "get_weather"] if tokens else ["required", "get_weather"])
    return Opening(place, written), choice, rng.random() < 0.6  # pyright: ignore[reportArgumentType]


def check(style: Style, words: Words, seed: int, *, tokens: bool) -> None:
    rng = random.Random(seed)
    opening, choice, parallel = asked(style, rng, tokens=tokens)
    grammar = words.grammars.shaped(shape(style, opening, TOOLS, choice, parallel))
    assert grammar.notes == ()
    ids, whole = walk(words, grammar.matcher(), rng)
    pieces = words.pieces(ids)
    events = events_of(style, opening, TOOLS, pieces)
    calls = collected(events).tool_calls
    if whole:
        assert calls or choice == "auto"
        assert len(calls) <= 1 or (parallel and choice in ("auto", "required"))
    for call in calls if whole else calls[:-1]:
        assert call.written is None, call.written
        jsonschema.validate(dict(call.arguments), SCHEMAS[call.name])
    text = words.text(ids)
    in_one, in_many = (events_of(style, opening, TOOLS, plain(parts)) for parts in ([text], list(text)))
    assert folded(in_one) == folded(in_many)


@pytest.mark.parametrize("style", CALLING, ids=lambda style: style.name)
def test_what_is_allowed_is_a_call_that_fits(style: Style) -> None:
    for seed in range(2):
        check(style, words_of(style, tokens=True), seed, tokens=True)


@pytest.mark.parametrize("name", ["qwen3.5", "qwen3-coder", "functionary-v3.2"])
def test_of_many_tools_each_may_begin_in_the_text(name: str) -> None:
    style = style_of(name)
    many = [{"name": f"tool_{number}"} for number in range(150)]
    words = words_of(style, tokens=True)
    assert words.grammars.shaped(shape(style, Opening("start", ""), many)).notes == ()


@pytest.mark.parametrize("name", ["hermes", "llama3", "llama4-json", "llama4", "xlam"])
def test_of_many_tools_each_may_begin_without_marks(name: str) -> None:
    style = style_of(name)
    many = [{"name": f"mcp__server_{number % 17}__do_thing_{number}_of_the_day"} for number in range(400)]
    words = words_of(style, tokens=True)
    grammar = words.grammars.shaped(shape(style, Opening("start", ""), many))
    for text in ('```json\n{"name": "mcp__', "```python\n[mcp__server_3__do", '\n[{"name": "', "[mcp"):
        matcher = grammar.matcher()
        for token in words.tokenizer.encode(text, add_special=False):
            assert allows(matcher.mask(), token)
            matcher.advance(token)
        assert any(matcher.mask())


@pytest.mark.parametrize("name", ["hermes", "qwen3.5", "gemma4", "llama4", "kimi-k2", "llama3"])
def test_marks_may_be_text(name: str) -> None:
    style = style_of(name)
    check(style, words_of(style, tokens=False), 1, tokens=False)


@pytest.mark.slow
@pytest.mark.parametrize("style", CALLING, ids=lambda style: style.name)
def test_what_is_allowed_is_a_call_that_fits_for_long(style: Style) -> None:
    for seed in range(200):
        check(style, words_of(style, tokens=True), seed, tokens=True)
    for seed in range(10):
        check(style, words_of(style, tokens=False), seed, tokens=False)


HERMES = style_of("hermes")
THINKING = style_of("qwen3")


def taken(words: Words, made: Shape, text: str) -> str:
    """How far the grammar goes along with a text, marks as tokens; "<end>" where it lets it end there."""
    matcher = words.grammars.shaped(made).matcher()
    ids = [*words.tokenizer.encode(text, add_special=False), STOP]
    for place, token in enumerate(ids):
        if matcher.ended or not allows(matcher.mask(), token):
            whole = matcher.ended and token == STOP
            return words.text(ids[:place]) + ("<end>" if whole else "")
        if token == STOP:
            return text + "<end>"
        matcher.advance(token)
    raise AssertionError


CALL = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
SPELT = CALL.replace("<tool_call>", "<tool_\0call>")


@pytest.mark.parametrize(
    ("choice", "parallel", "text", "far"),
    [
        ("auto", True, "just < text {", ...),
        ("auto", True, f"Hi {CALL}\n{CALL} bye", ...),
        ("auto", True, "Hi <tool_call>\nno", "Hi <tool_call>\n"),
        ("auto", True, 'x <tool_call>\n{"name": "nil', 'x <tool_call>\n{"name": "n'),
        ("auto", False, f"Hi {CALL}", ...),
        ("auto", False, f"Hi {CALL}\n", f"Hi {CALL}"),
        ("none", True, "Hi", ...),
        ("none", True, f"Hi {CALL}", "Hi "),
        ("required", True, "Hi", ""),
        ("required", True, f"{CALL}\n{CALL}\n", ...),
        ("required", True, f"{CALL}{CALL}", ...),
        ("required", True, f"{CALL}\n\n{CALL}", f"{CALL}\n\n"),
        ("required", True, f"{CALL} ok", f"{CALL} "),
        ("now", True, CALL, ...),
        ("now", True, f"{CALL}\n{CALL}", CALL),
        ("get_weather", True, CALL, '<tool_call>\n{"name": "'),
    ],
)
def test_choices_and_parallel_calls(choice: str, parallel: bool, text: str, far: Any) -> None:
    made = shape(HERMES, Opening(), TOOLS, choice, parallel)
    assert taken(words_of(HERMES, tokens=True), made, text) == (f"{text}<end>" if far is ... else far)


def test_calls_beside_a_form_stand_on_lines_of_their_own() -> None:
    form, words = read_form({"const": 1}), words_of(HERMES, tokens=True)
    either = shape(HERMES, Opening(), TOOLS, form=form)
    assert taken(words, either, f"{CALL}\n{CALL}") == f"{CALL}\n{CALL}<end>"
    assert taken(words, either, "1") == "1<end>"
    assert taken(words, either, f"{CALL}\n1") == f"{CALL}\n"


def test_nothing_stands_between_calls_that_last_to_the_end() -> None:
    style, call = style_of("ministral"), "[TOOL_CALLS]now[ARGS]{}"
    words = words_of(style, tokens=True)
    for choice in ("auto", "required"):
        made = shape(style, Opening("text"), TOOLS, choice)
        assert taken(words, made, call + call) == f"{call}{call}<end>"
        assert taken(words, made, f"{call}\n{call}") == call


@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize("tokens", [True, False])
def test_a_call_may_begin_an_answer_without_the_blanks_of_its_mark(choice: str, tokens: bool) -> None:
    style = style_of("minicpm5")
    words, made = words_of(style, tokens=tokens), shape(style, Opening(), TOOLS, choice)
    call = '<function name="now"></function>'
    assert taken(words, made, f"{call}\n{call}") == f"{call}\n{call}<end>"
    assert taken(words, made, '<function name="nil') == '<function name="n'


def test_a_mark_that_is_spelt_out_binds_as_well() -> None:
    words = words_of(HERMES, tokens=True)
    ids = [words.letters.index(letter) for letter in "a <tool_call>"]
    for choice, goes_on in (("auto", True), ("none", False)):
        matcher = words.grammars.shaped(shape(HERMES, Opening(), TOOLS, choice)).matcher()
        for token in ids[:-1]:
            matcher.advance(token)
        assert allows(matcher.mask(), ids[-1]) is goes_on
        if goes_on:
            matcher.advance(ids[-1])
            assert words.text(matcher.forced(99)).startswith('\n{"name": "')
            assert not allows(matcher.mask(), STOP)


def test_a_call_may_end_thinking_where_the_style_has_it() -> None:
    text = f"hm {CALL}"
    opened = Opening("thinking", "<think>\n")
    assert taken(words_of(THINKING, tokens=True), shape(THINKING, opened, TOOLS), text) == f"{text}<end>"
    reka = style_of("reka")
    quoted = f"{text} so\n</think>\n\n{CALL}"
    assert taken(words_of(reka, tokens=True), shape(reka, opened, TOOLS), text) == text
    assert taken(words_of(reka, tokens=True), shape(reka, opened, TOOLS), quoted) == f"{quoted}<end>"


def test_going_back_over_a_calls_first_mark_changes_nothing() -> None:
    words = words_of(THINKING, tokens=True)
    grammar = words.grammars.shaped(shape(THINKING, Opening(), TOOLS))
    ids = words.tokenizer.encode(f"<think>\nok\n</think>\n\nHi {CALL}\n{CALL} x", add_special=False)
    masks, straight = list[bytes](), grammar.matcher()
    for token in ids:
        masks.append(straight.mask())
        straight.advance(token)
    rng, matcher, place = random.Random(2), grammar.matcher(), 0
    while place < len(ids):
        count = min(rng.randint(1, 12), len(ids) - place)
        for token in ids[place : place + count]:
            matcher.advance(token)
        back = rng.randint(0, count)
        matcher.back(back)
        place += count - back
        assert place == len(ids) or matcher.mask() == masks[place]


def test_schemas_that_cannot_be_enforced_are_noted() -> None:
    odd = {"name": "odd", "parameters": {"type": "object", "properties": {"x": {"$ref": "http://x/y.json"}}}}
    words = words_of(HERMES, tokens=True)
    grammar = words.grammars.shaped(shape(HERMES, Opening(), [odd, *TOOLS], "odd"))
    assert len(grammar.notes) == 1
    assert grammar.notes[0].startswith("arguments of odd are not held to all of its schema: $ref of $.x: ")
    text = '<tool_call>\n{"name": "odd", "arguments": {"x": [1]}}\n</tool_call>'
    assert taken(words, shape(HERMES, Opening(), [odd, *TOOLS], "odd"), text) == f"{text}<end>"
    with pytest.raises(RequestError, match="strict tool odd"):
        words.grammars.shaped(shape(HERMES, Opening(), [{**odd, "strict": True}]))


@pytest.mark.parametrize("choice", ["required", "f"])
def test_of_tools_with_one_name_the_last_holds_and_it_is_noted(choice: str) -> None:
    one, other = (
        {"name": "f", "parameters": {"properties": {name: {}}, "required": [name]}} for name in "ab"
    )
    words = words_of(HERMES, tokens=True)
    several = shape(HERMES, Opening(), [one, other, one, other], choice)
    assert words.grammars.shaped(several).notes == (
        "several tools are called f: calls are held to the last of them",
    )
    text = '<tool_call>\n{"name": "f", "arguments": {"b": 1}}\n</tool_call>'
    assert taken(words, several, text) == f"{text}<end>"
    assert words.grammars.shaped(shape(HERMES, Opening(), [one, one], choice)).notes == ()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((TOOLS, "nobody"), "nobody"),
        (([], "required"), "no tools"),
        (([{"name": "a b"}], "auto"), "tools"),
        (([{"name": 5}], "auto"), "tools"),
        (([{"name": "a", "parameters": [1]}], "auto"), "list"),
        (([{"name": f"t{n}"} for n in range(600)], "auto"), "600"),
    ],
)
def test_what_cannot_be_read_is_refused(given: tuple[Any, ...], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        shape_of(HERMES, Opening(), *given)
    with pytest.raises(RequestError, match="not known"):
        shape_of(None, Opening(), TOOLS, "required")


def test_nothing_asked_is_no_grammar() -> None:
    assert shape_of(HERMES, Opening()) is None
    assert shape_of(None, Opening(), TOOLS) is None


CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.mark.parametrize(
    ("name", "opening", "text"),
    [
        ("qwen3", Opening(), '<think>\na { b\n</think>\n\n{"city": "x"}'),
        ("qwen3", Opening(), '{"city":"x"}'),
        ("qwen3", Opening("thinking", "<think>\n"), 'hm\n</think>\n\n{"city": "x"}'),
        ("qwen3", Opening("text", "</think>\n\n"), '{"city": "x"}'),
        ("command-a", Opening(), '<|START_RESPONSE|>{"city": "x"}<|END_RESPONSE|>'),
        ("command-a", Opening(), '<|START_THINKING|>k<|END_THINKING|><|START_RESPONSE|>{"city": "x"}'),
        ("harmony", Opening(), '<|channel|>final<|message|>{"city": "x"}'),
        (
            "harmony",
            Opening("start", "<|channel|>analysis"),
            '<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>{"city": "x"}',
        ),
        ("harmony", Opening("text", "<|channel|>final<|message|>"), '{"city": "x"}'),
        ("passthrough", Opening(), '{"city": "x"}'),
    ],
)
def test_a_form_comes_behind_thinking(name: str, opening: Opening, text: str) -> None:
    style = style_of(name)
    form, words = read_form(CITY), words_of(style, tokens=True)
    assert taken(words, shape(style, opening, form=form), text) == f"{text}<end>"
    broken = text.replace('"city"', '"town"')
    assert len(taken(words, shape(style, opening, form=form), broken)) < len(broken)


def test_with_tools_and_a_form_an_answer_is_one_or_the_other() -> None:
    words, made = words_of(HERMES, tokens=True), shape(HERMES, Opening(), TOOLS, form=read_form(CITY))
    for text in (CALL, '{"city": "x"}'):
        assert taken(words, made, text) == f"{text}<end>"
    assert taken(words, made, "Well") == ""


@pytest.mark.parametrize("form", [read_form(regex="[a-c]+"), read_form(grammar='root ::= "ab" | "cd"')])
def test_forms_of_all_kinds_come_behind_thinking(form: Any) -> None:
    made, words = shape(THINKING, Opening(), form=form), words_of(THINKING, tokens=True)
    assert taken(words, made, "<think>\nx\n</think>\n\nab") == "<think>\nx\n</think>\n\nab<end>"
    assert taken(words, made, "xy") == ""


@pytest.mark.parametrize(
    ("opening", "front", "text"),
    [
        (Opening(), "", "ab"),
        (Opening(), "<think>x</think>\n\n", "ab"),
        (Opening(), "</think>\n\n", "ab"),
        (Opening("thinking", "<think>\n"), "x</think>\n\n", "ab"),
        (Opening("text", "<think>\n\n</think>\n\n"), "", "ab"),
        (Opening("text", "<think>\n\n</think>"), "\n\n", "ab"),
    ],
)
def test_a_text_is_what_its_expression_matches_and_no_blank(opening: Opening, front: str, text: str) -> None:
    made, words = shape(THINKING, opening, form=read_form(regex="[a-c]+")), words_of(THINKING, tokens=True)
    assert taken(words, made, front + text) == f"{front}{text}<end>"
    read = events_of(THINKING, opening, None, plain([front + text]))
    assert collected(read).text == text
    assert text not in taken(words, made, f"{front}\n{text}")
    assert taken(words, shape(THINKING, opening, form=read_form(CITY)), f"{front}{{") == f"{front}{{"


@pytest.mark.parametrize("name", ["kimi-k3", "inkling"])
def test_no_blank_stands_between_a_text_and_its_marks(name: str) -> None:
    style = style_of(name)
    assert style.text is not None
    made, words = shape(style, Opening(), form=read_form(regex="[a-c]+")), words_of(style, tokens=True)
    whole = f"{style.text.open}ab{style.text.close}"
    assert taken(words, made, whole) == f"{whole}<end>"
    for blank in (f"{style.text.open}\nab", f"{style.text.open}ab\n{style.text.close}"):
        assert len(taken(words, made, blank)) < len(blank)
    json = shape(style, Opening(), form=read_form(CITY))
    assert taken(words, json, f'{style.text.open}\n{{"city"') == f'{style.text.open}\n{{"city"'


def test_a_tool_for_every_need_of_an_agent() -> None:
    """Many tools with long schemas are one grammar."""
    many = [
        {
            "name": f"tool_{number}",
            "parameters": {
                "type": "object",
                "properties": {f"p{n}": {"type": "string", "description": "words " * 30} for n in range(12)},
                "required": ["p0"],
            },
        }
        for number in range(40)
    ]
    assert len(json.dumps(many)) > 60_000
    grammar = words_of(HERMES, tokens=True).grammars.shaped(shape(HERMES, Opening(), many))
    assert grammar.notes == ()


def test_too_much_for_one_grammar_is_any_object(monkeypatch: pytest.MonkeyPatch) -> None:
    from modelkit.grammars.compiling import matchers

    style = style_of("lfm2")
    wide = [
        {"name": f"tool_{number}", "parameters": {"properties": {f"p{number}_{n}": {} for n in range(6)}}}
        for number in range(30)
    ]
    monkeypatch.setitem(matchers.LIMITS, "max_grammar_size", 400)
    grammar = words_of(style, tokens=True).grammars.shaped(shape(style, Opening(), wide))
    assert len(grammar.notes) == 30
    strict = [{**tool, "strict": True} for tool in wide]
    with pytest.raises(RequestError, match="strict tool tool_0"):
        words_of(style, tokens=True).grammars.shaped(shape(style, Opening(), strict))


BEAM = "<|start|>assistant to={}<|channel|>analysis <|constrain|>xml<|message|>"


@pytest.mark.parametrize("front", ["", "<|channel|>final<|message|>Sure.<|end|>"])
def test_a_message_of_text_or_a_call_may_be_followed_by_calls(front: str) -> None:
    style, (now,) = style_of("beam"), TOOLS[1:]
    words = words_of(style, tokens=True)
    text = f"{front or '<|channel|>analysis<|message|>so<|end|>'}{BEAM.format('now')}"
    for parallel in (True, False):
        grammar = words.grammars.shaped(shape(style, Opening(), [now], parallel=parallel))
        assert takes(words, grammar, text)
        assert takes(words, grammar, f"{text}<|end|>{BEAM.format('now')}") == parallel
        assert not takes(words, grammar, f"{text}<|end|>")
        read = events_of(style, Opening(), [now], plain([f"{text}<|end|>{BEAM.format('now')}"]))
        assert len(collected(read).tool_calls) == 2
