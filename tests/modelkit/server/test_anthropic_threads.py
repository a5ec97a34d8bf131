"""Conversations that Anthropic's clients leave at the server between their turns."""

from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest
from anthropic import beta_tool

import modelkit
from modelkit.chat.message import Message
from modelkit.model import Model
from modelkit.output.events import CallArguments, CallEnd, CallStart, Event, Text
from modelkit.server.anthropic.reading import read_messages_request
from modelkit.server.anthropic.threads import Thread, Threads
from modelkit.server.faults import Refused
from modelkit.server.fields import Fields
from tests.support.served import scripted, served
from tests.support.tiny import TEMPLATE, write_model

CALLS: list[Event] = [CallStart(0, "call_a", "weather"), CallArguments(0, '{"city": "Rome"}'), CallEnd(0)]
ASK: Any = {"model": "tiny", "max_tokens": 8}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home, folder = (
        tmp_path_factory.mktemp("home"),
        write_model(tmp_path_factory.mktemp("m"), template=TEMPLATE),
    )

    def events(messages: list[Message], **_: Any) -> list[Event]:
        results = [one for one in messages if one.role == "tool"]
        return [Text(f"It is {results[-1].content}.")] if results else CALLS

    def echo(messages: list[Message], **_: Any) -> list[Event]:
        return [Text(f"of: {messages[-1].content}")]

    def counted(messages: list[Message], *, tools: Any = (), **_: Any) -> list[Event]:
        return [Text(" ".join(one["function"]["name"] for one in tools))]

    def roles(messages: list[Message], **_: Any) -> list[Event]:
        return [Text(" ".join(one.role for one in messages))]

    scripts: dict[str, Any] = {"writer": echo, "teller": roles, "counter": counted}

    def opened(name: str) -> Model:
        model = modelkit.load(folder, home=home, temperature=0)
        return model if name == "tiny" else scripted(model, scripts.get(name, events))

    with served(opened, home) as url:
        yield url


@pytest.mark.parametrize("streamed", [False, True])
def test_a_thread_is_answered_as_the_whole_conversation(
    anthropics: anthropic.Anthropic, streamed: bool
) -> None:
    thread = anthropics.beta.messages.thread(**ASK, system="be brief")
    for number in range(3):
        asked: Any = {"role": "user", "content": f"question {number}"}
        if streamed:
            with thread.stream(asked) as stream:
                answer = stream.get_final_message()
        else:
            answer = thread.send(asked)
        whole = anthropics.beta.messages.create(**ASK, system="be brief", messages=thread.messages[:-1])
        texts = [[one.text for one in made.content if one.type == "text"] for made in (answer, whole)]
        assert texts[0] == texts[1]
        tokens = [
            one.usage.input_tokens + (one.usage.cache_read_input_tokens or 0) for one in (answer, whole)
        ]
        assert tokens[0] == tokens[1]
    assert thread.previous_message_id == answer.id


def test_a_thread_clears_a_system_message_as_the_whole_conversation_does(
    anthropics: anthropic.Anthropic,
) -> None:
    once: Any = {"role": "system", "content": "be brief", "clear_at": "next_user_message"}
    thread = anthropics.beta.messages.thread(model="teller", max_tokens=8)
    told: list[Any] = []
    for number in range(3):
        asked: Any = {"role": "user", "content": f"question {number}"}
        answer = thread.send(asked, *([] if number else [once]))
        whole = anthropics.beta.messages.create(model="teller", max_tokens=8, messages=thread.messages[:-1])
        told.append(answer.content[0])
        assert [answer.content[0]] == whole.content
    assert [one.text for one in told] == [
        "user system",
        "user assistant user",
        "user assistant user assistant user",
    ]


def test_a_thread_keeps_the_effort_that_a_message_has_set() -> None:
    low: Any = {"role": "system", "content": [], "output_config": {"effort": "low"}}
    efforts: dict[str, Any] = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}
    threads, thread, told = Threads(), {"type": "create"}, list[Any]()
    for number, messages in enumerate([[], [low], []]):
        asked = {"messages": [*messages, {"role": "user", "content": "so?"}], "thread": thread}
        read = read_messages_request(Fields({**ASK, **efforts, **asked}), threads)
        assert read.thread is not None
        threads.keep(read.thread, str(number), Message("assistant", "so."))
        thread = {"type": "continue", "previous_message_id": str(number)}
        told.append(read.think)
    assert told == ["high", "low", "low"]


def test_a_runner_of_tools_goes_on(anthropics: anthropic.Anthropic) -> None:
    @beta_tool
    def weather(city: str) -> str:
        """The weather."""
        return f"sunny in {city}"

    asked: Any = {"model": "actor", "max_tokens": 8, "messages": [{"role": "user", "content": "Rome?"}]}
    runner = anthropics.beta.messages.tool_runner(**asked, tools=[weather])
    (said,) = runner.until_done().content
    assert said.type == "text"
    assert said.text == "It is sunny in Rome."


def test_a_thread_keeps_how_its_tools_were_changed(anthropics: anthropic.Anthropic) -> None:
    tools: Any = [{"name": name, "input_schema": {"type": "object"}} for name in ("one", "two")]
    thread = anthropics.beta.messages.thread(model="counter", max_tokens=8, tools=tools)

    def told(*changes: str) -> str:
        blocks: Any = [
            {"type": f"tool_{kind}", "tool": {"type": "tool_reference", "name": "one"}} for kind in changes
        ]
        if blocks:
            thread.append({"role": "system", "content": blocks})
        (block,) = thread.send({"role": "user", "content": "which?"}).content
        return block.text if block.type == "text" else ""

    assert told() == "one two"
    assert told("removal") == told() == "two"
    assert told("addition") == told() == "two one"


def test_one_that_is_lost_is_said_in_the_clients_word(anthropics: anthropic.Anthropic, address: str) -> None:
    thread = anthropics.beta.messages.thread(**ASK)
    thread.send({"role": "user", "content": "one"})
    lost = thread.previous_message_id
    thread.send({"role": "user", "content": "two"})
    body = {**ASK, "messages": [{"role": "user", "content": "x"}]}
    body["thread"] = {"type": "continue", "previous_message_id": lost}
    said = httpx.post(f"{address}/v1/messages", json=body)
    assert said.status_code == 404
    assert said.json()["error"]["details"] == {"error_code": "thread_not_found"}
    forked = thread.fork()
    thread.send({"role": "user", "content": "three"})
    assert forked.send({"role": "user", "content": "three"}).content == thread.messages[-1]["content"]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_conversation_is_made_short(anthropics: anthropic.Anthropic, streamed: bool) -> None:
    wish: Any = {"type": "summarize", "instructions": "Be short."}
    asked: Any = {
        **ASK,
        "model": "writer",
        "compaction": wish,
        "messages": [{"role": "user", "content": "q"}],
    }
    if streamed:
        with anthropics.beta.messages.stream(**asked) as stream:
            made: Any = stream.get_final_message()
    else:
        made = anthropics.beta.messages.create(**asked)
    assert made.stop_reason == "compaction"
    (block,) = made.content
    assert (block.type, block.content) == ("compaction", "of: q\n\nBe short.")
    talk: Any = [{"role": "assistant", "content": made.content}, {"role": "user", "content": "and?"}]
    again: Any = anthropics.beta.messages.create(**{**ASK, "model": "writer"}, messages=talk)
    assert "Summary of the conversation so far:\n\nof: q" in again.content[0].text
    failed = anthropics.beta.messages.create(**{**asked, "model": "tiny", "max_tokens": 1})
    assert (failed.stop_reason, failed.content[0].to_dict()) == (
        "compaction",
        {"type": "compaction", "content": None},
    )
    counted = anthropics.beta.messages.count_tokens(model="tiny", messages=asked["messages"])
    more: Any = {"extra_body": {"compaction": wish}}
    assert anthropics.beta.messages.count_tokens(model="tiny", messages=asked["messages"], **more) == counted


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"system": "s"}, "system: a thread keeps what it was created with"),
        ({"tools": [{"name": "f", "input_schema": {}}]}, "tools: a thread keeps"),
        ({"thread": {"type": "continue"}}, "thread.previous_message_id is missing"),
        ({"thread": {"type": "go on"}}, "thread.type is 'go on', expected one of create, continue"),
        ({"thread": {}}, "thread.type is missing"),
    ],
)
def test_what_a_thread_cannot_have_is_refused(address: str, more: dict[str, Any], told: str) -> None:
    body = {**ASK, "messages": [{"role": "user", "content": "x"}]}
    made = httpx.post(f"{address}/v1/messages", json={**body, "thread": {"type": "create"}}).json()
    goes_on = {"type": "continue", "previous_message_id": made["id"]}
    said = httpx.post(f"{address}/v1/messages", json={**body, "thread": goes_on, **more})
    assert said.status_code == 400
    assert told in said.json()["error"]["message"]


def test_the_oldest_leave() -> None:
    threads = Threads(most=2, most_bytes=4000)

    def known(id: str) -> bool:  # noqa: A002
        given = Fields({"thread": {"type": "continue", "previous_message_id": id}})
        try:
            return threads.of(given) is not None
        except Refused:
            return False

    for name in "abc":
        threads.keep(Thread([Message("user", "hi")]), name, Message("assistant", "so"))
    assert [known(name) for name in "abc"] == [False, True, True]
    threads.keep(Thread([Message("user", "x" * 4000)]), "d", Message("assistant"))
    assert not any(known(name) for name in "abcd")
