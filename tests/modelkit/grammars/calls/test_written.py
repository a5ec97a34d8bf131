"""What a style's own writer makes of a call is what its grammar allows and its splitter reads, for tools and
values at random, however the text is cut.
"""

import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from modelkit.chat.message import ToolCall
from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.style import JsonCall, MarkedCall, Style
from modelkit.chat.styles.table import styles
from modelkit.chat.styles.writing import write_calls
from modelkit.grammars.answers.shape import shape_of
from runtime.sampling.constraint import Matcher, allows
from tests.support.answers import collected, folded, plain
from tests.support.random_tools import Make, anything, scalar, tools
from tests.support.styles import style_of
from tests.support.walks import STOP, events_of, words_of

WRITTEN = [style for style in styles() if style.form is not None and style.header is None]
IDS = {"own": "call_1", "mistral9": "abcdefgh1", "kimi": "0"}


def is_json(style: Style) -> bool:
    form = style.form
    return isinstance(form, JsonCall) or (isinstance(form, MarkedCall) and form.arguments == "json")


def is_nested(style: Style) -> bool:
    tag = style.form.tag if isinstance(style.form, MarkedCall) else None
    return tag is not None and tag.nested


def readings(text: str, rng: random.Random) -> Iterator[list[str]]:
    """The text in one, in letters, and cut anywhere."""
    yield [text]
    yield list(text)
    cuts = sorted(rng.sample(range(len(text)), min(len(text), 9)))
    yield [text[here:there] for here, there in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def refused(matcher: Matcher, ids: list[int]) -> int | None:
    """The first token that is not allowed; None where all are, and the end behind them."""
    for place, token in enumerate([*ids, STOP]):
        if matcher.ended:
            return None if token == STOP else place
        if not allows(matcher.mask(), token):
            return place
        if token != STOP:
            matcher.advance(token)
    return None


def call_of(style: Style, makers: dict[str, Make], rng: random.Random, place: int) -> ToolCall:
    name = rng.choice([*makers])
    number = (
        str(place + (style.name == "kimi-k3")) if style.ids == "kimi" or style.name == "kimi-k3" else None
    )
    return ToolCall(name, makers[name](rng), number or IDS[style.ids])


def check(style: Style, seed: int) -> None:
    rng = random.Random(f"{style.name} {seed}")
    # Where objects are tags, the grammar knows those of the schema alone: any others are written as JSON.
    loose = scalar if is_nested(style) else anything
    listed, makers = tools(rng, bare=not is_json(style), loose=loose)
    calls = [call_of(style, makers, rng, place) for place in range(rng.choice([1, 1, 2]))]
    check_calls(style, listed, calls, rng)


def check_calls(
    style: Style, listed: list[dict[str, Any]], calls: list[ToolCall], rng: random.Random
) -> None:
    said, words = write_calls(style, calls), words_of(style, tokens=True)
    shape = shape_of(style, Opening(), listed, rng.choice(["required", "auto"]), True)
    assert shape is not None
    grammar = words.grammars.shaped(shape)
    ids = [*words.tokenizer.encode(said, add_special=False)]
    if not grammar.notes:
        place = refused(grammar.matcher(), ids)
        assert place is None, (words.text(ids[:place]), words.text(ids[place:]))
    pieces = [plain(parts) for parts in readings(said, rng)]
    read = [events_of(style, Opening(), listed, one) for one in (words.pieces(ids), *pieces)]
    assert all(folded(one) == folded(read[0]) for one in read)
    found = [(call.name, repr(dict(call.arguments))) for call in collected(read[0]).tool_calls]
    assert found == [
        (call.name, repr(dict(call.arguments))) for call in calls
    ]  # in their order, with their types


@pytest.mark.parametrize("style", WRITTEN, ids=lambda style: style.name)
def test_what_is_written_is_allowed_and_read(style: Style) -> None:
    for seed in range(2):
        check(style, seed)


JOINED = [one for one in WRITTEN if one.joiner and one.section and one.section.close.startswith(one.joiner)]


@pytest.mark.parametrize("style", JOINED, ids=lambda style: style.name)
def test_a_second_call_may_come_where_the_mark_behind_it_begins_as_its_joiner(style: Style) -> None:
    tool = {"name": "f", "parameters": {"type": "object", "properties": {}}}
    words, calls = words_of(style, tokens=False), [ToolCall("f", {}, IDS[style.ids])] * 2
    shape = shape_of(style, Opening(), [{"type": "function", "function": tool}], "required", True)
    assert shape is not None
    ids = [*words.tokenizer.encode(write_calls(style, calls), add_special=False)]
    assert refused(words.grammars.shaped(shape).matcher(), ids) is None


@pytest.mark.parametrize("style", WRITTEN, ids=lambda style: style.name)
def test_arguments_are_called_like_the_words_of_marks(style: Style) -> None:
    names = sorted({word for mark in style.marks for word in re.findall(r"[a-z]\w*", mark)})
    text = {"type": "string"}
    inner = {"type": "object", "properties": dict.fromkeys(names, text), "required": names}
    parts = {name: inner if place % 2 else text for place, name in enumerate(names)}
    given = {name: dict.fromkeys(names, "x") if place % 2 else "x" for place, name in enumerate(names)}
    tool = {"name": "f", "parameters": {"type": "object", "properties": parts, "required": names}}
    call = call_of(style, {"f": lambda _: given}, random.Random(0), 0)
    check_calls(style, [{"type": "function", "function": tool}], [call], random.Random(0))


@pytest.mark.slow
@pytest.mark.parametrize("style", WRITTEN, ids=lambda style: style.name)
def test_what_is_written_is_allowed_and_read_for_long(style: Style) -> None:
    for seed in range(2, 100):
        check(style, seed)


@pytest.mark.parametrize("name", ["command-r", "command-a", "nemotron-v2", "hunyuan"])
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_list_of_calls_opens_behind_all_of_its_mark(name: str, choice: str) -> None:
    style = style_of(name)
    words, tool = words_of(style, tokens=True), {"type": "function", "function": {"name": "now"}}
    shape = shape_of(style, Opening(), [tool], choice, True)
    assert shape is not None
    said = write_calls(style, [ToolCall("now", {}, "0")])
    ids = [*words.tokenizer.encode(said, add_special=False)]
    assert refused(words.grammars.shaped(shape).matcher(), ids) is None


@pytest.mark.parametrize("name", ["llama4", "lfm2", "olmo3", "gemma4", "functiongemma", "hermes"])
@pytest.mark.parametrize("key", ["New York", "São Paulo", "日本", "it's", "a.b-c"])
def test_names_that_no_schema_gives(name: str, key: str) -> None:
    style = style_of(name)
    inner = {"type": "object", "properties": {"of": {"type": "object"}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": inner}}
    words, shape = words_of(style, tokens=True), shape_of(style, Opening(), [tool], "required", True)
    assert shape is not None
    said = write_calls(style, [ToolCall("f", {"of": {key: 1}}, None)])
    ids = [*words.tokenizer.encode(said, add_special=False)]
    assert refused(words.grammars.shaped(shape).matcher(), ids) is None
    found = collected(events_of(style, Opening(), [tool], plain([said]))).tool_calls
    assert [dict(call.arguments) for call in found] == [{"of": {key: 1}}]
