"""Answers on a terminal: no word is broken, nothing is lost, and no control sequence of a model gets out."""

import re

from hypothesis import given
from hypothesis import strategies as st

from modelkit.cli.terminal.columns import columns_of
from modelkit.cli.terminal.ui import printable
from modelkit.cli.terminal.wrapping import Wrapping


def screen(written: str, columns: int) -> list[str]:
    """What a terminal shows: it breaks lines at its edge, moves left and clears as told."""
    lines, at = [[""] * 0], 0
    for part in re.findall(r"\x1b\[\d+D|\x1b\[K|.", written, re.DOTALL):
        line = lines[-1]
        if part == "\x1b[K":
            del line[at:]
        elif part.startswith("\x1b["):
            at = max(at - int(part[2:-1]), 0)
        elif part == "\n":
            lines.append([])
            at = 0
        else:
            if at >= columns:
                lines.append([])
                line, at = lines[-1], 0
            del line[at:]
            line.append(part)
            at += 1
    return ["".join(line) for line in lines]


def shown(pieces: list[str], columns: int = 30) -> list[str]:
    wrapping = Wrapping(lambda: columns)
    return screen("".join(map(wrapping.take, pieces)), columns)


def test_words_move_to_the_next_line_as_a_whole() -> None:
    assert shown(["She kept the letter and went wi", "th her to the island."]) == [
        "She kept the letter and went ",
        "with her to the island.",
    ]


def test_a_word_longer_than_a_line_is_broken() -> None:
    assert shown(["x" * 70]) == ["x" * 29, "x" * 29, "x" * 12]


def test_line_ends_of_the_text_stay() -> None:
    assert shown(["a\n\nb\n- c"]) == ["a", "", "b", "- c"]


def test_wide_letters_count_twice() -> None:
    assert columns_of("世界e\u0301") == 5
    wrapping = Wrapping(lambda: 30)
    lines = "".join(map(wrapping.take, "世" * 20)).split("\n")
    assert [columns_of(line) for line in lines] == [28, 12]


@given(st.lists(st.text(st.sampled_from("ab \n-é\x1b[2J"), max_size=40), max_size=12), st.integers(25, 60))
def test_only_blanks_at_line_ends_are_lost(pieces: list[str], columns: int) -> None:
    text = printable("".join(pieces))
    lines = shown(pieces, columns)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(len(line) < columns for line in lines)
    broken = [word for word in text.split() if len(word) < columns and word not in " ".join(lines).split()]
    assert not broken


@given(st.text())
def test_the_only_control_sequences_are_ours(text: str) -> None:
    written = Wrapping(lambda: 30).take(text)
    rest = re.sub(r"\x1b\[\d+D\x1b\[K\n", "\n", written)
    assert rest == printable(rest)
