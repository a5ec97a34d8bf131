"""The record of an output style, and where an answer begins."""

from typing import Any

import pytest

from modelkit.chat.styles.opening import Opening, forced, opening_of
from modelkit.chat.styles.style import JsonCall, MarkedCall, Style

CODER: dict[str, Any] = {
    "name": "coder",
    "think": {"open": "<think>\n", "close": "\n</think>\n\n"},
    "call": {"open": "\n<tool_call>\n", "close": "\n</tool_call>"},
    "form": {
        "kind": "marked",
        "prefix": "<function=",
        "suffix": ">\n",
        "close": "</function>",
        "arguments": "tags",
        "tag": {"open": "<parameter=", "name_end": ">\n", "close": "\n</parameter>\n"},
    },
    "fingerprints": [{"has": ["<function="]}],
}
HARMONY: dict[str, Any] = {
    "name": "harmony",
    "form": {"kind": "marked", "named": False},
    "header": {
        "start": "<|start|>assistant",
        "message": "<|message|>",
        "ends": ["<|end|>", "<|call|>", "<|return|>"],
        "thinking": "<|channel|>analysis",
        "text": "<|channel|>final",
        "call": "<|channel|>commentary to=functions.{name} <|constrain|>json",
        "recipient": "to=",
    },
}
HERMES: dict[str, Any] = {
    "name": "hermes",
    "call": {"open": "\n<tool_call>\n", "close": "\n</tool_call>"},
    "form": {"kind": "json"},
}


def test_a_style_is_read_from_json() -> None:
    style = Style.read(CODER)
    assert isinstance(style.form, MarkedCall)
    assert style.form.tag is not None
    assert style.form.tag.open == "<parameter="
    assert style.begins == ("\n<tool_call>\n",)
    assert {"<tool_call>", "</think>"} < set(style.marks)
    assert "" not in style.marks
    assert Style.read(HERMES).form == JsonCall()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": 3}, "the style.name is 3, expected a text"),
        ({"colour": 1}, "unknown key 'colour'"),
        ({"think": {"close": "x"}}, "the style.think has no open"),
        ({"ids": "mine"}, "expected one of own, mistral9, kimi"),
        ({"form": {"kind": "yaml"}}, "the style.form.kind is 'yaml', expected one of json, marked, python"),
        ({"fingerprints": [{"has": "x"}]}, r"fingerprints\[0\].has is 'x', expected a list"),
        ({"bare": 1}, "expected true or false"),
        ({"form": {"kind": "marked", "arguments": "tags"}}, "form.tag goes with"),
        ({"form": {"kind": "marked", "arguments": "dict"}}, "form.quote goes with"),
        ({"call": None, "form": {"kind": "json"}}, "nothing marks where a call begins"),
        ({"header": HARMONY["header"]}, "neither think nor text"),
    ],
)
def test_a_wrong_row_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Style.read({**CODER, **change})


@pytest.mark.parametrize(
    ("row", "prompt", "opening"),
    [
        (CODER, "<|im_start|>assistant\n", Opening()),
        (CODER, "<|im_start|>assistant\n<think>\n", Opening("thinking", "<think>\n")),
        (CODER, "assistant\n<think>\n\n</think>\n\n", Opening("text", "</think>\n\n")),
        (CODER, "user\n<think>\nassistant\n", Opening()),
        (CODER, "<think>", Opening("thinking", "<think>")),
        (HERMES, "<think>\n", Opening()),
        (HARMONY, "hi<|end|><|start|>assistant", Opening("start", "")),
        (
            HARMONY,
            "<|start|>assistant<|channel|>analysis<|message|>",
            Opening("thinking", "<|channel|>analysis<|message|>"),
        ),
        (
            HARMONY,
            "<|start|>assistant<|channel|>final<|message|>",
            Opening("text", "<|channel|>final<|message|>"),
        ),
    ],
)
def test_the_prompts_tail_says_where_an_answer_begins(
    row: dict[str, Any], prompt: str, opening: Opening
) -> None:
    assert opening_of(Style.read(row), prompt) == opening


def test_an_answer_that_goes_on_is_text_unless_its_own_thinking_is_open() -> None:
    style = Style.read(CODER)
    assert opening_of(style, "<think>\nIt is", "It is") == Opening("text")
    assert opening_of(style, "<think>\nIs it", "<think>\nIs it") == Opening("thinking", "<think>\n")
    assert opening_of(None, "It is", "It is") == Opening("text")
    assert opening_of(None, "assistant") == Opening()


@pytest.mark.parametrize(
    ("row", "written"),
    [
        (CODER, "<tool_call>\n<function=f>\n"),
        (HERMES, '<tool_call>\n{"name": "f", "arguments": '),
        (HARMONY, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"),
    ],
)
def test_a_forced_call_stands_in_the_prompt_as_far_as_its_arguments(
    row: dict[str, Any], written: str
) -> None:
    assert forced(Style.read(row), "f", Opening()) == Opening("call", written)
