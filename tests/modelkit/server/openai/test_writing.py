"""What this dialect writes, read by the official client as strictly as it can: every order of events."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import openai
import pytest
from hypothesis import assume, example
from hypothesis import given as drawn
from hypothesis import strategies as st

from modelkit.answers.generation import Finish, Generation
from modelkit.chat.message import ToolCall
from modelkit.output.events import CallArguments, CallEnd, CallStart, Event, Text, Thinking
from modelkit.server.ask import Started
from modelkit.server.faults import Fault
from modelkit.server.fields import Fields
from modelkit.server.logprobs import Tokens, readable
from modelkit.server.openai.chat_request import Style
from modelkit.server.openai.chat_writer import ChatStream
from modelkit.server.openai.completion_request import read_completion
from modelkit.server.openai.completion_writer import Choice, CompletionStream, Echo
from modelkit.server.openai.response_request import read_response
from modelkit.server.openai.response_store import Kept
from modelkit.server.openai.response_writer import ResponseStream
from modelkit.server.openai.usage import chat_usage
from modelkit.server.replying import Writer
from modelkit.tokenizer.decoding import (
    _BYTES,  # pyright: ignore[reportPrivateUsage]
    ByteFallback,
    ByteLevel,
)
from runtime.engine.request import TokenLogprob, Usage

WORDS = {
    1: b"Hel",
    2: b"lo",
    3: b"\xe2\x82",
    4: b"\xac",
    5: b" more",
    6: b"STOP",
    7: b"\n\n",
    8: b"  ",
    9: b">Hel",
    10: b"lo<",
    11: b"a \xe2",
    12: b"\x82\xac",
    13: b"\x82",
    14: b"\xac",
    15: b" ",
    16: b"\n",
}
USAGE = Usage(prompt_tokens=9, cached_tokens=4, generated_tokens=7, decode_s=0.5, prefill_s=0.1)

THOUGHT = [Thinking("hm", (1,)), Thinking(" so", (2,))]
SAID = [
    Text("Hello"),
    Text(' "\\n\x00</script>\\u00e9\t'),
    Text(" \u20ac\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")),
]
ONE_CALL = [CallStart(0, "call_1", "f"), CallArguments(0, '{"a": '), CallArguments(0, "1}"), CallEnd(0)]
OTHER_CALL = [CallStart(1, "call_2", "g"), CallArguments(1, '{"b": "x"}'), CallEnd(1)]
CUT_CALL = [CallStart(0, "call_1", "f"), CallArguments(0, '{"a": "lon'), CallEnd(0)]
ORDERS: dict[str, Sequence[Event]] = {
    "nothing": [],
    "text": SAID,
    "thinking": THOUGHT,
    "thinking, text": [*THOUGHT, *SAID],
    "call": ONE_CALL,
    "text, calls": [*SAID, *ONE_CALL, *OTHER_CALL],
    "thinking, calls": [*THOUGHT, *ONE_CALL, *OTHER_CALL],
    "thinking, call, text": [*THOUGHT, *ONE_CALL, *SAID],
    "thinking twice": [*THOUGHT, *SAID, *THOUGHT, Text("end")],
    "empty pieces": [Thinking(""), Text(""), *ONE_CALL[:1], CallArguments(0, ""), *ONE_CALL[1:]],
}


def finish(events: Sequence[Event], reason: str = "stop") -> Finish:
    text = "".join(event.text for event in events if isinstance(event, Text))
    thinking = "".join(event.text for event in events if isinstance(event, Thinking)) or None
    calls = tuple(ToolCall(event.name, {}, event.id) for event in events if isinstance(event, CallStart))
    answer = Generation(text, (), USAGE, cast(Any, reason), 1, thinking=thinking, tool_calls=calls)
    return Finish(answer)


STARTED = cast(
    Started,
    SimpleNamespace(created_s=5.0, digest="", model=SimpleNamespace(name="m", token_bytes=WORDS.__getitem__)),
)


def client(body: bytes | dict[str, Any], *, strict: bool = True) -> openai.OpenAI:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if isinstance(body, dict):
            return httpx2.Response(200, json=body)
        return httpx2.Response(200, content=body, headers={"content-type": "text/event-stream"})

    transport = httpx2.Client(transport=httpx2.MockTransport(answer))
    return openai.OpenAI(
        api_key="x", base_url="http://x/v1", http_client=transport, _strict_response_validation=strict
    )


def streamed(writer: Writer, batches: Sequence[Sequence[Event | Finish]]) -> bytes:
    return writer.begin(STARTED) + b"".join(writer.batch(0, batch) for batch in batches) + writer.end()


def split(events: Sequence[Event], last: Finish, size: int) -> list[list[Event | Finish]]:
    every: list[Event | Finish] = [*events, last]
    return [every[at : at + size] for at in range(0, len(every), size)]


@pytest.mark.parametrize("size", [1, 3, 99])
@pytest.mark.parametrize("order", ORDERS)
def test_a_streamed_chat_is_put_together_again(order: str, size: int) -> None:
    events = ORDERS[order]
    last = finish(events)
    body = streamed(ChatStream("m", Style(stream=True, usage=True), 1), split(events, last, size))
    with client(body).chat.completions.stream(model="m", messages=[]) as stream:
        for _ in stream:
            pass
        made = stream.get_final_completion()
    message, answer = made.choices[0].message, last.answer
    assert (message.content or "") == answer.text
    assert (message.model_extra or {}).get("reasoning_content") == answer.thinking
    called = [(call.id, call.function.name) for call in message.tool_calls or []]
    assert called == [(call.id, call.name) for call in answer.tool_calls]
    for call in message.tool_calls or []:
        assert call.function.arguments in ('{"a": 1}', '{"b": "x"}')
    assert made.choices[0].finish_reason == ("tool_calls" if called else "stop")
    assert made.usage is not None
    assert made.usage.prompt_tokens_details is not None
    assert (made.usage.prompt_tokens, made.usage.prompt_tokens_details.cached_tokens) == (9, 4)


@pytest.mark.parametrize("order", ORDERS)
def test_a_whole_chat_says_what_the_stream_said(order: str) -> None:
    events = ORDERS[order]
    writer = ChatStream("m", Style(), 1)
    writer.begin(STARTED)
    writer.take(0, [*events, finish(events)])
    made = client(writer.whole()).chat.completions.create(model="m", messages=[])
    message, answer = made.choices[0].message, finish(events).answer
    assert (message.content or "") == answer.text
    assert len(message.tool_calls or ()) == len(answer.tool_calls)
    assert (message.model_extra or {}).get("reasoning") == answer.thinking


def test_a_streams_chunks_have_the_shape_that_clients_know() -> None:
    body = streamed(ChatStream("m", Style(), 1), [[*SAID, *ONE_CALL, finish(ONE_CALL)]])
    chunks = list(client(body).chat.completions.create(model="m", messages=[], stream=True))
    first, *middle, end = [chunk.to_dict()["choices"][0] for chunk in chunks]
    assert first["delta"] == {"role": "assistant", "content": None}
    assert all("role" not in one["delta"] for one in middle)
    assert (end["delta"], end["finish_reason"]) == ({}, "tool_calls")
    assert len({(chunk.id, chunk.created) for chunk in chunks}) == 1
    calls = [one["delta"]["tool_calls"][0] for one in middle if "tool_calls" in one["delta"]]
    assert [sorted(call) for call in calls] == [
        ["function", "id", "index", "type"],
        *[["function", "index"]] * 2,
    ]
    assert body.isascii()
    assert body.endswith(b"data: [DONE]\n\n")


def test_a_call_that_was_cut_stays_as_it_was_written() -> None:
    body = streamed(ChatStream("m", Style(), 1), [[*CUT_CALL, finish(CUT_CALL, "length")]])
    chunks = list(client(body).chat.completions.create(model="m", messages=[], stream=True))
    written = "".join(
        call.function.arguments or ""
        for chunk in chunks
        for call in chunk.choices[0].delta.tool_calls or []
        if call.function
    )
    assert written == '{"a": "lon'
    assert chunks[-1].choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("told", "rest", "arguments"),
    [("", "not json", "not json"), ('{"a": ', "oops}", '{"a": oops}'), ('{"a": 1}', "oops", '{"a": 1}')],
)
def test_a_call_that_broke_says_what_the_model_wrote(told: str, rest: str, arguments: str) -> None:
    """Else one without any JSON would look like a call without arguments, which clients run."""
    start, written = CallStart(0, "call_1", "f"), [CallArguments(0, told)] if told else []
    events = [start, *written, CallEnd(0, rest)]
    body = streamed(ChatStream("m", Style(), 1), [[*events, finish(events)]])
    chunks = client(body).chat.completions.create(model="m", messages=[], stream=True)
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert "".join(call.function.arguments or "" for call in calls if call.function) == arguments
    body = responded(events, finish(events), 1)
    last = list(client(body).responses.create(model="m", input="x", stream=True))[-1]
    assert last.type == "response.completed"
    item = last.response.output[-1].to_dict()
    status = "completed" if told.endswith("}") else "incomplete"
    assert (item["arguments"], item["status"]) == (arguments, status)


def responded(events: Sequence[Event], last: Finish, size: int, **body: Any) -> bytes:
    asked = read_response(Fields({"model": "m", "input": "x", **body}), Kept())
    return streamed(ResponseStream(asked, None), split(events, last, size))


@pytest.mark.parametrize("size", [1, 99])
@pytest.mark.parametrize("summary", [None, "auto"])
@pytest.mark.parametrize("order", ORDERS)
def test_a_streamed_response_is_put_together_again(order: str, summary: str | None, size: int) -> None:
    events, last = ORDERS[order], finish(ORDERS[order])
    wanted = {"reasoning": {"summary": summary}, "include": ["reasoning.encrypted_content"]}
    with client(responded(events, last, size, **wanted)).responses.stream(model="m", input="x") as stream:
        seen = list(stream)
        made = stream.get_final_response()
    assert [event.sequence_number for event in seen if hasattr(event, "sequence_number")] == list(
        range(len([event for event in seen if hasattr(event, "sequence_number")]))
    )
    assert made.output_text == last.answer.text
    items = [item.to_dict() for item in made.output]
    thought = [item for item in items if item["type"] == "reasoning"]
    parts = [
        part["text"] for item in thought for part in cast(Any, item["summary" if summary else "content"])
    ]
    assert "".join(parts) == (last.answer.thinking or "")
    assert all(str(item["encrypted_content"]).startswith("modelkit:") for item in thought)
    calls = [item["name"] for item in items if item["type"] == "function_call"]
    assert calls == [call.name for call in last.answer.tool_calls]
    assert len({item["id"] for item in items}) == len(items) > 0


def test_a_response_that_was_cut_is_incomplete() -> None:
    body = responded(SAID, finish(SAID, "length"), 1)
    last = list(client(body).responses.create(model="m", input="x", stream=True))[-1]
    assert last.type == "response.incomplete"
    assert last.response.incomplete_details is not None
    assert last.response.incomplete_details.reason == "max_output_tokens"
    assert last.response.output[0].to_dict()["status"] == "incomplete"


def test_a_call_that_was_cut_is_no_whole_item_of_a_response() -> None:
    body = responded(CUT_CALL, finish(CUT_CALL, "length"), 1)
    events = list(client(body).responses.create(model="m", input="x", stream=True))
    last = events[-1]
    assert last.type == "response.incomplete"
    assert last.response.output[-1].to_dict()["status"] == "incomplete"
    (done,) = (event for event in events if event.type == "response.output_item.done")
    assert done.item.to_dict()["status"] == "incomplete"


def test_thinking_comes_back_from_the_field_that_clients_send_back() -> None:
    body = responded(THOUGHT, finish(THOUGHT), 1, include=["reasoning.encrypted_content"])
    done = list(client(body).responses.create(model="m", input="x", stream=True))[-1]
    assert done.type == "response.completed"
    item = done.response.output[0].to_dict()
    del item["content"]
    again = read_response(Fields({"model": "m", "input": [item]}), Kept())
    assert again.messages[0].thinking == "hm so"
    foreign = {**item, "encrypted_content": "gAAAAABlsealed"}
    kept = [foreign, {"role": "user", "content": "x"}]
    assert read_response(Fields({"input": kept}), Kept()).messages[0].role == "user"


@pytest.mark.parametrize("begun", [True, False])
def test_an_error_in_the_middle_reaches_the_client(begun: bool) -> None:
    fault = Fault("internal", "the engine has ended")
    chat = ChatStream("m", Style(), 1)
    body = (chat.begin(STARTED) if begun else b"") + chat.fail(fault)
    with pytest.raises(openai.APIError, match="the engine has ended"):
        list(client(body).chat.completions.create(model="m", messages=[], stream=True))
    asked = read_response(Fields({"model": "m", "input": "x"}), Kept())
    writer = ResponseStream(asked, None)
    body = (writer.begin(STARTED) if begun else b"") + writer.fail(fault)
    events = list(client(body).responses.create(model="m", input="x", stream=True))
    assert events[0].type == "response.created"
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None
    assert "engine" in events[-1].response.error.message


def logprobs(*ids: int) -> tuple[TokenLogprob, ...]:
    return tuple(TokenLogprob(one, -0.5, ((one, -0.5), (7, -3.0))) for one in ids)


TOLD = [
    [Text("Hel", (1,), logprobs(1)), Text("lo", (2,), logprobs(2))],
    [Text("Hello", (1, 2), logprobs(1, 2))],
    [Text("", (3,), logprobs(3)), Text("\u20ac", (4,), logprobs(4)), Text(" more", (5,), logprobs(5))],
    [Text("Hello", (1, 2, 6), logprobs(1, 2, 6))],  # a stop string behind it
    [Text("", (7,), logprobs(7)), Text("Hello", (1, 2), logprobs(1, 2))],  # blanks around a mark
    [Text("more", (5,), logprobs(5))],  # the blank that texts begin without
    [Text("  more", (8, 5), logprobs(8, 5))],  # one of more of them
    [Text(" ", (8,), logprobs(8)), Text(" more", (5,), logprobs(5))],
    [Text(" ", (8,), logprobs(8)), Text(" "), Text("Hel", (1,), logprobs(1))],  # maybe of a stop string
    [Text(" ", (8,), logprobs(8)), Text(" ")],
    [
        Text("", (15,), logprobs(15)),
        Text(" ", (8,), logprobs(8)),
        Text(" "),
    ],  # and one is not part of the text
    [Text("", (15,), logprobs(15)), Text("\n", (16,), logprobs(16)), Text(" ", (8,), logprobs(8))],
    [Text("Hello", (9, 2), logprobs(9, 2))],  # a mark ends in its first token
    [Text("Hel", (1,), logprobs(1)), Text("lo", (10,), logprobs(10))],  # a stop string begins in its last
    [Text("lo", (10,), logprobs(10)), Text("Hel", (1,), logprobs(1))],  # a mark, between two texts
    [Text("H", (1,), logprobs(1)), Text("el", (), ())],  # held back in part
    [Text("a ", (11,), logprobs(11))],  # a stop string begins in its last, within a character
    [Text("a ", (11,), logprobs(11)), Text("\u20ac", (12,), logprobs(12))],
    [Text("a ", (11,), logprobs(11)), Text("", (13,), logprobs(13)), Text("\u20ac", (14,), logprobs(14))],
]


@pytest.mark.parametrize("events", TOLD)
def test_the_tokens_of_logprobs_make_the_text(events: list[Text]) -> None:
    tokens = Tokens(WORDS.__getitem__)
    told = [one for event in events for one in tokens.add(event.text, event.logprobs)] + tokens.finish()
    assert b"".join(one.data for one in told).decode() == "".join(event.text for event in events)
    body = streamed(ChatStream("m", Style(logprobs=True), 1), [[*events, finish(events)]])
    chunks = list(client(body).chat.completions.create(model="m", messages=[], stream=True))
    seen = [
        token
        for chunk in chunks
        for token in (chunk.choices[0].logprobs.content if chunk.choices[0].logprobs else None) or []
    ]
    assert [token.token for token in seen] == [readable(one.data) for one in told]
    assert all(len(token.top_logprobs) == 2 for token in seen)


@pytest.mark.parametrize("events", TOLD)
def test_the_deltas_of_a_response_have_all_its_logprobs(events: list[Text]) -> None:
    asked = read_response(Fields({"input": "x", "include": ["message.output_text.logprobs"]}), Kept())
    body = streamed(ResponseStream(asked, None), [[*events, finish(events)]])
    said = list(client(body).responses.create(model="m", input="x", stream=True))
    deltas = [event for event in said if event.type == "response.output_text.delta"]
    (whole,) = [event for event in said if event.type == "response.output_text.done"]
    assert [one.token for event in deltas for one in event.logprobs] == [one.token for one in whole.logprobs]


LEVEL = {byte: chr(character) for character, byte in _BYTES.items()}
SPELT = [
    *(b"a", b" ", b"\n", b"\x0c", "é".encode(), b"\xc3", b"\xa9", b"\xe2", b"\x82", b"\xac", b"\xff"),
    b"a\xe2",
]


@example([5, 5], False, ByteFallback)
@example([7, 6, 1], False, ByteFallback)
@example([5, 5, 6, 4], True, ByteFallback)
@drawn(st.lists(st.integers(0, len(SPELT) - 1)), st.booleans(), st.sampled_from([ByteLevel, ByteFallback]))
def test_bytes_that_are_no_characters_cost_no_other_token(
    ids: list[int], together: bool, kind: type[ByteLevel | ByteFallback]
) -> None:
    """As a model writes them that is hot, or was cut off: each token is told, where its text stands."""
    assume(kind is ByteLevel or len(SPELT) - 1 not in ids)  # a token of its own for each byte
    stage, texts = kind(), list[str]()
    for one in ids:
        letters = readable(SPELT[one])
        piece = f"<0x{SPELT[one][0]:02X}>" if letters == "\ufffd" else letters
        if kind is ByteLevel:
            piece = "".join(LEVEL[byte] for byte in SPELT[one])
        texts.append("".join(stage.push(piece)))
    given, text = [logprobs(one) for one in ids], "".join(texts)
    rest = "".join(stage.finish())
    pieces = [*zip(texts, given, strict=True)]
    if together:
        pieces = [(text, tuple(one for row in given for one in row))]
    tokens, told, at, before = Tokens(SPELT.__getitem__), list[Any](), list[int](), 0
    for piece, row in [*pieces, (rest, ())]:
        new = tokens.add(piece, row)
        at += [before + one.start for one in new]
        told += new
        before += len(piece)
    assert not tokens.finish()
    assert [one.data for one in told] == [SPELT[one] for one in ids]
    for one, place in zip(told, at, strict=True):
        if one.data in (b"a", b" ", b"\n", b"\x0c", b"a\xe2"):
            assert (text + rest)[place : place + 1] == one.data[:1].decode()


@pytest.mark.parametrize(
    ("events", "offsets"),
    [
        (TOLD[0], [0, 3]),
        ([Text("Hello\u20ac more", (1, 2, 3, 4, 5), logprobs(1, 2, 3, 4, 5))], [0, 3, 5, 5, 6]),
        ([Text("\u20ac", (3, 4), logprobs(3, 4)), Text("Hel", (1,), logprobs(1))], [0, 0, 1]),
        ([Text("He", (1,), logprobs(1)), Text("llo", (2,), logprobs(2))], [0, 3]),  # an l was held back
        (
            [Text("lo", (10,), logprobs(10)), Text("Hello", (1, 2), logprobs(1, 2))],
            [0, 2, 5],
        ),  # a mark between
    ],
)
def test_a_tokens_offset_is_where_its_text_begins(events: list[Text], offsets: list[int]) -> None:
    choice = Choice(WORDS.__getitem__, logprobs=True)
    for event in events:
        choice.add(event)
    choice.end()
    assert choice.lists is not None
    assert choice.lists.text_offset == offsets


def test_completions_tell_tokens_by_their_place() -> None:
    asked = read_completion(
        Fields(
            {
                "model": "m",
                "prompt": "ab",
                "logprobs": 1,
                "echo": True,
                "n": 2,
                "stream_options": {"include_usage": True},
            }
        ),
        8,
    )
    writer = CompletionStream(asked, lambda _: Echo("ab"))
    events: list[Event | Finish] = [Text("Hel", (1,), logprobs(1)), Text("lo", (2,), logprobs(2))]
    body = writer.begin(STARTED)
    body += writer.batch(1, [*events, finish([])]) + writer.batch(0, [*events, finish([])]) + writer.end()
    # Its types want a reason in every chunk, which nobody's streams have.
    chunks = list(client(body, strict=False).completions.create(model="m", prompt="ab", stream=True))
    first = [chunk.choices[0] for chunk in chunks if chunk.choices and chunk.choices[0].index == 0]
    assert "".join(choice.text for choice in first) == "abHello"
    offsets = [place for choice in first if choice.logprobs for place in choice.logprobs.text_offset or []]
    assert offsets == [2, 5]
    whole = cast(Any, writer.whole())
    assert whole["usage"]["prompt_tokens"] == 9
    assert whole["usage"]["completion_tokens"] == 14
    assert [choice["text"] for choice in whole["choices"]] == ["abHello"] * 2
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 14


def test_several_answers_have_one_prompt_which_was_cached_as_the_first_found_it() -> None:
    usages = [replace(USAGE, cached_tokens=cached) for cached in (2, 8, 8)]
    told = chat_usage([usages], 0)
    assert (told["prompt_tokens"], told["prompt_tokens_details"]["cached_tokens"]) == (9, 2)
