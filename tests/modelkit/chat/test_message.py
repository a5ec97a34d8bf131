from typing import Any

import numpy as np
import pytest

from modelkit.chat.message import Message, ToolCall, call_as_written, read_messages
from modelkit.errors import RequestError

CALL: dict[str, Any] = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": {"city": "Zürich", "days": 3}},
}


def test_a_plain_message_is_read():
    assert Message.read({"role": "user", "content": "hi"}) == Message("user", "hi")


def test_a_message_object_passes_unchanged():
    message = Message("user", "hi")
    assert Message.read(message) is message


def test_text_parts_are_put_together():
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    assert Message.read({"role": "user", "content": parts}).content == "one two"


def test_missing_content_is_the_empty_text():
    message = Message.read({"role": "assistant", "content": None, "tool_calls": [CALL]})
    assert message.content == ""
    assert message.tool_calls == (ToolCall("weather", {"city": "Zürich", "days": 3}, "call_1"),)


@pytest.mark.parametrize("key", ["thinking", "reasoning_content", "reasoning"])
def test_thinking_is_read_under_all_its_names(key: str):
    assert Message.read({"role": "assistant", "content": "4", key: "2+2"}).thinking == "2+2"


def test_templates_find_thinking_under_both_names():
    rendered = Message("assistant", "4", thinking="2+2").as_template()
    names = ("thinking", "reasoning_content", "reasoning")
    assert rendered == {"role": "assistant", "content": "4", **dict.fromkeys(names, "2+2")}


def test_empty_thinking_beside_the_real_one_is_passed_over() -> None:
    given = {"role": "assistant", "content": "4", "reasoning_content": "", "reasoning": "2+2"}
    assert Message.read(given).thinking == "2+2"
    assert Message.read({"role": "assistant", "content": "4", "reasoning": ""}).thinking == ""


def test_arguments_that_hold_too_much_are_not_read():
    """Reading them would stop every thread of the server for seconds."""
    much = '{"a": [' + "[]," * 400_000 + "[]]}"
    with pytest.raises(RequestError, match=r"arguments: more than 300,000 fields and values are not read"):
        Message.read({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": much}}]})
    assert call_as_written("f", much, None) == ToolCall("f", {}, None, much)


def test_arguments_may_be_json_text():
    call = {"function": {"name": "weather", "arguments": '{"city": "Zürich"}'}}
    assert ToolCall.read(call, "x") == ToolCall("weather", {"city": "Zürich"})


def test_a_tool_call_goes_back_to_the_shape_it_came_in():
    message = Message.read({"role": "assistant", "content": "", "tool_calls": [CALL]})
    assert message.as_template()["tool_calls"] == [CALL]


def test_keys_that_are_not_set_are_absent_for_the_template():
    assert Message("user", "hi").as_template() == {"role": "user", "content": "hi"}


def test_tool_name_is_another_word_for_name():
    message = Message.read({"role": "tool", "content": "7", "tool_name": "weather", "tool_call_id": "call_1"})
    assert (message.name, message.tool_call_id) == ("weather", "call_1")


BAD: dict[str, tuple[object, str]] = {
    "no object": ("hi", "is 'hi', expected an object"),
    "no role": ({"content": "hi"}, "role is None"),
    "unknown role": ({"role": "robot", "content": "hi"}, "role is 'robot'"),
    "unknown key": ({"role": "user", "content": "hi", "contents": "x"}, "unknown key 'contents'"),
    "images": ({"role": "user", "content": "hi", "images": ["x"]}, "images"),
    "image part": ({"role": "user", "content": [{"type": "image_url"}]}, "only text parts"),
    "part with more keys": (
        {"role": "user", "content": [{"type": "text", "text": "a", "b": 1}]},
        "unknown key",
    ),
    "content is a number": ({"role": "user", "content": 5}, "is 5, expected a text"),
    "thinking is a list": (
        {"role": "assistant", "content": "", "thinking": []},
        "is [], expected a text",
    ),
    "thinking is an array": (
        {"role": "assistant", "content": "", "reasoning": np.array(["a", "b"])},
        "reasoning is a ndarray, expected a text",
    ),
    "thinking twice, and one is a number": (
        {"role": "assistant", "content": "", "thinking": "so", "reasoning_content": 5},
        "reasoning_content is 5, expected a text",
    ),
    "user calls tools": ({"role": "user", "content": "", "tool_calls": [CALL]}, "only the assistant"),
    "calls are no list": ({"role": "assistant", "tool_calls": CALL}, "expected a list"),
    "call without name": ({"role": "assistant", "tool_calls": [{"function": {}}]}, "name is missing"),
    "bad JSON": (
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]},
        "not valid JSON",
    ),
    "arguments are a list": (
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]},
        "is [1], expected an object",
    ),
    "deep JSON": (
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"a":' * 99999}}]},
        "not valid JSON",
    ),
    "infinite argument": (
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1e999}'}}]},
        "inf",
    ),
}


@pytest.mark.parametrize(("value", "said"), BAD.values(), ids=BAD.keys())
def test_a_wrong_message_is_named(value: Any, said: str):
    with pytest.raises(RequestError, match=r"^messages\[1\]|^a user message") as error:
        read_messages([{"role": "user", "content": "hi"}, value])
    assert said in str(error.value)


def test_an_empty_conversation_is_an_error():
    with pytest.raises(RequestError, match="messages is empty"):
        read_messages([])


def test_a_conversation_may_not_go_on_for_ever():
    with pytest.raises(RequestError, match="at most"):
        read_messages([Message("user", "hi")] * 10_001)


def test_reading_messages_does_not_load_jinja2():
    import subprocess
    import sys
    from pathlib import Path

    code = "import sys, modelkit.chat.message; sys.exit('jinja2' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).resolve().parents[3], check=True)
