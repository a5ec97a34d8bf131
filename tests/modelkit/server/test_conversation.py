"""A result of a tool belongs to a call in front of it, in each dialect's words."""

from collections.abc import Sequence
from typing import Any

import pytest

from modelkit.chat.message import Message
from modelkit.server.anthropic.messages import read_conversation
from modelkit.server.faults import Refused
from modelkit.server.fields import Fields
from modelkit.server.openai.messages import read_messages

HI: dict[str, Any] = {"role": "user", "content": "Hi"}


def call(id: str | None) -> dict[str, Any]:  # noqa: A002
    one = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [one if id is None else {"id": id, **one}]}


def result(id: str | None) -> dict[str, Any]:  # noqa: A002
    return {"role": "tool", "content": "5", **({} if id is None else {"tool_call_id": id})}


def uses(*ids: str) -> dict[str, Any]:
    blocks = [{"type": "tool_use", "id": one, "name": "f", "input": {}} for one in ids]
    return {"role": "assistant", "content": blocks}


def results(*ids: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": one} for one in ids]}


def read(messages: Sequence[dict[str, Any]]) -> list[Message]:
    return read_messages(Fields({"messages": messages}))


@pytest.mark.parametrize(
    "talk",
    [
        [HI, call("a"), result("a")],
        [call("a"), result("a"), HI],  # what was in front is cut off
        [HI, call("a"), HI, result("a")],
        [HI, call(None), result("a")],
        [HI, call("a"), result(None)],
        [HI, {"role": "function", "name": "f", "content": "5"}],
        [
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "5"},
        ],
    ],
)
def test_a_result_behind_its_call_is_read(talk: list[dict[str, Any]]) -> None:
    assert len(read(talk)) == len(talk)


def test_a_result_may_be_of_text_parts() -> None:
    parts = {"content": [{"type": "text", "text": "r"}]}
    assert read([call("a"), {**result("a"), **parts}])[1] == Message("tool", "r", tool_call_id="a")


@pytest.mark.parametrize(
    ("talk", "words"),
    [
        ([HI, result("lost")], r"messages\[1\]\.tool_call_id: 'lost' is the id of no call"),
        ([result("late"), call("late")], r"messages\[0\]\.tool_call_id: 'late'"),
        ([HI, call("a"), result("a"), result("b")], r"messages\[3\]\.tool_call_id: 'b'"),
        ([HI, result(None)], r"messages\[1\]\.tool_call_id: no message in front of it has tool_calls"),
    ],
)
def test_a_result_of_no_call_is_refused_by_its_id(talk: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(Refused, match=words):
        read(talk)


def test_anthropic_results_behind_their_calls_are_read() -> None:
    talk = [uses("toolu_1", "other"), results("other", "toolu_1"), HI]
    assert [one.role for one in read_conversation(Fields({"messages": talk}))][1:3] == ["tool", "tool"]


@pytest.mark.parametrize("id", ["toolu_2", "lost"])
def test_an_anthropic_result_of_no_call_is_refused_by_its_id(id: str) -> None:  # noqa: A002
    talk = [HI, uses("toolu_1"), results("toolu_1", id)]
    where = r"messages\[2\]\.content\[1\]: unexpected `tool_use_id` found in `tool_result` blocks: "
    with pytest.raises(Refused, match=where + id):
        read_conversation(Fields({"messages": talk}))
