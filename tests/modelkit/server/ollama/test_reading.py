"""Requests of Ollama's clients to keyword arguments, and what is refused."""

from types import SimpleNamespace
from typing import Any

import pytest

from modelkit.chat.message import Message, ToolCall
from modelkit.durations import FOR_EVER
from modelkit.errors import ModelkitError
from modelkit.server.fields import Fields
from modelkit.server.ollama.answers import start_chat, start_generate
from modelkit.server.ollama.options import read_options
from modelkit.server.ollama.reading import read_chat, read_generate

ASKED = {"role": "user", "content": "Hi"}


def chat(**body: Any) -> Any:
    return read_chat(Fields({"model": "m", "messages": [ASKED], **body}))


def generate(**body: Any) -> Any:
    return read_generate(Fields({"model": "m", "prompt": "Hi", **body}))


@pytest.mark.parametrize(
    ("given", "parameters"),
    [
        ({"temperature": 1, "top_k": 40.0, "stop": "x"}, {"temperature": 1.0, "top_k": 40, "stop": ["x"]}),
        ({"seed": -7, "num_predict": -2, "top_k": -1}, {"seed": -1, "num_predict": -1, "top_k": 0}),
        ({"temperature": None, "top_p": None, "stop": None}, {}),
        ({"num_predict": 12.9, "repeat_last_n": -1}, {"num_predict": 12, "repeat_last_n": -1}),
        ({"stop": ["", "a"]}, {"stop": ["a"]}),
        ({"top_p": 0, "min_p": -1, "temperature": -0.5}, {"top_p": 1e-6, "min_p": 0.0, "temperature": 0.0}),
        ({"top_n_sigma": -1, "xtc_probability": 1}, {"top_n_sigma": 0.0, "xtc_probability": 1.0}),
        ({"dry_sequence_breakers": ["x"]}, {"dry_sequence_breakers": ["x"]}),
        ({"top_p": 1.5, "min_p": 2, "typical_p": 0}, {"top_p": 1.0, "min_p": 1.0, "typical_p": 1e-6}),
    ],
)
def test_options_mean_what_they_mean_to_ollama(given: dict[str, Any], parameters: dict[str, Any]) -> None:
    found = read_options(Fields(given, "options"))
    assert found.parameters == parameters
    assert (found.context, found.ignored) == (None, ())


@pytest.mark.parametrize(
    ("behind", "goes_on"),
    [
        ([], False),
        ([{"role": "assistant", "content": "Hel"}], True),
        ([{"role": "assistant", "content": ""}], False),
        ([{"role": "assistant", "content": "", "thinking": "Hm."}], False),
        ([{"role": "assistant", "content": "Hel"}, ASKED], False),
        ([{"role": "assistant", "content": "Well."}, {"role": "assistant", "content": "Hel"}], False),
        ([{"role": "assistant", "content": "f", "tool_calls": [{"function": {"name": "f"}}]}], False),
    ],
)
def test_an_answer_goes_on_from_a_last_message_of_the_assistant(
    behind: list[dict[str, Any]], goes_on: bool
) -> None:
    assert chat(messages=[ASKED, *behind]).keywords.get("continue_final", False) is goes_on


def test_an_empty_message_at_the_end_begins_no_answer() -> None:
    assert len(chat(messages=[ASKED, {"role": "assistant", "content": ""}]).messages) == 1


def test_options_that_cannot_act_are_named() -> None:
    given = {"num_gpu": 99, "mirostat": 1, "what": [1], "num_thread": 4, "num_ctx": 4096.0, "numa": None}
    found = read_options(Fields(given, "options"))
    assert found.parameters == {}
    assert found.context == 4096
    assert found.ignored == ("options.num_gpu", "options.mirostat", "options.what", "options.num_thread")


@pytest.mark.parametrize("wanted", [0, -1, -0.5])
def test_a_context_of_nothing_is_none_of_its_own(wanted: float) -> None:
    found = read_options(Fields({"num_ctx": wanted}, "options"))
    assert (found.context, found.ignored) == (None, ("options.num_ctx",))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"top_k": "4"}, 'option "top_k" must be of type integer'),
        ({"top_k": True}, 'option "top_k" must be of type integer'),
        ({"temperature": "hot"}, 'option "temperature" must be of type float32'),
        ({"stop": [1]}, 'option "stop" must be of type array'),
        ({"num_ctx": {}}, 'option "num_ctx" must be of type integer'),
    ],
)
def test_an_option_of_a_wrong_type_is_refused_in_ollamas_words(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ModelkitError, match=text):
        read_options(Fields(given, "options"))


def test_a_message_is_read_with_all_that_clients_send_along() -> None:
    call = {"id": "c1", "type": "function", "function": {"index": 0, "name": "f", "arguments": {"a": 1}}}
    talk = [
        {"role": "system", "content": "Be brief.", "images": []},
        {"role": "user", "content": "Hi", "images": None, "tool_calls": None},
        {"role": "assistant", "content": None, "thinking": "Hm.", "tool_calls": [call]},
        {"role": "tool", "content": "5", "tool_name": "f", "id": 7},
    ]
    assert chat(messages=talk).messages == [
        Message("system", "Be brief."),
        Message("user", "Hi"),
        Message("assistant", "", "Hm.", (ToolCall("f", {"a": 1}, "c1"),)),
        Message("tool", "5", name="f"),
    ]


def test_a_call_with_broken_arguments_does_not_end_the_conversation() -> None:
    call = {"function": {"name": "f", "arguments": '{"a": '}}
    (_, read) = chat(messages=[ASKED, {"role": "assistant", "tool_calls": [call]}]).messages
    assert read.tool_calls[0].written == '{"a": '


def test_what_carries_nothing_is_let_pass() -> None:
    asked = chat(tools=[], format="", options={}, think=None, keep_alive="", template=None, images=[])
    assert asked.keywords == {"truncate": True}
    assert asked.common.keep_alive is None
    assert asked.common.stream is True


@pytest.mark.parametrize(
    ("body", "keywords"),
    [
        ({"format": "json"}, {"format": "json"}),
        ({"format": {"type": "object"}}, {"format": {"type": "object"}}),
        ({"think": False}, {"think": False}),
        ({"think": "high"}, {"think": "high"}),
        ({"logprobs": True}, {"top_logprobs": 0}),
        ({"logprobs": True, "top_logprobs": 3}, {"top_logprobs": 3}),
        ({"top_logprobs": 3}, {}),
        ({"shift": True}, {"context_shift": "on"}),
        ({"options": {"seed": 3}}, {"seed": 3}),
    ],
)
def test_a_field_becomes_a_keyword(body: dict[str, Any], keywords: dict[str, Any]) -> None:
    assert generate(**body).common.keywords == keywords
    assert chat(**body).keywords == {"truncate": True, **keywords}


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(0, 0), ("0", 0), (3.5, 3.5), ("1h30m", 5400), (-1, FOR_EVER), ("-1m", FOR_EVER), (None, None)],
)
def test_keep_alive_is_seconds(given: object, seconds: float | None) -> None:
    assert chat(keep_alive=given).common.keep_alive == seconds


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"format": "xml"}, "format is 'xml', expected"),
        ({"think": "much"}, "think is 'much', expected"),
        ({"keep_alive": [5]}, "keep_alive is"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs is 21"),
        ({"images": ["aGk="]}, "images: this server reads text only"),
        ({"messages": [{"role": "user", "content": "", "images": ["aGk="]}]}, r"messages\[0\].images"),
        ({"messages": [{"role": "king", "content": ""}]}, r"messages\[0\].role is 'king'"),
        ({"raw": True, "system": "s"}, "raw mode does not support template, system, or context"),
        ({"raw": True, "context": [1]}, "raw mode does not support"),
        ({"template": "{{ .Prompt }}", "suffix": "s"}, "not by template"),
        ({"context": [1, -1]}, r"context\[1\] is -1, expected a token id"),
        ({"stream": "yes"}, "stream is 'yes'"),
        ({"model": ""}, "model is required"),
        ({"width": 64}, "makes no pictures"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(body: dict[str, Any], text: str) -> None:
    with pytest.raises(ModelkitError, match=text):
        chat(**body) if "messages" in body else generate(**body)


@pytest.mark.parametrize("more", [{"suffix": "s"}, {"raw": True}, {"context": [1]}, {}])
def test_thinking_without_a_turn_is_named_and_asks_for_nothing(more: dict[str, Any]) -> None:
    """Ollama passes over it there; `think_tokens` was refused by the model, and `think` lost in silence."""
    seen: list[dict[str, Any]] = []
    model: Any = SimpleNamespace(
        chat=lambda messages, **options: seen.append(options),
        generate=lambda prompt, **options: seen.append(options),
        infill=lambda prompt, suffix: [1],
        prompt=lambda messages, **options: "<user>",
        encode=lambda text, **options: [1],
        has_template=True,
        defaults={},
        thinking=SimpleNamespace(on={}, off={}),
    )
    asked = generate(think=True, options={"think_tokens": 9, "think": "on"}, **more)
    start_generate(model, asked)
    assert seen[0].keys() & {"think", "think_tokens"} == (set() if more else {"think", "think_tokens"})
    named = ("think", "options.think", "options.think_tokens")
    assert asked.common.ignored == (named if more else ())


@pytest.mark.parametrize("path", ["chat", "generate"])
def test_thinking_without_a_switch_goes_on(path: str) -> None:
    """gpt-oss always thinks; with Ollama, `think: false` does nothing to it."""
    asked: list[dict[str, Any]] = []

    def answer(messages: Any, **options: Any) -> None:
        asked.append(options)

    model: Any = SimpleNamespace(
        chat=answer,
        has_template=True,
        writes=True,
        defaults={},
        thinking=SimpleNamespace(on={}, off=None),
    )
    for think in (False, True, "low"):
        if path == "chat":
            start_chat(model, chat(think=think))
        else:
            start_generate(model, generate(think=think))
    assert [one.get("think", "unsaid") for one in asked] == ["unsaid", True, "low"]
