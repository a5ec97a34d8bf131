"""What clients send for a response: items of a conversation, tools, forms; and what is kept of others."""

import json
from typing import Any

import pytest
from openai.types.responses import ResponseItem
from pydantic import TypeAdapter

from modelkit.chat.message import Message, ToolCall
from modelkit.server.faults import Refused
from modelkit.server.fields import Fields
from modelkit.server.openai.response_request import ResponseRequest, read_response
from modelkit.server.openai.response_store import Kept

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def response(**body: Any) -> ResponseRequest:
    return read_response(Fields({"model": "m", **body}), Kept())


def test_items_of_one_turn_are_one_message() -> None:
    asked = response(
        instructions="be brief",
        input=[
            {"role": "developer", "content": "d"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'},
            {"type": "function_call", "call_id": "d", "name": "g", "arguments": ""},
            {"type": "function_call_output", "call_id": "c", "output": "1"},
            {"type": "function_call_output", "call_id": "d", "output": [{"type": "input_text", "text": "2"}]},
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "so"}], "summary": []},
            {"type": "message", "role": "assistant", "content": "done"},
        ],
    )
    assert asked.messages == [
        Message("system", "be brief"),
        Message("developer", "d"),
        Message("user", "hi"),
        Message("assistant", "ok", "hm", (ToolCall("f", {"a": 1}, "c"), ToolCall("g", {}, "d"))),
        Message("tool", "1", tool_call_id="c"),
        Message("tool", "2", tool_call_id="d"),
        Message("assistant", "done", "so"),
    ]


def test_a_result_belongs_to_a_call() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "1"}
    earlier = Kept()
    earlier.keep({"id": "r", "output": []}, [Message("assistant", tool_calls=(ToolCall("f", {}, "c"),))], {})
    for items in ([call, result], [call, result, result]):
        assert response(input=items).messages[-1].tool_call_id == "c"
    body = Fields({"model": "m", "input": [result], "previous_response_id": "r"})
    assert len(read_response(body, earlier).messages) == 2
    for wrong in ([result], [result, call], [call, {**result, "call_id": "d"}]):
        with pytest.raises(Refused, match=r"no call in front of it has the call_id '[cd]'") as caught:
            response(input=wrong)
        assert caught.value.fault.param == "input"


def test_tools_that_only_openai_runs_are_left_out() -> None:
    flat = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}
    asked = response(
        input="x", tools=[flat, {"type": "web_search"}, {"type": "local_shell"}], tool_choice="auto"
    )
    assert [one["function"]["name"] for one in asked.options["tools"]] == ["f"]
    assert asked.dropped == ("web_search", "local_shell")
    assert response(input="x", tools=[{"type": "web_search"}]).options == {"truncate": False}
    allowed = {"type": "allowed_tools", "tools": [{"type": "mcp", "server_label": "x"}, flat]}
    asked = response(input="x", tools=[flat, {"type": "mcp", "server_label": "x"}], tool_choice=allowed)
    assert [one["function"]["name"] for one in asked.options["tools"]] == ["f"]


def test_items_of_a_conversation_bring_tools() -> None:
    def more(*names: str) -> dict[str, Any]:
        tools = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in names]
        return {"type": "additional_tools", "role": "developer", "tools": [*tools, {"type": "web_search"}]}

    def names(asked: ResponseRequest) -> list[str]:
        return [one["function"]["name"] for one in asked.options["tools"]]

    talk = [{"role": "user", "content": "a"}, more("f", "g"), {"role": "user", "content": "b"}]
    own = more("own")["tools"][:1]
    asked = response(input=talk, tools=own, tool_choice={"type": "function", "name": "g"})
    assert (names(asked), asked.options["tool_choice"], asked.dropped) == (
        ["own", "f", "g"],
        "g",
        ("web_search",),
    )
    assert [one.content for one in asked.messages] == ["a", "b"]
    kept = Kept()
    kept.keep({"id": "r", "output": []}, asked.said, asked.items)
    body = Fields({"previous_response_id": "r", "input": [more("h"), {"role": "user", "content": "c"}]})
    assert names(read_response(body, kept)) == ["f", "g", "h"]
    assert not body.unread()
    with pytest.raises(Refused, match=r"input\[0\].tools\[0\].name is missing"):
        response(input=[{**more(), "tools": [{"type": "function"}]}])


def update(**settings: Any) -> dict[str, Any]:
    return {"type": "configuration_update", **settings}


def test_items_of_a_conversation_set_its_effort_and_its_form() -> None:
    form = {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}
    user = {"role": "user", "content": "a"}
    talk = [
        user,
        update(reasoning={"effort": "low"}),
        update(text=form),
        update(reasoning={"effort": "high"}),
    ]
    body = Fields({"input": talk, "reasoning": {"effort": "none"}, "text": {"format": {"type": "text"}}})
    kept = Kept()
    asked = read_response(body, kept)
    assert (asked.options["think"], asked.options["format"]) == ("high", SCHEMA)
    assert [one.content for one in asked.messages] == ["a"]
    assert set(body.unread()) == {"reasoning.effort", "text.format"}
    assert (asked.echo["reasoning"]["effort"], asked.echo["text"]["format"]["name"]) == ("high", "a")
    kept.keep({"id": "r", "output": []}, asked.said, asked.items)
    listed = [json.loads(one) for one in asked.items.values()]
    items = TypeAdapter(list[ResponseItem]).validate_python(listed[1:])
    assert [one.type for one in items] == ["configuration_update"] * 3
    assert all(one["id"].startswith("cu_") and "status" not in one for one in listed[1:])
    later = read_response(Fields({"previous_response_id": "r", "input": "b"}), kept)
    assert (later.options["think"], later.options["format"]) == ("high", SCHEMA)
    plain = [update(text={"format": {"type": "text"}}, reasoning={"effort": "none"}), user]
    later = read_response(Fields({"previous_response_id": "r", "input": plain}), kept)
    assert later.options["think"] is False
    assert "format" not in later.options


@pytest.mark.parametrize(
    ("item", "told"),
    [
        (update(), r"input\[0\] sets nothing; expected reasoning, text or both"),
        (
            update(reasoning={"effort": "huge"}),
            r"input\[0\].reasoning.effort is 'huge'; expected one of none",
        ),
        (update(reasoning={"summary": "auto"}), r"input\[0\].reasoning.summary: only the effort can be set"),
        (update(text={}), r"input\[0\].text.format is missing"),
        (update(text={"format": {"type": "xml"}}), r"input\[0\].text.format.type"),
    ],
)
def test_what_a_conversation_cannot_set_is_refused_with_its_place(item: dict[str, Any], told: str) -> None:
    with pytest.raises(Refused, match=told):
        response(input=[item, {"role": "user", "content": "a"}])


def test_the_text_format_of_a_response_acts() -> None:
    form = {
        "format": {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True},
        "verbosity": "low",
    }
    assert response(input="x", text=form).options["format"] == SCHEMA
    assert response(input="x", truncation="auto").options["truncate"] is True
    assert response(input="x", max_output_tokens=5).options["num_predict"] == 5


def test_what_is_to_be_included_and_is_not_there_is_named() -> None:
    known = ["message.output_text.logprobs", "reasoning.encrypted_content"]
    assert response(input="x", include=known).hints == ()
    asked = response(input="x", include=[*known, "file_search_call.results"])
    assert asked.hints == ("include.file_search_call.results",)


def test_items_that_say_nothing_are_no_empty_list() -> None:
    for items, told in ([], "is an empty list"), ([{"type": "reasoning"}], "nothing in it that is said"):
        with pytest.raises(Refused, match=told):
            response(input=items)


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("background", {"background": True, "store": False}),
        ("conversation", {"conversation": "c"}),
        ("prompt", {"prompt": {"id": "p"}}),
        ("previous_response_id", {"previous_response_id": "resp_1"}),
        ("reasoning.summary", {"reasoning": {"summary": "long"}}),
        ("reasoning.generate_summary", {"reasoning": {"summary": "auto", "generate_summary": True}}),
        ("input[0]", {"input": [{"type": "item_reference", "id": "i"}]}),
        ("input[0]", {"input": [{"type": None, "id": "i"}]}),
        ("input[0].type", {"input": [{"type": "compaction_trigger"}]}),
        ("input[0].encrypted_content", {"input": [{"type": "compaction", "encrypted_content": "gAAA"}]}),
        ("input", {"input": []}),
        ("input[0].content[0]", {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}),
    ],
)
def test_what_a_response_cannot_have_is_refused_by_name(field: str, body: dict[str, Any]) -> None:
    with pytest.raises(Refused) as error:
        response(**{"input": "x", **body})
    assert error.value.fault.param == field


def test_a_conversation_that_is_kept_goes_on() -> None:
    kept = Kept(most=2, most_bytes=3000)
    for number in range(3):
        said = [Message("user", f"q{number}"), Message("assistant", "a")]
        kept.keep({"id": f"r{number}", "output": []}, said, {})
    assert kept.conversation("r0") is None
    body = Fields({"input": "and?", "previous_response_id": "r2", "instructions": "i"})
    asked = read_response(body, kept)
    assert [one.content for one in asked.messages] == ["i", "q2", "a", "and?"]
    assert kept.forget("r2") == {"id": "r2", "object": "response", "deleted": True}
    assert kept.forget("r2") is None
    kept.keep({"id": "big", "output": []}, [Message("user", "x" * 4000)], {})
    assert kept.response("big") is None
    kept.keep({"id": "big", "output": []}, [], {"i": b"x" * 4000})
    assert kept.response("big") is None


def test_items_are_listed_whole_each_with_an_id_of_its_own() -> None:
    asked = response(
        input=[
            {"role": "user", "content": "one", "id": "same"},
            {"role": "assistant", "content": [{"type": "text", "text": "two"}], "id": "same"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": 5},
            {"type": "function_call_output", "call_id": "c", "output": "three"},
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
        ]
    )
    items = [json.loads(one) for one in asked.items.values()]
    assert [one["id"] for one in items] == list(asked.items)
    assert next(iter(asked.items)) == "same"
    assert [name.split("_")[0] for name in list(asked.items)[1:]] == ["msg", "fc", "fco", "rs"]
    assert items[0]["content"] == [{"type": "input_text", "text": "one"}]
    said = {"type": "output_text", "text": "two", "annotations": [], "logprobs": []}
    assert items[1]["content"] == [said]
    assert [one.get("status") for one in items] == [*["completed"] * 4, None]


def test_an_item_that_is_only_named_is_what_was_kept_under_its_id() -> None:
    kept, items = Kept(), {"u": b'{"id": "u", "type": "message", "role": "user", "content": "q"}'}
    answer = {"id": "m", "type": "message", "role": "assistant", "content": "a", "status": "completed"}
    kept.keep({"id": "r", "output": [answer]}, [Message("user", "q"), Message("assistant", "a")], items)
    named = [{"type": "item_reference", "id": "u"}, {"id": "m"}]  # their types let the kind be left out
    asked = read_response(Fields({"input": [*named, {"role": "user", "content": "and?"}]}), kept)
    assert [one.content for one in asked.messages] == ["q", "a", "and?"]
    assert list(asked.items)[:2] == ["u", "m"]
    more = {"input": [named[1], {"role": "user", "content": "and?"}], "previous_response_id": "r"}
    assert [one.content for one in read_response(Fields(more), kept).messages] == ["q", "a", "and?"]
    with pytest.raises(Refused, match="has nothing in it that is said"):
        read_response(Fields({"input": named, "previous_response_id": "r"}), kept)
