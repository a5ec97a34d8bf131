"""Thinking ends when its budget is spent, whatever else shapes the answer."""

import random
from typing import Any

import pytest

from modelkit.chat.styles.opening import Opening
from modelkit.chat.styles.style import Style
from modelkit.grammars.answers.shape import shape_of
from modelkit.grammars.forms import read_form
from modelkit.output.events import Thinking
from runtime.sampling.constraint import Constraint, ConstraintFault, allows
from tests.support.styles import style_of
from tests.support.walks import Words, events_of, walk, words_of

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"name": "now"}]
SHAPES: dict[str, dict[str, Any]] = {"": {}, "form": {"form": read_form(CITY)}, "tools": {"tools": TOOLS}}
OPENED = Opening("thinking", "<think>\n")


def budgeted(style: Style, words: Words, opening: Opening, tokens: int, **shape: Any) -> Constraint:
    wanted = shape_of(style, opening, **shape)
    inner = None if wanted is None else words.grammars.shaped(wanted)
    calls = [one["name"] for one in shape.get("tools", ())]
    found = words.grammars.budgeted(inner, style, opening, tokens, calls=calls)
    assert found is not None
    return found


@pytest.mark.parametrize("tokens", [0, 1, 7])
@pytest.mark.parametrize("name", ["qwen3", "gemma4", "harmony", "seed-oss", "reka", "ministral"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_no_answer_thinks_for_longer(name: str, tokens: int, shape: dict[str, Any]) -> None:
    style, words = style_of(name), words_of(style_of(name), tokens=True)
    written = style.think.open if style.think else "<|channel|>analysis<|message|>"
    for seed, opening in enumerate((Opening("thinking", written), Opening())):
        rng, matcher = random.Random(seed), budgeted(style, words, opening, tokens, **shape).matcher()
        start = [] if opening.written else words.tokenizer.encode(written.strip(), add_special=False)
        for token in start:
            assert allows(matcher.mask(), token)
            matcher.advance(token)
        ids, _ = walk(words, matcher, rng, most=120)
        events = events_of(style, opening, shape.get("tools"), words.pieces([*start, *ids]))
        thought = [event for event in events if isinstance(event, Thinking) and event.text.strip()]
        assert sum(len(event.ids) for event in thought) <= tokens


def test_what_closes_thinking_is_drafted_and_may_be_taken_back() -> None:
    style, words = style_of("qwen3"), words_of(style_of("qwen3"), tokens=True)
    matcher = budgeted(style, words, OPENED, 3).matcher()
    for letter in "abc":
        assert not matcher.forced(9)
        matcher.advance(words.letters.index(letter))
    assert words.text(matcher.forced(9)) == "\n</think>\n\n"
    first = matcher.forced(9)[0]
    assert [token for token in range(words.size) if allows(matcher.mask(), token)] == [first]
    matcher.advance(first)
    matcher.back(2)
    assert allows(matcher.mask(), words.letters.index("x"))
    matcher.advance(words.letters.index("\n"))
    assert words.text(matcher.forced(9)) == "</think>\n\n"  # the line has ended already


class _Broken:
    """A Constraint, and a Matcher of it, that cannot go on."""

    notes: tuple[str, ...] = ()
    ended = False

    def matcher(self) -> "_Broken":
        return self

    def mask(self) -> bytes:
        raise ConstraintFault("it became too complex")

    def advance(self, token: int) -> None: ...
    def back(self, count: int) -> None: ...

    def forced(self, limit: int) -> tuple[int, ...]:
        return ()


def test_behind_a_grammar_that_cannot_go_on_nothing_is_forced() -> None:
    """It is asked before every step, of all rows: an error there would end the answers beside it."""
    style, words = style_of("qwen3"), words_of(style_of("qwen3"), tokens=True)
    broken: Any = _Broken()
    found = words.grammars.budgeted(broken, style, OPENED, 0, calls=())
    assert found is not None
    matcher = found.matcher()
    assert matcher.forced(9) == ()
    with pytest.raises(ConstraintFault, match="too complex"):
        matcher.mask()


def test_thinking_that_ends_by_itself_is_left_alone() -> None:
    style, words = style_of("qwen3"), words_of(style_of("qwen3"), tokens=True)
    matcher = budgeted(style, words, OPENED, 30).matcher()
    for token in words.tokenizer.encode("ok</think>" + "x" * 60, add_special=False):
        assert allows(matcher.mask(), token)
        matcher.advance(token)
    plain = budgeted(style, words, Opening(), 2).matcher()
    for token in words.tokenizer.encode("no thought at all", add_special=False):
        assert allows(plain.mask(), token)
        plain.advance(token)


@pytest.mark.parametrize("name", ["qwen3", "seed-oss"])
def test_a_mark_in_the_text_of_an_answer_opens_no_thinking(name: str) -> None:
    style, words = style_of(name), words_of(None, tokens=False)
    think = style.think
    assert think is not None
    opens, closes = think.open.strip(), think.close.strip()
    opening, tokens = Opening("thinking", think.open), 2 + len(closes)
    text = f"ok{closes}\n\nThe {opens} mark opens thinking, but not here, for the answer has begun."
    ids = words.tokenizer.encode(text, add_special=False)
    matcher = budgeted(style, words, opening, tokens).matcher()
    for token in ids:
        assert not matcher.forced(9)
        assert allows(matcher.mask(), token)
        matcher.advance(token)
    events = events_of(style, opening, None, words.pieces(ids))
    assert "".join(event.text for event in events if isinstance(event, Thinking)) == "ok"


@pytest.mark.parametrize("shape", [{}, {"tools": TOOLS}], ids=["", "tools"])
def test_thinking_that_begins_again_counts_too(shape: dict[str, Any]) -> None:
    style, words = style_of("qwen3"), words_of(None, tokens=False)
    call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    ended = "ok</think>"
    matcher = budgeted(style, words, OPENED, len(ended) - 1 + 3, **shape).matcher()
    for token in words.tokenizer.encode(f"{ended}{call if shape else ''}\n<think>abc", add_special=False):
        assert allows(matcher.mask(), token)
        matcher.advance(token)
    assert words.text(matcher.forced(20)) == "\n</think>\n\n"


HEADED = {"harmony": "<|end|><|start|>assistant<|channel|>", "glimmer": "<|eom|><|start|>assistant to="}


def headed(name: str, tokens: int, tools: list[dict[str, Any]], *, shaped: bool = True) -> tuple[Words, Any]:
    """Within thinking, which its prompt has opened."""
    style, words = style_of(name), words_of(style_of(name), tokens=True)
    assert style.header is not None
    opening = Opening("thinking", style.header.thinking + style.header.message)
    if shaped:
        return words, budgeted(style, words, opening, tokens, tools=tools).matcher()
    named = [one["name"] for one in tools]
    found = words.grammars.budgeted(None, style, opening, tokens, calls=named)
    assert found is not None
    return words, found.matcher()


def written(words: Words, matcher: Any, text: str) -> str:
    """As much of the text as it lets come."""
    ids = words.tokenizer.encode(text, add_special=False)
    for count, token in enumerate(ids):
        if not allows(matcher.mask(), token):
            return words.text(ids[:count])
        matcher.advance(token)
    return text


@pytest.mark.parametrize("shaped", [True, False])
@pytest.mark.parametrize("tokens", [0, 3])
@pytest.mark.parametrize("name", HEADED)
def test_a_message_that_thinks_does_not_begin_behind_a_spent_budget(
    name: str, tokens: int, shaped: bool
) -> None:
    """It would only be closed, and another could begin for as long as the answer may be."""
    style, tools = style_of(name), [{"name": "search"}, {"name": "self_check"}, {"name": "self"}]
    header = style.header
    assert header is not None
    again = header.thinking + header.message
    words, matcher = headed(name, tokens, tools, shaped=shaped)
    assert written(words, matcher, "abc"[:tokens]) == "abc"[:tokens]
    closed = matcher.forced(99)
    for token in closed:
        matcher.advance(token)
    stopped = written(words, matcher, again)
    assert again.startswith(stopped)
    assert stopped != again
    assert words.text(closed) + stopped == HEADED[name] + ("self" if name == "glimmer" else "")
    matcher.back(len(words.tokenizer.encode(stopped, add_special=False)))
    for left in (header.text + header.message, *header.heads(["search", "self_check"])):
        assert written(words, matcher, left) == left
        matcher.back(len(words.tokenizer.encode(left, add_special=False)))


@pytest.mark.parametrize("name", ["qwen3", "seed-oss", "minimax-m2", "gemma4", "kimi-k3", "ministral"])
def test_a_mark_that_is_a_token_opens_no_thinking_behind_a_spent_budget(name: str) -> None:
    """No grammar forbids it. Of a mark of several tokens that others begin with as well, no more comes than
    theirs.
    """
    style, words = style_of(name), words_of(style_of(name), tokens=True)
    think = style.think
    assert think is not None
    mark = think.open.strip()
    for tokens in (0, 40):
        matcher = budgeted(style, words, Opening("thinking", think.open), tokens).matcher()
        written(words, matcher, words.text(matcher.forced(99)) or f"a{think.close}")
        here = written(words, matcher, mark)
        assert here == (mark if tokens else "<|open|>t" if name == "kimi-k3" else "")
        if not tokens and name == "kimi-k3":
            assert written(words, matcher, "ools<|sep|>") == "ools<|sep|>"


@pytest.mark.parametrize("name", ["qwen3", "gemma4"])
def test_a_mark_in_the_text_of_an_answer_is_text_unless_it_opens_thinking_there(name: str) -> None:
    style, words = style_of(name), words_of(style_of(name), tokens=True)
    think = style.think
    assert think is not None
    matcher = budgeted(style, words, Opening("thinking", think.open), 0).matcher()
    written(words, matcher, words.text(matcher.forced(99)))
    said = f"Said of {think.open.strip()}"
    assert written(words, matcher, said) == ("Said of " if name == "gemma4" else said)


@pytest.mark.parametrize("name", HEADED)
def test_a_message_may_think_again_while_something_is_left(name: str) -> None:
    words, matcher = headed(name, 30, TOOLS)
    header = style_of(name).header
    assert header is not None
    more = f"ab{header.ends[0]}{header.start}{header.thinking}{header.message}cd"
    assert written(words, matcher, more) == more


def test_a_special_token_that_ends_thinking_lets_it_begin_again() -> None:
    """So it does for whoever reads the answer, whatever stands before it."""
    style, words = style_of("qwen3"), words_of(style_of("qwen3"), tokens=True)
    special = {words.tokenizer.id_to_piece(one) for one in words.tokenizer.special_ids}
    assert "</think>" in special
    assert "<think>" not in special
    matcher = budgeted(style, words, OPENED, 4).matcher()
    for token in words.tokenizer.encode("a</think>text</think>\n<think>bcd", add_special=False):
        assert allows(matcher.mask(), token)
        matcher.advance(token)
    assert words.text(matcher.forced(9)) == "\n</think>\n\n"


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("text", ["é", "の", "😀"])
def test_a_budget_that_is_spent_within_a_character_still_ends_thinking(
    text: str, shape: dict[str, Any]
) -> None:
    style, words = style_of("qwen3"), words_of(style_of("qwen3"), tokens=True)
    letters = words.tokenizer.encode(text, add_special=False)
    for tokens in range(1, len(letters) + 1):
        matcher = budgeted(style, words, OPENED, tokens, **shape).matcher()
        for token in letters[: len(letters) if shape else tokens]:
            assert allows(matcher.mask(), token)
            matcher.advance(token)
        assert words.text(matcher.forced(9)) == "\n</think>\n\n"


def test_a_call_that_ended_thinking_is_written_to_its_end() -> None:
    style, words = style_of("qwen3"), words_of(style_of("qwen3"), tokens=True)
    matcher = budgeted(style, words, OPENED, 6, tools=TOOLS).matcher()
    call = 'hm<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    for token in words.tokenizer.encode(call, add_special=False):
        assert allows(matcher.mask(), token)
        matcher.advance(token)


def test_nothing_is_wrapped_where_nothing_is_thought() -> None:
    grammars = words_of(None, tokens=False).grammars
    assert grammars.budgeted(None, style_of("hermes"), Opening(), 5) is None
    assert grammars.budgeted(None, style_of("qwen3"), Opening("text"), 5) is None
    assert grammars.budgeted(None, None, Opening(), 5) is None
    assert grammars.budgeted(None, style_of("qwen3"), Opening(), -1) is None
