"""A conversation made to fit, with a made-up template whose tokens are characters."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkit.chat.message import Message
from modelkit.chat.truncation import PromptBudget, TokenCounting, truncate
from modelkit.tokenizer.long_texts import TextTokens

PREFACE = "Tools: look, listen, speak.\n"


def rendered(messages: Sequence[Message]) -> str:
    return "".join(f"<{one.role}>{one.content}\n" for one in messages)


def part(messages: Sequence[Message]) -> int | None:
    """Refuses a system message alone, as some templates do."""
    return None if messages[-1].role == "system" else len(PREFACE + rendered(messages))


def tokens(text: str) -> TextTokens:
    return TextTokens(tuple(map(ord, text)), len(text))


def prompt(messages: Sequence[Message]) -> TextTokens:
    return tokens(PREFACE + rendered(messages) + "<assistant>")


COUNTING = TokenCounting(tokens, prompt, part)


def conversation(turns: int, *, system: bool = True, words: int = 20) -> list[Message]:
    own = [Message("system", "Be brief.")] if system else []
    for number in range(turns):
        own += [
            Message("user", f"Q{number} " + "x" * words),
            Message("assistant", f"A{number} " + "y" * words),
        ]
    return [*own, Message("user", "And now?")]


def shortened(messages: list[Message], fit: PromptBudget, first: int = 0) -> list[str]:
    found = truncate(messages, first, prompt(messages), fit, COUNTING)
    assert found.tokens == prompt(found.messages)
    return [one.content.split(" ")[0] for one in found.messages]


def test_the_first_turn_stays_and_the_oldest_behind_it_go() -> None:
    left = shortened(conversation(7), PromptBudget(400, answer=50))
    assert left == ["Be", "Q0", "A0", "Q4", "A4", "Q5", "A5", "Q6", "A6", "And"]
    left = shortened(conversation(8), PromptBudget(400, answer=50))
    assert left == ["Be", "Q0", "A0", "Q7", "A7", "And"]


@pytest.mark.parametrize(
    ("keep", "kept"), [(None, 1), (-1, 1), (0, 0), (1, 0), (60, 1), (130, 2), (10**6, 6)]
)
def test_num_keep_counts_tokens_and_keeps_whole_turns(keep: int | None, kept: int) -> None:
    """The opening has 54 tokens, a turn 71."""
    messages = conversation(6)
    left = shortened(messages, PromptBudget(480, answer=50, keep=keep))
    first = [f"{letter}{number}" for number in range(kept) for letter in "QA"]
    assert left[: 1 + len(first)] == ["Be", *first]
    assert len(left) < len(messages) or kept == 6


def test_what_is_to_stay_gives_way_where_nothing_else_does() -> None:
    messages = [Message("user", "Q0 " + "x" * 300), Message("assistant", "A0"), Message("user", "And now?")]
    assert shortened(messages, PromptBudget(200)) == ["And"]
    assert shortened(messages, PromptBudget(500, answer=50)) == ["Q0", "A0", "And"]


def test_what_the_package_brings_stays_longer_than_the_first_turn() -> None:
    messages = conversation(3, system=False, words=40)
    assert shortened(messages, PromptBudget(260, answer=20), first=2) == ["Q0", "A0", "And"]
    assert shortened(messages, PromptBudget(150, answer=20), first=2) == ["And"]


def test_what_cannot_fit_comes_back_as_short_as_it_gets() -> None:
    messages = [*conversation(3)[:-1], Message("user", "And " + "z" * 500)]
    assert shortened(messages, PromptBudget(300)) == ["Be", "And"]


def test_a_large_part_in_front_costs_only_room_for_the_answer() -> None:
    """Three quarters of the context are one document: what is asked of it is still remembered."""
    document = [Message("user", "Doc " + "x" * 700), Message("assistant", "A0")]
    asked = [Message("user", "Q1"), Message("assistant", "A1"), Message("user", "And now?")]
    assert shortened([*document, *asked], PromptBudget(1000)) == ["Doc", "A0", "Q1", "A1", "And"]


@given(
    st.lists(st.integers(0, 200), min_size=1, max_size=30),
    st.integers(100, 3000),
    st.integers(-1, 400),
    st.none() | st.integers(-1, 800),
)
def test_it_fits_wherever_it_can(words: list[int], context: int, predict: int, keep: int | None) -> None:
    messages = [
        Message("assistant" if place % 2 else "user", f"{place} " + "x" * count)
        for place, count in enumerate(words)
    ]
    if len(messages) % 2 == 0:
        messages.append(Message("user", "And now?"))
    fit = PromptBudget.of(context, predict, keep)
    found = truncate(messages, 0, prompt(messages), fit, COUNTING)
    left = found.messages
    assert left[-1] is messages[-1]
    assert [one.role for one in left[:1]] == ["user"]
    assert all(one.role != other.role for one, other in pairwise(left))
    shortest = prompt(messages[-1:]).count
    assert found.tokens.count <= max(fit.most, shortest)
