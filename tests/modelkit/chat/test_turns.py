"""What goes of a conversation that has outgrown the context, by sizes alone."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelkit.chat.message import Message, ToolCall
from modelkit.chat.turns import left_out, opening, units

LETTERS = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}


def talk(letters: str) -> list[Message]:
    """One message per letter; a C is the assistant calling a tool."""
    call = (ToolCall("look", {}),)
    return [
        Message("assistant", tool_calls=call) if letter == "C" else Message(LETTERS[letter], letter)
        for letter in letters
    ]


def gone(letters: str, limit: int, kept: int = 0, size: int = 10) -> str:
    """The conversation with a `-` for each message that is left out; all are of one size."""
    messages = talk(letters)
    parts = units(messages)
    front = parts[kept].start if parts else 0
    places = left_out(messages, parts[kept:], [size] * len(messages), front * size, limit)
    return "".join("-" if place in places else letter for place, letter in enumerate(letters))


def test_a_turn_is_a_message_of_the_user_and_all_that_answers_it() -> None:
    assert [(one.start, one.stop) for one in units(talk("suaauCtau"))] == [(1, 4), (4, 8), (8, 9)]


def test_the_last_turn_falls_into_its_steps_of_which_the_last_stays() -> None:
    parts = units(talk("uauCtCttCt"))
    assert [(one.start, one.stop, one.firm) for one in parts] == [
        (0, 2, False),
        (2, 3, True),
        (3, 5, False),
        (5, 8, False),
        (8, 10, True),
    ]


@pytest.mark.parametrize(("letters", "count"), [("", 0), ("s", 1), ("ssu", 2), ("us", 0)])
def test_the_opening_ends_where_somebody_speaks(letters: str, count: int) -> None:
    assert opening(talk(letters)) == count


@pytest.mark.parametrize(
    ("letters", "limit", "left"),
    [
        ("suauau", 60, "suauau"),
        ("suauau", 50, "s--uau"),
        ("suauauau", 70, "s----uau"),  # at 80 of 70: down to 10 + 60 / 2
        ("suauauau", 60, "s----uau"),  # what came just before stays
        ("uauau", 40, "--uau"),
        ("uCtauau", 50, "----uau"),
        ("uausau", 50, "--usau"),
        ("uauau", 20, "----u"),
        ("u", 5, "u"),
        ("su", 5, "su"),
    ],
)
def test_the_oldest_turns_go_until_half_is_free(letters: str, limit: int, left: str) -> None:
    assert gone(letters, limit) == left


def test_first_turns_can_be_kept() -> None:
    assert gone("suauauau", 60, kept=1) == "sua--" + "uau"


def test_steps_of_a_long_task_go_when_no_turn_is_left() -> None:
    assert gone("uauCtCtCt", 60) == "--u--CtCt"
    assert gone("uauCtCtCt", 40) == "--u----Ct"
    assert gone("uauCtCtCt", 80) == "--u--CtCt"


def test_instructions_in_the_middle_stay() -> None:
    assert gone("suasuau", 50) == "s--suau"


ROLES = st.lists(st.sampled_from(["u", "ua", "uCta", "uCtCta", "usa"]), min_size=1, max_size=12)


@given(ROLES, st.booleans(), st.integers(1, 30), st.data())
def test_what_goes_once_stays_gone_until_the_next_time(
    turns: list[str], system: bool, limit: int, data: st.DataObject
) -> None:
    """Asked again with one turn more, either the same messages go, or more of them."""
    letters = "s" * system + "".join(turns)
    messages = talk(letters)
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=len(letters), max_size=len(letters)))
    fixed = sizes[0] if system else 0
    asks = [place + 1 for place, letter in enumerate(letters) if letter == "u"]

    def lost(count: int) -> frozenset[int]:
        part: Sequence[Message] = messages[:count]
        return left_out(part, units(part), sizes[:count], fixed, limit)

    for earlier, later in pairwise(map(lost, asks)):
        assert earlier <= later
    for count in asks:
        left = [place for place in range(count) if place not in lost(count)]
        assert count - 1 in left
        assert not system or 0 in left
        total = sum(sizes[place] for place in left)
        fit = total <= max(limit, fixed)
        assert fit or all(messages[place].role in ("system",) or place == count - 1 for place in left)


def test_instructions_in_the_middle_take_no_room_before_they_come() -> None:
    messages = talk("suuuuauCtCtauusau")
    sizes = [1] * len(messages)
    sizes[12] = 4  # the question before: without it there was room for all

    def lost(count: int) -> frozenset[int]:
        part: Sequence[Message] = messages[:count]
        return left_out(part, units(part), sizes[:count], 1, 16)

    assert lost(14) <= lost(17)
