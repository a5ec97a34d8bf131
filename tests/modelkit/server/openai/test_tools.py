"""Thinking and calls of tools through OpenAI's own client: what reaches the model, and what comes back."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import openai
import pydantic
import pytest

import modelkit
from modelkit.model import Model
from modelkit.output.events import CallArguments, CallEnd, CallStart, Event, Text, Thinking
from tests.support.served import scripted, served
from tests.support.tiny import TEMPLATE, write_model

ASK: Any = {"model": "actor", "messages": [{"role": "user", "content": "hi"}]}


class Weather(pydantic.BaseModel):
    """The weather of a city."""

    city: str
    days: int = 1


TOOL = openai.pydantic_function_tool(Weather)
CALL = [
    CallStart(0, "call_abc", "Weather"),
    CallArguments(0, '{"city": "Par'),
    CallArguments(0, 'is", "days": 2}'),
    CallEnd(0),
]
THOUGHT = [Thinking("hm", (1, 2)), Thinking(" so", (3,))]
SEEN: list[tuple[Any, dict[str, Any]]] = []
"""Messages and keywords that the model was asked with, the latest last."""


def act(messages: Any, **options: Any) -> Sequence[Event]:
    """Calls the tool until it has a result; a model that may not call says so."""
    SEEN.append((messages, options))
    results = [one.content for one in messages if one.role == "tool"]
    if results or options.get("tool_choice") == "none" or not options.get("tools"):
        return [*THOUGHT, Text(f"It is {' and '.join(results)}.", (4, 5))]
    return [*THOUGHT, *CALL]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("home")
    plain = write_model(tmp_path_factory.mktemp("model"), template=TEMPLATE)
    switched = TEMPLATE + "{% if enable_thinking is false %}<think></think>{% endif %}"
    thinker = write_model(tmp_path_factory.mktemp("thinker"), template=switched)

    def opened(name: str) -> Model:
        return scripted(modelkit.load(thinker if name == "thinker" else plain, home=home), act)

    with served(opened, home) as address:
        yield f"{address}/v1"


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="x", base_url=url, max_retries=0, _strict_response_validation=True) as made:
        yield made


CHOICES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"tool_choice": "auto", "parallel_tool_calls": True}, {}),
    ({"tool_choice": "required"}, {"tool_choice": "required"}),
    ({"tool_choice": {"type": "function", "function": {"name": "Weather"}}}, {"tool_choice": "Weather"}),
    ({"tool_choice": "none"}, {"tool_choice": "none"}),
    ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
]


@pytest.mark.parametrize(("given", "wanted"), CHOICES, ids=lambda one: str(one)[:50])
def test_a_choice_of_tools_reaches_the_model(
    client: openai.OpenAI, given: dict[str, Any], wanted: dict[str, Any]
) -> None:
    made = client.chat.completions.create(**ASK, tools=[TOOL], **given)
    options = SEEN[-1][1]
    assert {
        name: options[name] for name in ("tool_choice", "parallel_tool_calls") if name in options
    } == wanted
    called = made.choices[0].message.tool_calls or []
    assert len(called) == (0 if given.get("tool_choice") == "none" else 1)
    assert made.choices[0].finish_reason == ("tool_calls" if called else "stop")


@pytest.mark.parametrize("streamed", [False, True])
def test_a_loop_of_tools_goes_round(client: openai.OpenAI, streamed: bool) -> None:
    messages: list[Any] = [*ASK["messages"]]
    if streamed:
        with client.chat.completions.stream(model="actor", messages=messages, tools=[TOOL]) as stream:
            deltas = [
                event.arguments_delta
                for event in stream
                if event.type == "tool_calls.function.arguments.delta"
            ]
            made = stream.get_final_completion()
        assert [one for one in deltas if one] == ['{"city": "Par', 'is", "days": 2}']
    else:
        made = client.chat.completions.parse(model="actor", messages=messages, tools=[TOOL])
    (call,) = made.choices[0].message.tool_calls or []
    assert call.function.parsed_arguments == Weather(city="Paris", days=2)
    assert made.choices[0].message.model_extra == {"reasoning_content": "hm so", "reasoning": "hm so"}
    assert made.usage is not None or streamed
    messages += [
        made.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": [{"type": "text", "text": "sunny"}]},
    ]
    done = client.chat.completions.create(model="actor", messages=messages, tools=[TOOL])
    assert done.choices[0].message.content == "It is sunny."
    assert done.usage is not None
    assert done.usage.completion_tokens_details is not None
    assert done.usage.completion_tokens_details.reasoning_tokens == 3
    asked = SEEN[-1][0]
    assert (asked[1].thinking, asked[1].tool_calls[0].arguments) == ("hm so", {"city": "Paris", "days": 2})
    assert asked[2].tool_call_id == asked[1].tool_calls[0].id == "call_abc"


def test_a_loop_of_responses_goes_round(client: openai.OpenAI) -> None:
    tool: Any = {"type": "function", "strict": True, **TOOL["function"]}
    include: Any = ["reasoning.encrypted_content"]
    items: list[Any] = [{"role": "user", "content": "hi"}]
    with client.responses.stream(
        model="actor", input=items, tools=[tool, {"type": "web_search"}], store=False, include=include
    ) as stream:
        made = list(stream)[-1]
    assert made.type == "response.completed"
    assert [one.type for one in made.response.output] == ["reasoning", "function_call"]
    call = made.response.output[1]
    assert call.type == "function_call"
    assert call.arguments == '{"city": "Paris", "days": 2}'
    items += [one.to_dict() for one in made.response.output]
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "rain"})
    done = client.responses.create(model="actor", input=items, tools=[tool], store=False)
    assert done.output_text == "It is rain."
    assert done.usage is not None
    assert done.usage.output_tokens_details.reasoning_tokens == 3
    assert SEEN[-1][0][1].thinking == "hm so"
    again = client.responses.create(model="actor", input="hi", tools=[tool])
    kept = client.responses.create(
        model="actor",
        previous_response_id=again.id,
        input=[{"type": "function_call_output", "call_id": "call_abc", "output": "fog"}],
        tools=[tool],
    )
    assert kept.output_text == "It is fog."


def test_the_async_client_sees_calls_come(url: str) -> None:
    async def ask() -> list[str]:
        client = openai.AsyncOpenAI(api_key="x", base_url=url, max_retries=0)
        async with client, client.chat.completions.stream(**ASK, tools=[TOOL]) as stream:
            return [event.type async for event in stream]

    seen = asyncio.run(ask())
    assert "tool_calls.function.arguments.done" in seen


EFFORTS: list[tuple[Any, Any]] = [("none", False), ("high", "high"), ("xhigh", "xhigh")]


@pytest.mark.parametrize("thinks", [True, False])
@pytest.mark.parametrize(("effort", "wanted"), EFFORTS)
def test_an_effort_reaches_a_model_that_thinks(
    client: openai.OpenAI, effort: Any, wanted: Any, thinks: bool
) -> None:
    model = "thinker" if thinks else "actor"
    expected = wanted if thinks or wanted is False else None
    client.chat.completions.create(model=model, messages=ASK["messages"], reasoning_effort=effort)
    assert SEEN[-1][1].get("think") == expected
    client.responses.create(model=model, input="x", reasoning={"effort": effort})
    assert SEEN[-1][1].get("think") == expected


def test_a_tool_of_any_name_is_named_in_a_header(client: openai.OpenAI) -> None:
    kinds: Any = [{"type": "web_search"}, {"type": "f\u00fcr\r\nx: y"}]
    made = client.responses.with_raw_response.create(model="actor", input="x", tools=kinds)
    assert made.headers["x-modelkit-ignored"] == "web_search, f?r?x:?y"


def test_a_conversation_is_compacted_and_goes_on(client: openai.OpenAI) -> None:
    flat: Any = {"type": "function", "strict": None, **TOOL["function"]}
    call: Any = {"type": "function_call", "call_id": "c", "name": "Weather", "arguments": '{"city": "Paris"}'}
    result: Any = {"type": "function_call_output", "call_id": "c", "output": "rain"}
    asked: list[Any] = [{"role": "user", "content": "hi"}, call, result]
    made = client.responses.compact(model="actor", input=asked, extra_body={"tools": [flat]})
    told, options = SEEN[-1]
    assert [one.role for one in told] == ["user", "assistant", "tool", "user"]
    assert "summary" in told[-1].content
    assert options["tool_choice"] == "none"
    assert (made.object, made.usage.output_tokens_details.reasoning_tokens) == ("response.compaction", 3)
    (item,) = made.output
    assert item.type == "compaction"
    kept: list[Any] = [item.to_dict(), {"role": "user", "content": "and?"}]
    client.responses.create(model="actor", input=kept)
    assert [(one.role, one.content.split("\n")[-1]) for one in SEEN[-1][0]] == [
        ("system", "It is rain."),
        ("user", "and?"),
    ]
    client.responses.compact(model="actor", input=kept)
    assert [one.role for one in SEEN[-1][0]] == ["system", "user"]
