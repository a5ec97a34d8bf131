"""Ids and log-probabilities stay with the text that they belong to, also where that was nearly a mark."""

import pytest

from modelkit.chat.styles.opening import Opening
from modelkit.output.events import Text, Thinking
from modelkit.output.pieces import Piece
from modelkit.output.splitter import splitter_for
from runtime.engine.request import TokenLogprob
from tests.support.splitting import TOOLS, events_of
from tests.support.styles import style_of


def test_ids_and_log_probabilities_stay_with_their_text() -> None:
    parts = [
        "<think>",
        "\n",
        "hm",
        "\n</",
        "think>",
        "\n\n",
        "Hel",
        "lo",
        " <",
        "b>",
        "\n<tool",
        "_call>",
        '{"name": "f"}',
    ]
    pieces = [Piece(part, (at,), None, (TokenLogprob(at, -1.0),)) for at, part in enumerate(parts)]
    told = [
        (type(event).__name__, event.text, event.ids, tuple(one.id for one in event.logprobs))
        for event in events_of(style_of("qwen3"), pieces)
        if isinstance(event, Text | Thinking)
    ]
    assert told == [
        ("Thinking", "hm", (2,), (2,)),
        ("Text", "Hel", (6,), (6,)),
        ("Text", "lo", (7,), (7,)),
        ("Text", " ", (8,), (8,)),  # its second character waits for the next token
        ("Text", "<b>", (9,), (9,)),
    ]


@pytest.mark.parametrize("end", [">Hel", "ink>\n\nHel"])
def test_a_token_that_a_mark_ends_in_stays_with_the_text_behind(end: str) -> None:
    parts = ["<think>", "hm", "</think>".removesuffix(end.split(">")[0] + ">"), end, "lo"]
    pieces = [Piece(part, (at,), None, (TokenLogprob(at, -1.0),)) for at, part in enumerate(parts)]
    told = [event for event in events_of(style_of("qwen3"), pieces) if isinstance(event, Text)]
    assert [(event.text, event.ids) for event in told] == [("Hel", (3,)), ("lo", (4,))]
    assert [one.id for event in told for one in event.logprobs] == [3, 4]


@pytest.mark.parametrize("cut", [1, 3, 11, 12])
def test_text_that_was_no_call_shares_its_tokens_with_what_follows(cut: int) -> None:
    text = "<tool_call>\nnot so"
    parts = [text[:cut], text[cut : cut + 3], text[cut + 3 :]]
    pieces = [Piece(part, (at,), None, (TokenLogprob(at, -1.0),)) for at, part in enumerate(parts)]
    splitter = splitter_for(style_of("hermes"), Opening(), TOOLS)
    events = [event for piece in pieces for event in splitter.push(piece)] + splitter.finish()
    told = [event for event in events if isinstance(event, Text)]
    assert "".join(event.text for event in told) == text
    assert [one.id for event in told for one in event.logprobs] == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '\n {"a": 1}'),
        ("hermes", '```json\n[{"name": "nobody"}]\n``` so'),
        ("hermes", '[{"name": "f", "arguments": {}'),
        ("hermes", "<tool_call>\nnot so"),
        ("llama3", '{"town": "f"} is it'),
        ("llama4", "[one, two] and f"),
        ("qwen3.5", "<tool_call>\n<nothing>"),
        ("glm-4.7", "<tool_call> or <tool_call>: so"),
    ],
)
def test_text_that_was_no_call_has_its_tokens(name: str, text: str) -> None:
    pieces = [Piece(one, (at,), None, (TokenLogprob(at, -1.0),)) for at, one in enumerate(text)]
    splitter = splitter_for(style_of(name), Opening(), TOOLS)
    events = [event for piece in pieces for event in splitter.push(piece)] + splitter.finish()
    told = [event for event in events if isinstance(event, Text)]
    assert "".join(event.text for event in told) == text
    assert [token for event in told for token in event.ids] == list(range(len(text)))
    assert [one.id for event in told for one in event.logprobs] == list(range(len(text)))


@pytest.mark.parametrize("special", [False, True])
def test_marks_behind_what_was_no_call_keep_their_tokens(special: bool) -> None:
    marks = ["<think>", "<tool_call>", "</think>"]
    parts = ["<think>", "I ", "<tool_call>", " it", "</think>", "Hello", "<tool_call>", " b"]
    pieces = [
        Piece("" if special and part in marks else part, (at,), part if special and part in marks else None)
        for at, part in enumerate(parts)
    ]
    told = events_of(style_of("glm-4.7"), pieces)
    assert "".join(event.text for event in told if isinstance(event, Thinking)) == (
        "I  it" if special else "I <tool_call> it"
    )
    assert "".join(event.text for event in told if isinstance(event, Text)) == (
        "Hello b" if special else "Hello<tool_call> b"
    )
    ids = {
        kind: [id_ for event in told if isinstance(event, kind) for id_ in event.ids]
        for kind in (Thinking, Text)
    }
    assert ids == {Thinking: [1, 3], Text: [5, 7]} if special else {Thinking: [1, 2, 3], Text: [5, 6, 7]}


def test_a_token_without_characters_goes_with_the_next_text() -> None:
    pieces = [Piece("a", (1,)), Piece("", (2,)), Piece("é", (3,)), Piece("", (4,))]
    assert events_of(style_of("qwen3"), pieces) == [Text("a", (1,)), Text("é", (2, 3)), Text("", (4,))]
