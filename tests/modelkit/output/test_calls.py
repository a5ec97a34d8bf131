"""Calls of tools: their ids, and arguments as sound JSON however a model spells them."""

import json
import re

import pytest

from modelkit.chat.styles.opening import Opening
from modelkit.output.events import CallArguments, CallStart
from modelkit.output.pieces import Piece
from modelkit.output.splitter import splitter_for
from tests.support.answers import collected, folded, plain
from tests.support.splitting import TOOLS, assert_json_at_every_moment, events_of
from tests.support.styles import style_of


def test_arguments_come_while_they_are_written() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    splitter = splitter_for(style_of("qwen3.5"), Opening(), tools)
    splitter.push(Piece("<tool_call>\n<function=f>\n<parameter=a>\n", (0,)))
    assert splitter.push(Piece("one", (1,))) == [CallArguments(0, "one")]
    assert splitter.push(Piece(' "two"', (2,))) == [CallArguments(0, ' \\"two\\"')]


@pytest.mark.parametrize(
    ("name", "shape"),
    [("hermes", r"call_[A-Za-z0-9]{24}"), ("ministral", r"[A-Za-z0-9]{9}"), ("kimi-k2", r"functions\.f:7")],
)
def test_ids_are_as_the_style_needs_them(name: str, shape: str) -> None:
    text = {
        "hermes": '<tool_call>{"name": "f"}',
        "ministral": "[TOOL_CALLS]f[ARGS]{}",
        "kimi-k2": "<|tool_call_begin|>f<|tool_call_argument_begin|>{}",
    }[name]
    splitter = splitter_for(style_of(name), Opening(), TOOLS, earlier_calls=7)
    events = [*splitter.push(Piece(text, (0,))), *splitter.finish()]
    (start,) = [event for event in events if isinstance(event, CallStart)]
    assert re.fullmatch(shape, start.id)


def test_ids_that_the_model_writes_twice_are_told_apart() -> None:
    begin, mark, end = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
    text = "".join(f"{begin}functions.f:{n}{mark}{{}}{end}" for n in (1, 1, 0, 1))
    splitter = splitter_for(style_of("kimi-k2"), Opening(), TOOLS)
    starts = [one for one in splitter.push(Piece(text, (0,))) if isinstance(one, CallStart)]
    assert [one.id for one in starts] == [f"functions.f:{n}" for n in (1, 2, 0, 3)]
    text = "".join("[TOOL_CALLS]f[CALL_ID]abcdefgh1[ARGS]{}" for _ in range(2))
    found = collected(events_of(style_of("mistral-v11"), plain([text]))).tool_calls
    assert found[0].id == "abcdefgh1"
    assert re.fullmatch(r"[A-Za-z0-9]{9}", found[1].id or "")
    assert found[1].id != found[0].id


def test_a_forced_call_begins_with_its_first_token() -> None:
    opening = Opening("call", '<tool_call>\n{"name": "f", "arguments": ')
    events = events_of(style_of("hermes"), plain(['{"a": 1}', "}\n</tool_call>"]), opening)
    assert folded(events) == [("start", 0, "f"), ("CallArguments", '{"a": 1}'), ("end", 0, "")]


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('{"a": "\\ud800", "\\udc00b": 1}', {"a": "\ufffd", "\ufffdb": 1}),
        ('{"a": "\\ud83d\\ude00\\ud83dx\\u00e9\\x41\\uzz"}', {"a": "😀\ufffdxéA\\uzz"}),
        ('{"a": "tab\there", "b": "\\d+"}', {"a": "tab\there", "b": "\\d+"}),
        ("{'a': \"it's\", 'b': 'a \"b\"', 'c': None,}", {"a": "it's", "b": 'a "b"', "c": None}),
        ('"{\\"a\\": \\"\\\\ud83d\\\\ude00 \\ud83d\\ude00\\"}"', {"a": "😀 😀"}),
        ("null", {}),
    ],
)
def test_arguments_of_many_spellings_are_sound_json(written: str, arguments: dict[str, object]) -> None:
    text = f'<tool_call>{{"name": "f", "arguments": {written}}}</tool_call>'
    for parts in ([text], list(text)):
        events = events_of(style_of("hermes"), plain(parts))
        assert_json_at_every_moment(events)
        (call,) = collected(events).tool_calls
        assert (call.arguments, call.written) == (arguments, None)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("[.5, 1., +3, 1_000, 0x1f, -0b11, 007, 1_0.5e1]", [0.5, 1.0, 3, 1000, 31, -3, 7, 105.0]),
        ('{1: "a", -2.5: "b", True: None, "c": ()}', {"1": "a", "-2.5": "b", "true": None, "c": []}),
        ("'''it's\n\"b\"'''", 'it\'s\n"b"'),
        ('"""a ""b"" """', 'a ""b"" '),
        (r"""[r"\d\"", rb'\\', f"x", ""]""", ['\\d\\"', "\\\\", "x", ""]),
    ],
)
def test_values_of_python_are_sound_json(written: str, value: object) -> None:
    text = f"<|tool_call_start|>[f(a={written}, b=1)]<|tool_call_end|>"
    for parts in ([text], list(text)):
        events = events_of(style_of("lfm2"), plain(parts))
        assert_json_at_every_moment(events)
        (call,) = collected(events).tool_calls
        assert (call.arguments, call.written) == ({"a": value, "b": 1}, None)


@pytest.mark.parametrize(
    "written",
    ["1__0", "_1", "0x", "1j", "1..5", ".", "1.e999", "1e", "nan", "x", "{1, 2}", "{[1]: 2}", "--1"],
)
def test_what_is_no_value_of_python_ends_the_arguments(written: str) -> None:
    text = f"<|tool_call_start|>[f(a=1, b={written})]<|tool_call_end|>so"
    told = collected(events_of(style_of("lfm2"), plain(list(text))))
    assert told.text == "so"
    assert [call.arguments for call in told.tool_calls] == [{}]
    assert (told.tool_calls[0].written or "").startswith('{"a": 1, "b": ')


@pytest.mark.parametrize("value", ["1e999", "[" * 63 + "]" * 63, "9" * 999])
def test_a_call_that_no_prompt_can_hold_is_no_reason_to_lose_the_answer(value: str) -> None:
    text = f'<tool_call>{{"name": "f", "arguments": {{"a": {value}}}}}</tool_call>'
    (call,) = collected(events_of(style_of("hermes"), plain([text]))).tool_calls
    assert call.name == "f"
    assert call.arguments in ({}, {"a": int(value) if value.isdigit() else json.loads(value)})
