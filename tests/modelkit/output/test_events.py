"""Streams give events: to loops, to event loops, and put together in what they leave."""

import asyncio
from collections.abc import Iterator

import pytest

import modelkit
from modelkit import Model
from modelkit.answers.generation import Finish
from modelkit.output.collected import Collected
from modelkit.output.events import CallArguments, CallEnd, CallStart, Text, Thinking
from tests.support.tiny import TEMPLATE, write_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with modelkit.load(write_model(tmp_path_factory.mktemp("events") / "model", template=TEMPLATE)) as model:
        yield model


def _texts(events: list[object]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


def test_events_end_with_the_answer(tiny: Model) -> None:
    with tiny.generate("Once", stream=True, seed=3, num_predict=12, top_logprobs=1) as stream:
        events = list(stream.events())
    *before, last = events
    assert isinstance(last, Finish)
    assert last.answer == stream.result
    assert _texts(before) == last.answer.text
    assert sum((event.ids for event in before if isinstance(event, Text)), ()) == last.answer.ids
    assert sum(len(event.logprobs) for event in before if isinstance(event, Text)) == len(last.answer.ids)


def test_events_of_an_event_loop_are_the_same(tiny: Model) -> None:
    async def read() -> list[object]:
        stream = tiny.generate("Once", stream=True, seed=3, num_predict=12)
        return [event async for event in stream.events()]

    events = asyncio.run(read())
    assert isinstance(events[-1], Finish)
    assert events[-1].answer.text == _texts(events) == tiny.generate("Once", seed=3, num_predict=12).text
    assert sum(isinstance(event, Finish) for event in events) == 1


def test_a_stop_string_lets_the_end_out(tiny: Model) -> None:
    whole = tiny.generate("Once", seed=3, num_predict=12).text
    stop = whole[len(whole) // 2 :][:3]
    events = list(tiny.generate("Once", stream=True, seed=3, num_predict=12, stop=stop).events())
    assert isinstance(events[-1], Finish)
    assert events[-1].answer.stop == stop
    assert _texts(events) == whole[: whole.index(stop)]


def test_who_leaves_gets_no_finish(tiny: Model) -> None:
    stream = tiny.generate("Once", stream=True, num_predict=50)
    events = stream.events()
    seen = [next(iter(events))]
    stream.close()
    assert not any(isinstance(event, Finish) for event in [*seen, *events])


def test_collected_calls_keep_what_is_no_json() -> None:
    collected = Collected()
    for event in (
        Thinking("hm"),
        Text("a"),
        CallStart(0, "call_1", "f"),
        CallArguments(0, '{"x": '),
        CallArguments(0, "1}"),
        CallEnd(0),
        CallStart(1, "call_2", "g"),
        CallArguments(1, '{"y": [1,'),
        CallEnd(1),
    ):
        collected.add(event)
    first, second = collected.tool_calls
    assert (first.name, first.arguments, first.written) == ("f", {"x": 1}, None)
    assert (second.arguments, second.written) == ({}, '{"y": [1,')
    assert (collected.text, collected.thinking) == ("a", "hm")
