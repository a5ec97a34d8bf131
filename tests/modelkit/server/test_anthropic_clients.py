"""Anthropic's official client against the server: sync and async, streamed or not."""

import asyncio
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest
from anthropic.types import Message, MessageParam

import modelkit
from modelkit.errors import ModelNotFound
from modelkit.model import Model
from modelkit.output.events import CallArguments, CallEnd, CallStart, Event, Text, Thinking
from modelkit.server.http.own_headers import IGNORED
from tests.support.served import scripted, served
from tests.support.tiny import TEMPLATE, write_model

HELLO: list[MessageParam] = [{"role": "user", "content": "Hello"}]
EVENTS: list[Event] = [
    *(Thinking("Hm", (1, 2)), Thinking(".", (3,)), Text("Let me "), Text("see.")),
    *(CallStart(0, "call_a", "weather"), CallArguments(0, '{"city": '), CallArguments(0, '"Rome"}')),
    *(CallEnd(0), CallStart(1, "call_b", "clock"), CallEnd(1)),
]
BEYOND: list[Event] = [CallStart(0, "call_a", "weather"), CallArguments(0, '{"far": 1e999}'), CallEnd(0)]
"""JSON, and a number in it that no answer can hold."""
PATHS = ("stream", "whole")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def address(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = write_model(tmp_path_factory.mktemp("model"), template=TEMPLATE)

    def opened(name: str) -> Model:
        if name not in ("tiny", "actor", "broken", "beyond"):
            raise ModelNotFound(f"model '{name}' not found")
        model, reason = modelkit.load(folder, home=home), "cancelled" if name == "broken" else "stop"
        events = BEYOND if name == "beyond" else EVENTS
        return model if name == "tiny" else scripted(model, lambda *_, **__: events, reason=reason)

    with served(opened, home, default_model="tiny") as url:
        yield url


@pytest.fixture
def client(anthropics: anthropic.Anthropic) -> anthropic.Anthropic:
    return anthropics


def ask(client: anthropic.Anthropic, path: str, **body: Any) -> Message:
    given = {"model": "actor", "max_tokens": 8, "messages": HELLO, **body}
    if path == "whole":
        return client.messages.create(**given)
    with client.messages.stream(**given) as stream:
        for _ in stream:
            pass
        return stream.get_final_message()


@pytest.mark.parametrize("path", PATHS)
def test_blocks_come_in_their_order(client: anthropic.Anthropic, path: str) -> None:
    message = ask(client, path, thinking={"type": "enabled", "budget_tokens": 1024})
    thought, text, *calls = (block.to_dict() for block in message.content)
    assert (thought["type"], thought["thinking"]) == ("thinking", "Hm.")
    assert len(str(thought["signature"])) == 44
    assert text == {"type": "text", "text": "Let me see."}
    assert calls == [
        {"type": "tool_use", "id": "toolu_call_a", "name": "weather", "input": {"city": "Rome"}},
        {"type": "tool_use", "id": "toolu_call_b", "name": "clock", "input": {}},
    ]
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (5, 4)
    assert message.usage.output_tokens == 5
    assert message.usage.to_dict()["output_tokens_details"] == {"thinking_tokens": 3}


def test_a_call_with_a_number_beyond_all_has_no_arguments(client: anthropic.Anthropic) -> None:
    (block,) = ask(client, "whole", model="beyond").content
    assert block.to_dict()["input"] == {}


@pytest.mark.parametrize("path", PATHS)
def test_thinking_may_be_left_out(client: anthropic.Anthropic, path: str) -> None:
    message = ask(client, path, thinking={"type": "adaptive", "display": "omitted"})
    thought = message.content[0].to_dict()
    assert thought["thinking"] == ""
    shown = ask(client, path, thinking={"type": "adaptive"}).content[0].to_dict()
    assert thought["signature"] == shown["signature"]


def test_the_key_of_signatures_is_its_owners_alone(client: anthropic.Anthropic, home: Path) -> None:
    ask(client, "whole")
    file = home / "thinking.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.stat().st_size == 32


@pytest.mark.parametrize("path", PATHS)
def test_a_real_answer_is_the_same_streamed_or_not(client: anthropic.Anthropic, path: str) -> None:
    message = ask(client, path, model="tiny", extra_body={"temperature": 0}, max_tokens=6)
    assert message.stop_reason in ("end_turn", "max_tokens")
    assert message.model == "tiny"
    usage = message.usage
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == len("<user>Hello<assistant>")
    assert 0 < usage.output_tokens <= 6
    count = client.messages.count_tokens(model="tiny", messages=HELLO)
    assert count.input_tokens == len("<user>Hello<assistant>")


@pytest.mark.parametrize("path", PATHS)
def test_a_prompt_is_read_before_anything_is_asked(client: anthropic.Anthropic, path: str) -> None:
    asked: Any = {"model": "tiny", "messages": [{"role": "user", "content": f"A long story, as a {path}."}]}
    warmed = ask(client, path, **asked, max_tokens=0)
    assert (warmed.content, warmed.stop_reason, warmed.usage.output_tokens) == ([], "max_tokens", 0)
    known = ask(client, path, **asked, max_tokens=1).usage.cache_read_input_tokens
    assert known is not None
    assert known > warmed.usage.input_tokens + (warmed.usage.cache_read_input_tokens or 0) - 3
    called = ask(client, path, model="actor", max_tokens=0)
    assert (called.content, called.stop_reason) == ([], "max_tokens")


def test_the_beginning_of_an_answer_is_counted_as_it_is_asked(client: anthropic.Anthropic) -> None:
    begun = client.messages.count_tokens(
        model="tiny", messages=[*HELLO, {"role": "assistant", "content": "Once"}]
    )
    assert begun.input_tokens == len("<user>Hello<assistant>Once")


def test_the_async_client_gets_the_same(address: str, client: anthropic.Anthropic) -> None:
    async def talk() -> list[Message]:
        async with anthropic.AsyncAnthropic(api_key="x", base_url=address) as other:
            given: Any = {"model": "tiny", "max_tokens": 6, "messages": HELLO}
            given["extra_body"] = {"temperature": 0}
            whole = await other.messages.create(**given)
            async with other.messages.stream(**given) as stream:
                return [whole, await stream.get_final_message()]

    texts = [[block.to_dict() for block in one.content] for one in asyncio.run(talk())]
    assert texts[0] == texts[1]


def test_any_claude_is_the_default_model(client: anthropic.Anthropic) -> None:
    message = ask(client, "whole", model="claude-haiku-4-5-20251001", max_tokens=2)
    assert message.model == "claude-haiku-4-5-20251001"
    with pytest.raises(anthropic.NotFoundError, match="model 'none' not found"):
        ask(client, "whole", model="none")


def test_models_are_told_as_anthropics_are(address: str, home: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "Modelfile"
    recipe.write_text(f"FROM {write_model(tmp_path)}\n", encoding="utf-8")
    modelkit.create(recipe, name="stored", home=home)
    with anthropic.Anthropic(api_key="x", base_url=address, _strict_response_validation=True) as strict:
        listed = strict.models.list().data
        assert [strict.models.retrieve("stored:latest")] == listed
        assert [one.max_input_tokens for one in listed] == [256]


def test_more_tokens_than_the_context_has_are_no_error(client: anthropic.Anthropic) -> None:
    message = ask(client, "stream", model="tiny", max_tokens=32000, stop_sequences=["zz"])
    assert message.stop_reason in ("end_turn", "model_context_window_exceeded", "stop_sequence")


def test_a_prompt_that_is_too_long_says_both_numbers(client: anthropic.Anthropic) -> None:
    talk: list[MessageParam] = [{"role": "user", "content": "a" * 999}]
    for path in PATHS:
        with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: 1016 tokens > 256 maximum"):
            ask(client, path, model="tiny", messages=talk)
    assert client.messages.count_tokens(model="tiny", messages=talk).input_tokens == 1016


def test_errors_have_anthropics_shape(address: str) -> None:
    answer = httpx.post(f"{address}/v1/messages", json={"model": "tiny", "messages": HELLO})
    assert answer.status_code == 400
    assert answer.json() == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "max_tokens: Field required"},
        "request_id": answer.headers["request-id"],
    }


def test_an_error_in_mid_stream_says_which_request_it_was(address: str) -> None:
    body = {"model": "broken", "max_tokens": 4, "messages": HELLO, "stream": True}
    answer = httpx.post(f"{address}/v1/messages", json=body)
    assert answer.status_code == 200
    name, data = answer.text.strip().split("\n\n")[-1].split("\n")
    said = json.loads(data.removeprefix("data: "))
    assert (name, said["type"], said["error"]["type"]) == ("event: error", "error", "overloaded_error")
    assert said["request_id"] == answer.headers["request-id"]


def test_what_did_nothing_is_named_in_a_header(address: str) -> None:
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    body = {"model": "actor", "max_tokens": 4, "messages": HELLO, "tools": tools}
    assert httpx.post(f"{address}/v1/messages?beta=true", json=body).headers[IGNORED] == "tools.web_search"


def test_every_event_has_its_name_and_starts_are_empty(address: str) -> None:
    body = {"model": "actor", "max_tokens": 4, "messages": HELLO, "stream": True}
    answer = httpx.post(f"{address}/v1/messages", json=body)
    events = [part.split("\n") for part in answer.text.split("\n\n")[:-1]]
    told = [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in events]
    assert all(name == value["type"] for name, value in told)
    names = [name for name, _ in told]
    assert names[:2] == ["message_start", "ping"]
    assert names[-2:] == ["message_delta", "message_stop"]
    starts = [value["content_block"] for name, value in told if name == "content_block_start"]
    assert starts[0] == {"type": "thinking", "thinking": "", "signature": ""}
    assert starts[1] == {"type": "text", "text": ""}
    assert [value["index"] for name, value in told if name == "content_block_stop"] == [0, 1, 2, 3]
    assert told[0][1]["message"]["usage"]["input_tokens"] == 5
    pieces = [value["delta"].get("partial_json") for name, value in told if name == "content_block_delta"]
    assert [one for one in pieces if one] == ['{"city": ', '"Rome"}']
