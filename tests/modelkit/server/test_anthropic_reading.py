"""Content blocks to a conversation, and a request to keyword arguments."""

from typing import Any

import pytest

from modelkit.chat.message import Message, ToolCall
from modelkit.errors import ModelkitError
from modelkit.server.anthropic.reading import read_messages_request
from modelkit.server.anthropic.threads import Threads
from modelkit.server.faults import Refused
from modelkit.server.fields import Fields

HI = {"role": "user", "content": "Hi"}
TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object"}, "cache_control": {"type": "x"}}


def asked(**body: Any) -> Any:
    return read_messages_request(Fields({"model": "m", "max_tokens": 8, "messages": [HI], **body}), Threads())


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def test_blocks_become_messages_in_the_order_that_templates_take() -> None:
    talk = [
        {"role": "user", "content": [text("a", cache_control={"type": "ephemeral"}), text("b")]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                {"type": "redacted_thinking", "data": "x"},
                text("Let me see."),
                {"type": "tool_use", "id": "toolu_call_1", "name": "f", "input": {"a": 1}},
                {"type": "tool_use", "id": "other", "name": "g", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                text("And hurry."),
                {"type": "tool_result", "tool_use_id": "toolu_call_1", "content": [text("5"), text("6")]},
                {"type": "tool_result", "tool_use_id": "other", "content": "no", "is_error": True},
                {"type": "tool_result", "tool_use_id": "other"},
            ],
        },
    ]
    assert asked(messages=talk, system=[text("s"), text("t")]).messages == [
        Message("system", "s\n\nt"),
        Message("user", "a\n\nb"),
        Message(
            "assistant",
            "Let me see.",
            "Hm.",
            (ToolCall("f", {"a": 1}, "call_1"), ToolCall("g", {}, "other")),
        ),
        Message("tool", "5\n6", tool_call_id="call_1"),
        Message("tool", "Error: no", tool_call_id="other"),
        Message("tool", "", tool_call_id="other"),
        Message("user", "And hurry."),
    ]


def test_turns_of_one_speaker_are_one() -> None:
    talk = [HI, {"role": "user", "content": "there"}, {"role": "assistant", "content": "a"}, HI]
    assert [one.content for one in asked(messages=talk).messages] == ["Hi\n\nthere", "a", "Hi"]


def test_a_compaction_stands_for_all_before_it() -> None:
    failed = {"type": "compaction", "content": None}
    compacted = {"type": "compaction", "content": "A greeting.", "signature": "x"}
    talk = [HI, {"role": "assistant", "content": [text("gone"), failed, compacted]}, HI]
    summary = "Summary of the conversation so far:\n\nA greeting."
    assert asked(messages=talk).messages == [Message("user", f"{summary}\n\nHi")]
    talk[1]["content"].append(text("b"))
    assert [one.content for one in asked(messages=talk).messages] == [summary, "b", "Hi"]
    talk[1] = {"role": "assistant", "content": [text("a"), failed]}
    assert [one.content for one in asked(messages=talk).messages] == ["Hi", "a", "Hi"]


def test_a_strict_tool_is_strict_and_a_found_one_is_told_by_its_name() -> None:
    call = {"type": "tool_use", "id": "a", "name": "search", "input": {}}
    found = {
        "type": "tool_result",
        "tool_use_id": "a",
        "content": [{"type": "tool_reference", "tool_name": "f"}],
    }
    talk = [HI, {"role": "assistant", "content": [call]}, {"role": "user", "content": [found]}]
    read = asked(messages=talk, tools=[{**TOOL, "strict": True, "defer_loading": True}])
    assert read.messages[-1] == Message("tool", "f", tool_call_id="a")
    assert read.keywords["tools"][0]["function"]["strict"] is True


def test_tools_are_those_at_the_end_of_the_conversation() -> None:
    def change(kind: str, name: str) -> dict[str, Any]:
        return {"type": kind, "tool": {"type": "tool_reference", "name": name}}

    def names(*blocks: dict[str, Any]) -> list[str]:
        talk = [HI, {"role": "system", "content": list(blocks)}, HI]
        read = asked(messages=talk, tools=[TOOL, {**TOOL, "name": "other"}])
        assert [one.content for one in read.messages] == ["Hi\n\nHi"]
        return [one["function"]["name"] for one in read.keywords["tools"]]

    name = TOOL["name"]
    assert names(change("tool_addition", "other")) == [name, "other"]
    assert names(change("tool_removal", name)) == ["other"]
    assert names(change("tool_removal", name), change("tool_addition", name)) == ["other", name]
    inline = {"type": "tool_definition", "definition": {**TOOL, "name": "third"}}
    assert names({"type": "tool_addition", "tool": inline}) == [name, "other", "third"]
    for wrong, told in (
        (change("tool_removal", "none"), "'none' is not a tool of this conversation"),
        ({"type": "tool_addition", "tool": {"type": "mcp_toolset_reference"}}, "expected one of tool_ref"),
        ({"type": "tool_addition", "tool": {**inline, "definition": TOOL}}, "must be unique"),
    ):
        with pytest.raises(Refused, match=told):
            names(wrong)


def test_a_system_message_is_cleared_at_the_next_of_the_user() -> None:
    def read(clear_at: Any, *more: Any) -> list[str]:
        content = [
            text("Be brief."),
            {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "f"}},
        ]
        talk = [HI, {"role": "system", "content": content, "clear_at": clear_at}, *more]
        body = Fields({"model": "m", "max_tokens": 8, "messages": talk, "tools": [TOOL]})
        found = read_messages_request(body, Threads())
        assert "tools" not in found.keywords
        assert not [name for name in body.unread() if name.startswith("messages")]
        return [one.content for one in found.messages]

    answer = {"role": "assistant", "content": "a"}
    assert read("next_user_message", answer, HI) == ["Hi", "a", "Hi"]
    assert read("next_user_message") == ["Hi", "Be brief."]
    assert read("next_user_message", answer) == ["Hi", "Be brief.", "a"]
    assert read("never", answer, HI) == read(None, answer, HI) == ["Hi", "Be brief.", "a", "Hi"]
    with pytest.raises(Refused, match="clear_at is 'soon', expected one of next_user_message, never"):
        read("soon")


def test_a_system_message_sets_the_effort_from_the_next_words_of_the_user_on() -> None:
    low, high = (
        {"role": "system", "content": [], "output_config": {"effort": one}} for one in ("low", "high")
    )
    bare = {"role": "system", "output_config": {"effort": "max"}}
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "5"}]}
    more = {"role": "user", "content": [*result["content"], text("and?")]}
    adaptive = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}}

    def think(*messages: Any) -> Any:
        read = asked(messages=[*messages], tools=[TOOL], **adaptive)
        assert "system" not in [one.role for one in read.messages]
        return read.think

    assert think(HI) == "medium"
    assert think(HI, low) == think(HI, high, low) == think(HI, low, call, result) == "low"
    assert think(HI, call, low, result) == think(HI, call, result, low) == "medium"
    assert think(HI, call, result, low, HI) == think(HI, call, low, more) == "low"
    assert think(HI, bare, call, more, low) == "low"
    assert think(HI, bare) == "max"
    body = Fields({"model": "m", "max_tokens": 8, "messages": [HI, low]})
    assert read_messages_request(body, Threads()).think is False
    assert body.unread() == ("messages[].output_config",)
    with pytest.raises(Refused, match="effort is 'some', expected one of low"):
        think(HI, {"role": "system", "output_config": {"effort": "some"}})
    with pytest.raises(Refused, match="content is missing"):
        think(HI, {"role": "system"})


@pytest.mark.parametrize("line", ["cc_version=1; cch=1;", "cc_version=1; cch=2;"])
def test_a_line_that_changes_with_every_request_is_not_in_the_prompt(line: str) -> None:
    billing = f"x-anthropic-billing-header: {line}"
    (system, _) = asked(system=[text(billing), text("You are terse.")]).messages
    assert system.content == "You are terse."
    (system, _) = asked(system=f"{billing}\nYou are terse.").messages
    assert system.content == "You are terse."
    assert asked(system=[text(billing)]).messages == [Message("user", "Hi")]


def test_a_text_at_the_end_is_gone_on_with() -> None:
    beginning = asked(messages=[HI, {"role": "assistant", "content": "The sky"}])
    assert beginning.keywords["continue_final"] is True
    assert "continue_final" not in asked().keywords


@pytest.mark.parametrize("content", ["", "\n", [], [text("")]])
def test_an_empty_message_at_the_end_begins_no_answer(content: Any) -> None:
    read = asked(messages=[HI, {"role": "assistant", "content": content}])
    assert read.messages == [Message("user", "Hi")]
    assert "continue_final" not in read.keywords


@pytest.mark.parametrize(
    ("body", "keywords"),
    [
        ({}, {}),
        ({"stop_sequences": ["a", ""], "top_k": 5, "top_p": 0.5, "temperature": 1}, None),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"a": 1}}}}, {"format": {"a": 1}}),
        ({"output_format": {"type": "json_schema", "schema": {"a": 1}}}, {"format": {"a": 1}}),
        ({"thinking": {"type": "adaptive"}}, {}),
        ({"top_p": 0}, {"top_p": 1e-6}),
    ],
)
def test_a_field_becomes_a_keyword(body: dict[str, Any], keywords: dict[str, Any] | None) -> None:
    sampling = {"stop": ["a"], "top_k": 5, "top_p": 0.5, "temperature": 1.0}
    wanted = {"truncate": False, "num_predict": 8, **(sampling if keywords is None else keywords)}
    assert asked(**body).keywords == wanted


@pytest.mark.parametrize(
    ("body", "think"),
    [
        ({}, False),
        ({"thinking": {"type": "disabled"}}, False),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, True),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, "low"),
        ({"output_config": {"effort": "low"}}, False),
    ],
)
def test_thinking_is_off_unless_it_is_asked_for(body: dict[str, Any], think: bool | str) -> None:
    assert asked(**body).think == think


@pytest.mark.parametrize(
    ("choice", "keywords"),
    [
        (None, {}),
        ({"type": "auto"}, {}),
        ({"type": "any", "disable_parallel_tool_use": True}, None),
        ({"type": "tool", "name": "f"}, {"tool_choice": "f"}),
        ({"type": "none"}, {"tool_choice": "none"}),
    ],
)
def test_tools_and_their_choice(choice: dict[str, Any] | None, keywords: dict[str, Any] | None) -> None:
    server_tool = {"type": "web_search_20250305", "name": "web_search"}
    found = asked(tools=[TOOL, server_tool], tool_choice=choice)
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}}
    assert found.keywords["tools"] == [{"type": "function", "function": function}]
    assert found.ignored == ("tools.web_search",)
    wanted = {"tool_choice": "required", "parallel_tool_calls": False} if keywords is None else keywords
    assert {key: found.keywords[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"max_tokens": None}, "max_tokens: Field required"),
        ({"max_tokens": -1}, "max_tokens is -1"),
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "user"}]}, r"messages\[0\].content is missing"),
        ({"system": 5}, "system is 5, expected a text, or a list of blocks"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "is of type 'image'",
        ),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "none of the tools"),
        ({"tools": [TOOL, {**TOOL, "type": "web_search_20250305"}]}, "tools: Tool names must be unique"),
        ({"tool_choice": {"type": "any"}}, "tool_choice asks for a call"),
        ({"tool_choice": {"type": "tool", "name": "g"}}, "none of the tools"),
        ({"tool_choice": 5}, "tool_choice is 5, expected an object"),
        ({"thinking": {"type": "hard"}}, "thinking.type is 'hard'"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"model": ""}, "model is missing"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(body: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelkitError, match=words):
        asked(**body)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"metadata": "me"}, "metadata is 'me', expected an object"),
        ({"metadata": {"user_id": 5}}, "metadata.user_id is 5, expected a text"),
        ({"service_tier": "fast"}, "service_tier is 'fast', expected one of auto, standard_only"),
        ({"container": 5}, "container is 5, expected a text or an object"),
        ({"betas": 5}, "betas is 5, expected a text, or a list of texts"),
        ({"context_management": [1]}, "context_management is .*, expected an object"),
    ],
)
def test_what_changes_nothing_is_what_it_is_on_the_wire_all_the_same(body: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        asked(**body)
