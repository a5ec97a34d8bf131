"""One splitter for all styles: what an answer means, whatever the pieces that it comes in."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.style import Style
from modelkit.chat.styles.table import styles
from modelkit.output.events import CallStart, Event, Text
from modelkit.output.joining import joined
from modelkit.output.pieces import Piece
from modelkit.output.splitter import splitter_for
from runtime.engine.request import TokenLogprob
from tests.support.answers import Case, cases, collected, folded, plain, split
from tests.support.splitting import TOOLS, assert_json_at_every_moment, events_of
from tests.support.styles import style_of

NAMES = sorted({case.style.name for case in cases()})


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_is_told_apart(name: str) -> None:
    for case in cases(name):
        for pieces in (plain([case.text]), with_special_tokens(case)):
            found = collected(split(case, pieces))
            assert (found.thinking or "") == case.thinking, case.label
            assert found.text == case.content, case.label
            calls = [(one.name, one.written or one.arguments) for one in found.tool_calls]
            assert calls == [(name, arguments) for name, arguments, *_ in case.calls], case.label
            for one, (_, _, *identity) in zip(found.tool_calls, case.calls, strict=True):
                assert not identity or one.id == identity[0], case.label


@pytest.mark.parametrize("name", NAMES)
def test_every_chunking_gives_the_same_events(name: str) -> None:
    for case in cases(name):
        assert_chunking_does_not_matter(case)


@pytest.mark.parametrize("name", NAMES)
def test_a_call_that_is_cut_is_neither_text_nor_whole(name: str) -> None:
    for case in [one for one in cases(name) if one.calls and not one.content][:2]:
        calls = [(name, arguments) for name, arguments, *_ in case.calls]
        for end in range(1, len(case.text)):
            splitter = splitter_for(case.style, case.opening, list(case.tools))
            events = [event for piece in plain([case.text[:end]]) for event in splitter.push(piece)]
            found = collected([*events, *splitter.finish(cut=True)])
            whole = [(one.name, one.arguments) for one in found.tool_calls if one.written is None]
            assert whole == calls[: len(whole)], (case.label, end)
            marks = (mark.strip() for mark in case.style.begins if not case.style.bare)
            assert not any(mark and mark in found.text for mark in marks), (case.label, end)


def test_the_words_of_a_header_that_is_cut_are_no_text() -> None:
    style = style_of("harmony")
    start = [Piece("", (1,), "<|channel|>"), *plain(["analysis"]), Piece("", (2,), "<|message|>")]
    rest = [
        *plain(["hm"]),
        Piece("", (3,), "<|end|>"),
        Piece("", (4,), "<|start|>"),
        *plain(["ass", "istant"]),
    ]
    for count in range(1, len(start + rest)):
        splitter = splitter_for(style, Opening(), TOOLS)
        events = [event for piece in [*start, *rest][:count] for event in splitter.push(piece)]
        assert collected([*events, *splitter.finish(cut=True)]).text == "", count


@pytest.mark.parametrize("name", [style.name for style in styles() if not style.header])
def test_a_mark_in_front_of_json_that_is_cut_is_no_text(name: str) -> None:
    style = style_of(name)
    spans = [span.marks for span in (style.think, style.text) if span]
    for mark in {mark.strip() for mark in (*style.begins, *sum(spans, ()))}:
        for end in range(1, len(mark)):
            if mark[:end] not in ("[", "f", "{"):  # a list, false, and calls that are JSON themselves
                splitter = splitter_for(style, Opening(), TOOLS, json=True)
                events = [event for piece in plain(["\n\n", mark[:end]]) for event in splitter.push(piece)]
                assert collected([*events, *splitter.finish(cut=True)]).text.strip() == "", mark[:end]


@pytest.mark.parametrize("begun", ["[", "f", "\n\n[", "[1", "fal", '"<', '["</thi'])
def test_json_that_is_cut_is_text(begun: str) -> None:
    for name in NAMES:
        splitter = splitter_for(style_of(name), Opening("text"), json=True)
        events = [event for piece in plain([begun]) for event in splitter.push(piece)]
        assert collected([*events, *splitter.finish(cut=True)]).text == begun, name


def assert_chunking_does_not_matter(case: Case) -> None:
    text, random_ = case.text, random.Random(case.label)
    whole = folded(split(case, plain([text])))
    for _ in range(3):
        cuts = sorted(random_.sample(range(len(text) + 1), min(len(text), random_.randint(1, 12))))
        parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert folded(split(case, plain(parts))) == whole, case.label
    events = split(case, plain(list(text)))
    assert folded(events) == whole, case.label
    assert_json_at_every_moment(events)


@pytest.mark.parametrize("name", NAMES)
def test_tokens_together_are_told_as_each_alone(name: str) -> None:
    for case in cases(name)[:40]:
        random_ = random.Random(case.label)
        parts = [case.text[at : at + 2] for at in range(0, len(case.text), 2)]
        for _ in range(len(parts) // 4):  # tokens that complete no character
            parts.insert(random_.randrange(len(parts) + 1), "")
        alone, together = (
            splitter_for(case.style, case.opening, list(case.tools)),
            splitter_for(case.style, case.opening, list(case.tools)),
        )
        told, at = (list[Event](), list[Event]()), 0
        while at < len(parts):
            stop = min(at + random_.randint(1, 5), len(parts))
            ids, logprobs = range(at, stop), [TokenLogprob(token, -1.0) for token in range(at, stop)]
            for token in ids:
                told[0].extend(alone.push(Piece(parts[token], (token,), None, (logprobs[token - at],))))
            told[1].extend(together.push_each(parts[at:stop], ids, logprobs))
            assert unnamed(told[0]) == unnamed(told[1]), case.label
            at = stop
        assert unnamed([*told[0], *alone.finish()]) == unnamed([*told[1], *together.finish()]), case.label


def unnamed(events: Sequence[Event]) -> list[Event]:
    """Joined, without ids of calls, which are drawn."""
    return [replace(one, id="") if isinstance(one, CallStart) else one for one in joined(events)]


SPECIAL = re.compile(r"<\|[^<>|]*\|>|<｜[^<>]*?｜>|<\|[a-z_]+>|<[a-z_]+\|>|\[[A-Z_]+\]")


def with_special_tokens(case: Case) -> list[Piece]:
    """As a tokenizer has it whose marks are special tokens, as far as the answer has none in its own text."""
    pieces: list[Piece] = []
    place = 0
    for found in SPECIAL.finditer(case.text):
        text = found.group()
        if text in case.content + case.thinking or not any(text in mark for mark in case.style.marks):
            continue
        pieces += plain([case.text[place : found.start()]])
        pieces.append(Piece("", (1000,), text))
        place = found.end()
    return [*pieces, *plain([case.text[place:]])]


def test_a_name_is_waited_for_only_while_it_may_be_one() -> None:
    splitter = splitter_for(style_of("glm-4.7"), Opening("text"), TOOLS)
    events = splitter.push(Piece("I write <tool_call> and then the name", (0,)))
    assert folded(events) == [("Text", "I write <tool_call> and then the name")]


def test_a_header_begins_where_the_message_before_was_not_ended() -> None:
    def told(*parts: str) -> tuple[str | None, str]:
        pieces = [Piece("", (0,), part) if part.startswith("<|") else Piece(part, (0,)) for part in parts]
        found = collected(events_of(style_of("harmony"), pieces))
        return found.thinking, found.text

    thought = ("<|channel|>", "analysis", "<|message|>", "hm")
    final = ("<|channel|>", "final", "<|message|>", "Hello")
    assert told(*thought, *final) == ("hm", "Hello")
    assert told(*final, "<|channel|>", " so", "<|return|>") == (None, "Hello so")
    assert told("<|channel|>", "<|channel|>", "so") == (None, "so")
    quoted = "".join((*final, " writes <|channel|>final<|message|>"))  # as text
    assert collected(events_of(style_of("harmony"), plain([quoted]))).text.endswith(
        "writes <|channel|>final<|message|>"
    )


def test_a_special_token_that_is_no_mark_is_silent() -> None:
    pieces = [
        Piece("a", (1,)),
        Piece("", (2,), "<|im_start|>"),
        Piece("", (3,), "</think>"),
        Piece("b", (4,)),
    ]
    assert events_of(style_of("qwen3"), pieces) == [Text("a", (1,)), Text("b", (4,))]


@pytest.mark.parametrize("style", styles(), ids=lambda style: style.name)
def test_text_is_not_waited_for(style: Style) -> None:
    """What cannot be a mark comes at once, also at the beginning of an answer without any."""
    splitter = splitter_for(style, Opening(), TOOLS)
    first = [event for word in ("there", " is", " no") for event in splitter.push(Piece(word, (0,)))]
    assert folded(first) == [("Text", "there is no")]
