"""Marks of any style in any order, whole and cut short: nothing is lost, harmed or made up."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.style import Style
from modelkit.chat.styles.table import styles
from modelkit.output.events import Text, Thinking
from tests.support.answers import folded, plain
from tests.support.splitting import assert_json_at_every_moment, events_of
from tests.support.styles import style_of

OTHERS = [
    *("f", "{", "}", '"', ": ", "[", "]", "(a=", ")", "\n", " ", "x", "\\", ","),
    '{"name": "f", "arguments": {',
]


@st.composite
def fragments(draw: st.DrawFn, rows: tuple[Style, ...] = styles()) -> tuple[Style, list[str]]:
    """Marks of a style, whole and cut short, among what calls are made of."""
    style = draw(st.sampled_from(rows))
    marks = [*style.marks, *(mark[: len(mark) // 2] for mark in style.marks)]
    return style, draw(st.lists(st.sampled_from([*marks, *OTHERS]), max_size=16))


def assert_nothing_is_harmed(style: Style, parts: list[str]) -> None:
    """The same events in every chunking, sound JSON, and no character made up."""
    text = "".join(parts)
    whole = events_of(style, plain([text]))
    assert folded(events_of(style, plain(parts))) == folded(whole)
    letters = events_of(style, plain(list(text)))
    assert folded(letters) == folded(whole)
    assert_json_at_every_moment(letters)
    left = iter(text)
    told = "".join(event.text for event in whole if isinstance(event, Text | Thinking))
    assert all(char in left for char in told)


@settings(max_examples=200)
@given(given_=fragments())
def test_pieces_of_marks_in_any_order_harm_nothing(given_: tuple[Style, list[str]]) -> None:
    assert_nothing_is_harmed(*given_)


@pytest.mark.slow
@pytest.mark.parametrize("style", styles(), ids=lambda style: style.name)
def test_pieces_of_marks_in_any_order_at_length(style: Style) -> None:
    @settings(max_examples=400)
    @given(given_=fragments((style,)))
    def many(given_: tuple[Style, list[str]]) -> None:
        assert_nothing_is_harmed(*given_)

    many()


@settings(max_examples=100)
@given(style=st.sampled_from(styles()), text=st.text(max_size=40))
def test_text_without_marks_is_text(style: Style, text: str) -> None:
    text = "A" + re.sub(r"[^\w \n.]", "", text) + "."
    opening = Opening("text")
    assert folded(events_of(style, plain(list(text)), opening)) == [("Text", text)]


@pytest.mark.parametrize(
    ("name", "begin", "again"),
    [
        ("qwen3.5", "", "<"),
        ("qwen3.5", "", "\n"),
        ("qwen3.5", "x", "</think>"),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "', "\\"),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": ', "["),
        ("hermes", '<tool_call>{"name": "', "f"),
        ("qwen3.5", "<tool_call><function=f><parameter=a>", "</parameter>"),
        ("qwen3.5", "<tool_call><function=f><parameter=a>", "<"),
        ("gemma4", "<|tool_call>call:f{a:", "<|"),
        ("llama3", "", '{"name": '),
        ("harmony", "", "<|channel|>"),
    ],
)
def test_a_long_answer_takes_time_in_proportion(name: str, begin: str, again: str) -> None:
    def seconds(length: int) -> float:
        text = begin + again * (length // len(again))
        begun = time.thread_time()
        events_of(style_of(name), plain([text[at : at + 40] for at in range(0, len(text), 40)]))
        events_of(style_of(name), plain([text]))
        return time.thread_time() - begun

    # Sixteen times the text: at most twice sixteen times as long, and not 256 times.
    assert seconds(250_000) < 32 * min(seconds(15_625) for _ in range(3)) + 0.2
