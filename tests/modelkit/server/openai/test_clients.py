"""OpenAI's own client against a server with a tiny model: sync and async, streamed and not."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import openai
import pytest

from modelkit.errors import ModelkitError
from modelkit.interest import Interest
from modelkit.loaded.long_work import LongWork
from modelkit.server.fields import Fields
from modelkit.server.openai.model_choice import client_names
from modelkit.server.serving import Serving
from runtime.engine.loop import Loop
from tests.support.live_server import connect, raw_request
from tests.support.served import wait_until

ASK: Any = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 12, "seed": 1}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "boolean"}},
    "required": ["a"],
    "additionalProperties": False,
}
FORM: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}


def test_a_chat_is_answered_whole_and_streamed_alike(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**ASK)
    assert "cmpl" in whole.id
    assert whole.system_fingerprint
    assert whole.usage is not None
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    chunks = list(client.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks[:-1]) == whole.choices[0].message.content
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_the_async_client_is_answered_alike(client: openai.OpenAI, url: str) -> None:
    async def ask() -> tuple[str, str]:
        async with openai.AsyncOpenAI(api_key="x", base_url=url, max_retries=0) as other:
            whole = await other.chat.completions.create(**ASK)
            parts = [c async for c in await other.chat.completions.create(**ASK, stream=True)]
            text = "".join(part.choices[0].delta.content or "" for part in parts)
            return whole.choices[0].message.content or "", text

    expected = client.chat.completions.create(**ASK).choices[0].message.content
    assert asyncio.run(ask()) == (expected, expected)


def test_several_answers_are_told_apart(client: openai.OpenAI) -> None:
    alone = [client.chat.completions.create(**{**ASK, "seed": seed}) for seed in (1, 2)]
    both = client.chat.completions.create(**ASK, n=2)
    texts = [choice.message.content for choice in both.choices]
    assert texts == [one.choices[0].message.content for one in alone]
    chunks = list(client.chat.completions.create(**ASK, n=2, stream=True))
    for index, text in enumerate(texts):
        of_it = [c.choices[0] for c in chunks if c.choices[0].index == index]
        assert "".join(choice.delta.content or "" for choice in of_it) == text
        assert of_it[-1].finish_reason


def test_logprobs_stop_and_timings(client: openai.OpenAI) -> None:
    made = client.chat.completions.create(**ASK, logprobs=True, top_logprobs=3)
    found, text = made.choices[0].logprobs, made.choices[0].message.content or ""
    assert found is not None
    assert found.content
    assert b"".join(bytes(one.bytes or []) for one in found.content).decode("utf-8", "replace") == text
    assert all(len(one.top_logprobs) == 3 for one in found.content)
    cut = client.chat.completions.create(**ASK, stop=[text[2:4]], logprobs=True)
    assert cut.choices[0].message.content == text[: text.index(text[2:4])]
    assert cut.choices[0].finish_reason == "stop"
    told = client.chat.completions.create(**ASK, n=2, extra_body={"timings_per_token": True})
    assert told.usage is not None
    assert told.to_dict()["timings"]["predicted_n"] == told.usage.completion_tokens  # type: ignore[index]


def test_a_form_is_followed(client: openai.OpenAI) -> None:
    asked = {**ASK, "max_tokens": 60}
    for form in (FORM, {"type": "json_object", "schema": SCHEMA}):
        made = client.chat.completions.create(**asked, response_format=form)
        assert isinstance(json.loads(made.choices[0].message.content or "")["a"], bool)
    streamed = client.chat.completions.create(**asked, response_format=FORM, stream=True)
    assert "a" in json.loads("".join(c.choices[0].delta.content or "" for c in streamed))
    text = client.responses.create(
        model="tiny", input="x", text={"format": {"name": "a", **FORM["json_schema"], "type": "json_schema"}}
    )
    assert isinstance(json.loads(text.output_text)["a"], bool)


def test_the_answer_goes_on_from_its_beginning(client: openai.OpenAI) -> None:
    made = client.chat.completions.create(**ASK, extra_body={"ignored": None})
    begun = [*ASK["messages"], {"role": "assistant", "content": (made.choices[0].message.content or "")[:2]}]
    more = client.chat.completions.create(**{**ASK, "messages": begun, "temperature": 0})
    assert more.usage is not None
    assert made.usage is not None
    assert more.usage.prompt_tokens > made.usage.prompt_tokens


def test_completions_of_texts_and_ids(client: openai.OpenAI) -> None:
    made = client.completions.create(
        model="tiny", prompt=["ab", "cd"], n=2, max_tokens=4, temperature=0, echo=True
    )
    assert [choice.index for choice in made.choices] == [0, 1, 2, 3]
    assert [choice.text[:2] for choice in made.choices] == ["ab", "ab", "cd", "cd"]
    assert made.choices[0].text == made.choices[1].text
    assert made.usage is not None
    assert (made.usage.prompt_tokens, made.usage.completion_tokens <= 16) == (4, True)
    ids = client.completions.create(model="tiny", prompt=[65, 66], max_tokens=4, temperature=0)
    told = client.completions.create(model="tiny", prompt=[65, 66], max_tokens=4, temperature=0, echo=True)
    assert told.choices[0].text.endswith(ids.choices[0].text)
    assert len(told.choices[0].text) > len(ids.choices[0].text)


def test_the_logprobs_of_an_echoed_prompt_are_the_models(client: openai.OpenAI) -> None:
    plain = openai.OpenAI(api_key="x", base_url=client.base_url)  # strict types know no null for the first
    with plain:
        told = plain.completions.create(model="tiny", prompt="abc", echo=True, logprobs=1, max_tokens=0)
        chosen = plain.completions.create(
            model="tiny", prompt="ab", logprobs=5, max_tokens=1, logit_bias={"66": 100}
        )
    logprobs, next_one = told.choices[0].logprobs, chosen.choices[0].logprobs
    assert logprobs is not None
    assert next_one is not None
    assert told.choices[0].text == "abc"
    assert (logprobs.tokens, logprobs.text_offset) == (["a", "b", "c"], [0, 1, 2])
    assert logprobs.token_logprobs is not None
    assert logprobs.token_logprobs[0] is None
    assert all(value < 0 for value in logprobs.token_logprobs[1:])
    assert next_one.tokens == ["c"]
    assert next_one.token_logprobs == pytest.approx(logprobs.token_logprobs[2:], abs=1e-3)


def test_what_a_model_refuses_is_told_by_the_clients_field(client: openai.OpenAI) -> None:
    for more in ({}, {"echo": True, "logprobs": 1}):
        with pytest.raises(openai.BadRequestError, match="prompt has the token id 9999") as refused:
            client.completions.create(model="tiny", prompt=[65, 9999], **more)
        assert refused.value.param == "prompt"
    assert client_names(Fields({"thinking_budget": 0}))["think"] == "thinking_budget"
    assert (
        client_names(Fields({"thinking_budget": 5, "reasoning_effort": "low"}))["think"] == "reasoning_effort"
    )


def test_a_response_goes_on_from_the_one_before(client: openai.OpenAI) -> None:
    first = client.responses.create(model="tiny", input="hey", max_output_tokens=9, instructions="be brief")
    assert client.responses.retrieve(first.id).output_text == first.output_text
    with client.responses.stream(
        model="tiny", input="and?", max_output_tokens=9, previous_response_id=first.id
    ) as stream:
        events = list(stream)
    last = events[-1]
    assert last.type in ("response.completed", "response.incomplete")
    assert last.response.usage is not None
    assert first.usage is not None
    assert last.response.usage.input_tokens > first.usage.input_tokens - len("<system>be brief")
    with pytest.raises(openai.BadRequestError, match="in the background is given as a stream"):
        client.responses.retrieve(first.id, stream=True)
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError, match=first.id):
        client.responses.create(model="tiny", input="?", previous_response_id=first.id)
    unkept = client.responses.create(model="tiny", input="hey", max_output_tokens=2, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unkept.id)


def test_the_prompt_of_a_response_is_counted_as_it_is_read(client: openai.OpenAI) -> None:
    tools: Any = [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}]
    first = client.responses.create(model="tiny", input="hey", max_output_tokens=5)
    asked: Any = {"model": "tiny", "input": "and?", "instructions": "be brief"}
    for more in ({}, {"previous_response_id": first.id}):
        counted = client.responses.input_tokens.count(**asked, **more)
        made = client.responses.create(**asked, **more, max_output_tokens=1)
        assert counted.object == "response.input_tokens"
        assert made.usage is not None
        assert counted.input_tokens == made.usage.input_tokens
    with pytest.raises(openai.BadRequestError, match="no place for them"):
        client.responses.input_tokens.count(**asked, tools=tools)


def test_a_summary_without_an_end_stands_for_nothing(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="no whole summary"):
        client.responses.compact(model="tiny", input="hey", extra_body={"max_output_tokens": 3})


def test_the_async_client_streams_responses(url: str) -> None:
    async def ask() -> list[str]:
        async with openai.AsyncOpenAI(api_key="x", base_url=url, max_retries=0) as other:
            stream = await other.responses.create(model="tiny", input="hey", max_output_tokens=4, stream=True)
            return [event.type async for event in stream]

    types = asyncio.run(ask())
    assert types[:3] == ["response.created", "response.in_progress", "response.output_item.added"]
    assert types[-1] in ("response.completed", "response.incomplete")


LONG_TALK = [{"role": "user", "content": "x" * 2000}]
BAD_FORM = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nothing"}}}
FAULTS: list[tuple[type[openai.APIStatusError], str | None, str, dict[str, Any]]] = [
    (openai.NotFoundError, "model_not_found", "nope", {"model": "nope"}),
    (
        openai.BadRequestError,
        "context_length_exceeded",
        "maximum context length is 1024 tokens.* 2017 ",
        {"messages": LONG_TALK},
    ),
    (openai.BadRequestError, None, "temperature", {"temperature": -1}),
    (openai.BadRequestError, None, "frobnicate", {"extra_body": {"frobnicate": 1}}),
    (openai.BadRequestError, None, "schema", {"response_format": BAD_FORM}),
]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("kind", "code", "words", "body"), FAULTS, ids=lambda one: str(one)[:40])
def test_an_error_says_what_is_wrong(
    client: openai.OpenAI,
    kind: type[openai.APIStatusError],
    code: str | None,
    words: str,
    body: Any,
    streamed: bool,
) -> None:
    with pytest.raises(kind, match=words) as error:
        client.chat.completions.create(**{**ASK, **body}, stream=streamed)
    found: Any = error.value.body
    assert found.keys() == {"message", "type", "param", "code"}
    assert found["code"] == code


def test_a_model_is_looked_for_by_its_whole_name(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="a/b:c"):
        client.models.retrieve("a/b:c")
    with pytest.raises(openai.APIStatusError) as error:
        client.models.delete("a/b:c")
    assert error.value.status_code == 405


LONG: Any = {**ASK, "max_tokens": 900, "logit_bias": {"256": -100}}  # never the end of the text


def leave_chat(client: openai.OpenAI) -> None:
    with client.chat.completions.create(**LONG, stream=True) as stream:
        next(iter(stream))


def leave_waiting(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.15).chat.completions.create(**LONG)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token takes 10 ms, whatever the machine."""
    step = Loop._step

    def late(loop: Loop, prefill: int) -> None:
        time.sleep(0.01)
        step(loop, prefill)

    monkeypatch.setattr(Loop, "_step", late)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("leave", [leave_chat, leave_waiting])
def test_who_leaves_stops_the_answer(
    client: openai.OpenAI, serving: Serving, leave: Callable[[openai.OpenAI], None]
) -> None:
    client.chat.completions.create(**ASK)  # loaded
    leave(client)
    wait_until(lambda: not serving.state.underway)
    (model,) = serving.pool.models()
    wait_until(lambda: not model.activity.running)


EMBEDDED: Any = {"input": ["a" * 400, "b" * 400]}  # too long to be read together
SCORED: Any = {"prompt": "a" * 600, "echo": True, "logprobs": 1, "max_tokens": 0}


@pytest.mark.parametrize(("path", "body"), [("/v1/embeddings", EMBEDDED), ("/v1/completions", SCORED)])
def test_who_leaves_ends_long_work_with_its_piece(
    client: openai.OpenAI,
    serving: Serving,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    body: Any,
) -> None:
    client.chat.completions.create(**ASK)  # loaded
    begun, gone, left, broken = (threading.Event() for _ in range(4))
    read, piece, end = list[int](), LongWork.piece, Interest.end

    def first(model: Any, function: Callable[[Any], Any]) -> Any:
        begun.set()
        assert left.wait(60)
        read.append(1)
        return function(model)

    def held(work: LongWork, function: Callable[[Any], Any]) -> Any:
        try:
            return piece(work, lambda model: first(model, function))
        except ModelkitError:
            broken.set()
            raise

    monkeypatch.setattr(LongWork, "piece", held)
    monkeypatch.setattr(Interest, "end", lambda interest: (end(interest), gone.set()))
    with connect(client.base_url.port or 0) as leaving:
        leaving.sendall(raw_request(path, json.dumps({"model": "tiny", **body}).encode()))
        assert begun.wait(60)
    assert gone.wait(60)
    wait_until(lambda: not serving.state.jobs and not serving.state.underway)
    left.set()
    assert broken.wait(60)
    assert read == [1]


def test_fields_that_change_nothing_are_named(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        **ASK, user="u", prediction={"type": "content", "content": "x"}
    )
    assert raw.headers["x-modelkit-ignored"] == "prediction, user"
    raw = client.chat.completions.with_raw_response.create(
        **ASK, extra_body={"stream_options": {"include_usage": True}, "return_progress": True}
    )  # which are about a stream
    assert raw.headers["x-modelkit-ignored"] == "return_progress, stream_options.include_usage"
    raw = client.completions.with_raw_response.create(
        model="tiny", prompt="a", max_tokens=1, extra_body={"stream_options": {"include_usage": True}}
    )
    assert raw.headers["x-modelkit-ignored"] == "stream_options.include_usage"
    told = client.responses.with_raw_response.create(
        model="tiny", input="hey", max_output_tokens=2, top_logprobs=2
    )  # it is `include` that asks for them
    assert told.headers["x-modelkit-ignored"] == "top_logprobs"


def test_a_name_may_be_left_out_where_one_model_is_there(client: openai.OpenAI) -> None:
    client.chat.completions.create(**ASK)
    made = client.responses.create(input="hey", max_output_tokens=2)
    assert made.usage is not None
    assert made.usage.output_tokens <= 2


def test_a_client_may_watch_its_prompt_being_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelkit.server.openai.routes.PROGRESS_S", 0.001)
    long = [{"role": "user", "content": "x" * 900}]
    with openai.OpenAI(api_key="x", base_url=url, max_retries=0) as client:
        chunks = list(
            client.chat.completions.create(
                model="tiny", messages=long, max_tokens=2, stream=True, extra_body={"return_progress": True}
            )
        )
    told: list[Any] = [c.to_dict().get("prompt_progress") for c in chunks if not c.choices]
    assert told
    assert all(one["cache"] <= one["processed"] <= one["total"] for one in told)
    assert next(c.choices[0].delta.role for c in chunks if c.choices) == "assistant"
    assert len({c.id for c in chunks}) == 1
