"""Calls that stand in a fence, or nowhere in marks, are held to their schemas as those in marks are."""

import json
from typing import Any

import pytest

from modelkit.chat.styles.opening import Opening
from modelkit.grammars.answers.shape import shape_of
from runtime.sampling.constraint import allows
from tests.support.answers import collected, folded, plain
from tests.support.styles import style_of
from tests.support.walks import STOP, events_of, words_of

NAMED: dict[str, Any] = {"a": {"type": "string", "pattern": "^x"}, "n": {"type": "integer", "maximum": 9}}
TOOLS = [
    {"name": "f", "parameters": {"type": "object", "properties": NAMED, "required": ["a"]}},
    {"name": "g", "parameters": {"type": "object", "properties": {"b": {"type": "boolean"}}}},
]
F = '{"name": "f", "arguments": {"a": "x", "n": 3}}'
WIDE = json.dumps(json.loads(F), indent=2)
BARE = F.replace("arguments", "parameters")
HELD = {
    "hermes": [
        *[
            F,
            f"\n\n{WIDE}",
            f"```json\n{F}\n```",
            f"```\n{WIDE}\n```\n```json\n{F}\n```",
            f"```json\n[{F}, {F}]\n```",
        ],
        *[f"{F}\n{WIDE}", f"<tool_call>\n{F}\n</tool_call>\n{WIDE} and so on"],
    ],
    "llama3": [BARE, f"```json\n{BARE}\n```", f"{BARE}; {BARE}", f"```json\n{WIDE}\n```"],
    "xlam": [f"[{F}, {F}]", f"```json\n[{F}]\n```", f"```json\n{WIDE}\n```"],
    "llama4": ['[f(a="x", n=3)]', '```python\n[f(a="x", n=3)]\n```', '```tool_code\nf(a="x", n=3)\n```'],
}


def far(name: str, text: str, **asked: Any) -> str:
    """As much of the text as the grammar goes along with."""
    style = style_of(name)
    words = words_of(style, tokens=True)
    shape = shape_of(style, Opening(), TOOLS, **asked)
    assert shape is not None
    matcher = words.grammars.shaped(shape).matcher()
    ids = words.tokenizer.encode(text, add_special=False)
    for place, token in enumerate(ids):
        if matcher.ended or not allows(matcher.mask(), token):
            return words.text(ids[:place])
        matcher.advance(token)
    return text + ("<end>" if matcher.ended or allows(matcher.mask(), STOP) else "")


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in HELD.items() for text in texts])
def test_calls_without_marks_are_written_and_held(name: str, text: str) -> None:
    assert far(name, text) == f"{text}<end>"
    assert all(call.name == "f" for call in calls_of(name, text))
    assert [dict(call.arguments) for call in calls_of(name, text)] == [{"a": "x", "n": 3}] * text.count("x")
    assert len(far(name, text.replace('"x"', '"y"'))) < len(text)
    last = text.rfind("3")
    assert far(name, text[:last] + "10" + text[last + 1 :]) == text[:last] + "1"


@pytest.mark.parametrize("name", HELD)
def test_other_text_in_fences_is_free(name: str) -> None:
    for text in (
        '```json\n{"name": "nobody"}\n```',
        "```python\nprint(f)\n```",
        '{"town": 1}',
        "f",
        "[1, 2]",
    ):
        assert far(name, text) == f"{text}<end>"
        assert calls_of(name, text) == ()


@pytest.mark.parametrize("text", [F, f"```json\n{F}\n```"])
def test_a_choice_holds_for_calls_without_marks(text: str) -> None:
    assert far("hermes", text, tool_choice="none") == text[: text.index('f"') + 1]
    assert far("hermes", text, tool_choice="required") == ""
    assert far("hermes", f"{text} and", parallel=False).rstrip() == text


def calls_of(name: str, text: str) -> tuple[Any, ...]:
    return collected(events_of(style_of(name), Opening(), TOOLS, plain([text]))).tool_calls


UNUSUAL = '{{"arguments": {}, "name": "f"}}'


@pytest.mark.parametrize("name", ["hermes", "llama3", "xlam"])
@pytest.mark.parametrize("around", ["{}", "```json\n{}\n```", "[{}]"])
@pytest.mark.parametrize(
    ("arguments", "fits"),
    [
        ('{"a": "x"}', True),
        ('{"a": 1}', False),
        ("{}", False),
        ('{"a": "x", "n": 10}', False),
        ('{"a": "x", "z": 1}', False),
    ],
)
def test_a_call_in_an_order_of_its_own_stays_text_where_it_does_not_fit(
    name: str, around: str, arguments: str, fits: bool
) -> None:
    text = around.format(UNUSUAL.format(arguments))
    made = collected(events_of(style_of(name), Opening(), TOOLS, plain([text])))
    one, many = (events_of(style_of(name), Opening(), TOOLS, plain(parts)) for parts in ([text], list(text)))
    assert folded(one) == folded(many)
    assert [dict(call.arguments) for call in made.tool_calls] == ([json.loads(arguments)] if fits else [])
    assert fits or made.text == text


def test_of_a_list_the_calls_that_fit_are_calls() -> None:
    good, bad = (UNUSUAL.format(json.dumps({"a": value})) for value in ("x", 1))
    made = collected(events_of(style_of("hermes"), Opening(), TOOLS, plain([f"[{good}, {bad}, {good}]"])))
    assert [dict(call.arguments) for call in made.tool_calls] == [{"a": "x"}]
    assert made.text == f", {bad}, {good}]"


def test_a_call_is_streamed_where_a_grammar_has_held_it() -> None:
    for name, text, at_once in (("llama3", BARE, True), ("hermes", F, False)):
        cut = text[: text.index(', "n"')]
        said = "".join(str(event) for event in events_of(style_of(name), Opening(), TOOLS, plain([cut])))
        assert ("CallStart" in said) == at_once
