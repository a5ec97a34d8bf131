"""One splitter for all styles: what an answer means, whatever the pieces that it comes in."""

import json
import random
import re
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.style import Style
from modelkit.chat.styles.table import styles
from modelkit.output.events import CallArguments, CallStart, Event, Text, Thinking
from modelkit.output.joining import joined
from modelkit.output.pieces import Piece
from modelkit.output.splitter import splitter_for
from runtime.engine.request import TokenLogprob
from tests.support.answers import Case, cases, collected, folded, plain, split
from tests.support.styles import style_of

NAMES = sorted({case.style.name for case in cases()})
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


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


def assert_json_at_every_moment(events: Sequence[Event]) -> None:
    """The arguments of each call are, wherever they have got to, the beginning of a JSON object."""
    written: dict[int, str] = {}
    for event in events:
        if isinstance(event, CallArguments):
            written[event.index] = written.get(event.index, "") + event.text
            json.loads(completed(written[event.index]))


def completed(text: str) -> str:
    """The beginning of an object in the JSON that the splitter writes, with an end put behind."""
    closers, inside = "", False
    for part in re.findall(r'\\.|["{}\[\]]', text, re.DOTALL):
        if part == '"':
            inside = not inside
        elif not inside and part in "{[":
            closers = ("}" if part == "{" else "]") + closers
        elif not inside and part in "}]":
            assert closers[0] == part
            closers = closers[1:]
    text += '"' if inside else ""
    if closers.startswith("}") and re.search(r'[{,] ?"([^"\\]|\\.)*"$', text, re.DOTALL):
        text += ":"  # a key
    if text.endswith((":", ": ")):
        text += "0"
    elif text.endswith((",", ", ")):
        text += "0" if closers.startswith("]") else '"":0'
    return text + closers


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


def events_of(
    style: Style, pieces: Sequence[Piece], opening: Opening | None = None, tools: object = TOOLS
) -> list[Event]:
    splitter = splitter_for(style, opening or Opening(), tools)
    events = [event for piece in pieces for event in splitter.push(piece)]
    return events + splitter.finish()


OTHERS = [
    *("f", "{", "}", '"', ": ", "[", "]", "(a=", ")", "\n", " ", "x", "\\", ","),
    '{"name": "f", "arguments": {',
]


@st.composite
def fragments(draw: st.DrawFn, rows: tuple[Style, ...] = styles()) -> tuple[Style, list[str]]:
    """Marks of a style, whole and cut short, among what calls are made of."""
    style = draw(st.sampled_from(rows))
    marks = [*style.marks, *(mark[: len(mark) // 2] for mark in style.marks)]
    return style, draw(st.lists(st.sampled_from([*marks, *OTHERS]), max_size=16))


def assert_nothing_is_harmed(style: Style, parts: list[str]) -> None:
    """The same events in every chunking, sound JSON, and no character made up."""
    text = "".join(parts)
    whole = events_of(style, plain([text]))
    assert folded(events_of(style, plain(parts))) == folded(whole)
    letters = events_of(style, plain(list(text)))
    assert folded(letters) == folded(whole)
    assert_json_at_every_moment(letters)
    left = iter(text)
    told = "".join(event.text for event in whole if isinstance(event, Text | Thinking))
    assert all(char in left for char in told)


@settings(max_examples=200)
@given(given_=fragments())
def test_pieces_of_marks_in_any_order_harm_nothing(given_: tuple[Style, list[str]]) -> None:
    assert_nothing_is_harmed(*given_)


@pytest.mark.slow
@pytest.mark.parametrize("style", styles(), ids=lambda style: style.name)
def test_pieces_of_marks_in_any_order_at_length(style: Style) -> None:
    @settings(max_examples=400)
    @given(given_=fragments((style,)))
    def many(given_: tuple[Style, list[str]]) -> None:
        assert_nothing_is_harmed(*given_)

    many()


@settings(max_examples=100)
@given(style=st.sampled_from(styles()), text=st.text(max_size=40))
def test_text_without_marks_is_text(style: Style, text: str) -> None:
    text = "A" + re.sub(r"[^\w \n.]", "", text) + "."
    opening = Opening("text")
    assert folded(events_of(style, plain(list(text)), opening)) == [("Text", text)]


@pytest.mark.parametrize(
    ("name", "begin", "again"),
    [
        ("qwen3.5", "", "<"),
        ("qwen3.5", "", "\n"),
        ("qwen3.5", "x", "</think>"),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "', "\\"),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": ', "["),
        ("hermes", '<tool_call>{"name": "', "f"),
        ("qwen3.5", "<tool_call><function=f><parameter=a>", "</parameter>"),
        ("qwen3.5", "<tool_call><function=f><parameter=a>", "<"),
        ("gemma4", "<|tool_call>call:f{a:", "<|"),
        ("llama3", "", '{"name": '),
        ("harmony", "", "<|channel|>"),
    ],
)
def test_a_long_answer_takes_time_in_proportion(name: str, begin: str, again: str) -> None:
    def seconds(length: int) -> float:
        text = begin + again * (length // len(again))
        begun = time.thread_time()
        events_of(style_of(name), plain([text[at : at + 40] for at in range(0, len(text), 40)]))
        events_of(style_of(name), plain([text]))
        return time.thread_time() - begun

    # Sixteen times the text: at most twice sixteen times as long, and not 256 times.
    assert seconds(250_000) < 32 * min(seconds(15_625) for _ in range(3)) + 0.2


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


def test_a_token_without_characters_goes_with_the_next_text() -> None:
    pieces = [Piece("a", (1,)), Piece("", (2,)), Piece("é", (3,)), Piece("", (4,))]
    assert events_of(style_of("qwen3"), pieces) == [Text("a", (1,)), Text("é", (2, 3)), Text("", (4,))]


def test_arguments_come_while_they_are_written() -> None:
    splitter = splitter_for(style_of("qwen3.5"), Opening(), TOOLS)
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    splitter = splitter_for(style_of("qwen3.5"), Opening(), tools)
    splitter.push(Piece("<tool_call>\n<function=f>\n<parameter=a>\n", (0,)))
    assert splitter.push(Piece("one", (1,))) == [CallArguments(0, "one")]
    assert splitter.push(Piece(' "two"', (2,))) == [CallArguments(0, ' \\"two\\"')]


@pytest.mark.parametrize(
    ("name", "shape"),
    [("hermes", r"call_[A-Za-z0-9]{24}"), ("ministral", r"[A-Za-z0-9]{9}"), ("kimi-k2", r"functions\.f:7")],
)
def test_ids_are_as_the_style_needs_them(name: str, shape: str) -> None:
    text = {
        "hermes": '<tool_call>{"name": "f"}',
        "ministral": "[TOOL_CALLS]f[ARGS]{}",
        "kimi-k2": "<|tool_call_begin|>f<|tool_call_argument_begin|>{}",
    }[name]
    splitter = splitter_for(style_of(name), Opening(), TOOLS, earlier_calls=7)
    events = [*splitter.push(Piece(text, (0,))), *splitter.finish()]
    (start,) = [event for event in events if isinstance(event, CallStart)]
    assert re.fullmatch(shape, start.id)


def test_ids_that_the_model_writes_twice_are_told_apart() -> None:
    begin, mark, end = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
    text = "".join(f"{begin}functions.f:{n}{mark}{{}}{end}" for n in (1, 1, 0, 1))
    splitter = splitter_for(style_of("kimi-k2"), Opening(), TOOLS)
    starts = [one for one in splitter.push(Piece(text, (0,))) if isinstance(one, CallStart)]
    assert [one.id for one in starts] == [f"functions.f:{n}" for n in (1, 2, 0, 3)]
    text = "".join("[TOOL_CALLS]f[CALL_ID]abcdefgh1[ARGS]{}" for _ in range(2))
    found = collected(events_of(style_of("mistral-v11"), plain([text]))).tool_calls
    assert found[0].id == "abcdefgh1"
    assert re.fullmatch(r"[A-Za-z0-9]{9}", found[1].id or "")
    assert found[1].id != found[0].id


def test_a_forced_call_begins_with_its_first_token() -> None:
    opening = Opening("call", '<tool_call>\n{"name": "f", "arguments": ')
    events = events_of(style_of("hermes"), plain(['{"a": 1}', "}\n</tool_call>"]), opening)
    assert folded(events) == [("start", 0, "f"), ("CallArguments", '{"a": 1}'), ("end", 0, "")]


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('{"a": "\\ud800", "\\udc00b": 1}', {"a": "\ufffd", "\ufffdb": 1}),
        ('{"a": "\\ud83d\\ude00\\ud83dx\\u00e9\\x41\\uzz"}', {"a": "😀\ufffdxéA\\uzz"}),
        ('{"a": "tab\there", "b": "\\d+"}', {"a": "tab\there", "b": "\\d+"}),
        ("{'a': \"it's\", 'b': 'a \"b\"', 'c': None,}", {"a": "it's", "b": 'a "b"', "c": None}),
        ('"{\\"a\\": \\"\\\\ud83d\\\\ude00 \\ud83d\\ude00\\"}"', {"a": "😀 😀"}),
        ("null", {}),
    ],
)
def test_arguments_of_many_spellings_are_sound_json(written: str, arguments: dict[str, object]) -> None:
    text = f'<tool_call>{{"name": "f", "arguments": {written}}}</tool_call>'
    for parts in ([text], list(text)):
        events = events_of(style_of("hermes"), plain(parts))
        assert_json_at_every_moment(events)
        (call,) = collected(events).tool_calls
        assert (call.arguments, call.written) == (arguments, None)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("[.5, 1., +3, 1_000, 0x1f, -0b11, 007, 1_0.5e1]", [0.5, 1.0, 3, 1000, 31, -3, 7, 105.0]),
        ('{1: "a", -2.5: "b", True: None, "c": ()}', {"1": "a", "-2.5": "b", "true": None, "c": []}),
        ("'''it's\n\"b\"'''", 'it\'s\n"b"'),
        ('"""a ""b"" """', 'a ""b"" '),
        (r"""[r"\d\"", rb'\\', f"x", ""]""", ['\\d\\"', "\\\\", "x", ""]),
    ],
)
def test_values_of_python_are_sound_json(written: str, value: object) -> None:
    text = f"<|tool_call_start|>[f(a={written}, b=1)]<|tool_call_end|>"
    for parts in ([text], list(text)):
        events = events_of(style_of("lfm2"), plain(parts))
        assert_json_at_every_moment(events)
        (call,) = collected(events).tool_calls
        assert (call.arguments, call.written) == ({"a": value, "b": 1}, None)


@pytest.mark.parametrize(
    "written",
    ["1__0", "_1", "0x", "1j", "1..5", ".", "1.e999", "1e", "nan", "x", "{1, 2}", "{[1]: 2}", "--1"],
)
def test_what_is_no_value_of_python_ends_the_arguments(written: str) -> None:
    text = f"<|tool_call_start|>[f(a=1, b={written})]<|tool_call_end|>so"
    told = collected(events_of(style_of("lfm2"), plain(list(text))))
    assert told.text == "so"
    assert [call.arguments for call in told.tool_calls] == [{}]
    assert (told.tool_calls[0].written or "").startswith('{"a": 1, "b": ')


@pytest.mark.parametrize("value", ["1e999", "[" * 63 + "]" * 63, "9" * 999])
def test_a_call_that_no_prompt_can_hold_is_no_reason_to_lose_the_answer(value: str) -> None:
    text = f'<tool_call>{{"name": "f", "arguments": {{"a": {value}}}}}</tool_call>'
    (call,) = collected(events_of(style_of("hermes"), plain([text]))).tool_calls
    assert call.name == "f"
    assert call.arguments in ({}, {"a": int(value) if value.isdigit() else json.loads(value)})


@pytest.mark.parametrize("style", styles(), ids=lambda style: style.name)
def test_text_is_not_waited_for(style: Style) -> None:
    """What cannot be a mark comes at once, also at the beginning of an answer without any."""
    splitter = splitter_for(style, Opening(), TOOLS)
    first = [event for word in ("there", " is", " no") for event in splitter.push(Piece(word, (0,)))]
    assert folded(first) == [("Text", "there is no")]
