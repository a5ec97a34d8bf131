"""Texts measured in the columns that a terminal shows them in: a wide letter takes two, a mark upon another
letter none.
"""

import re
from collections.abc import Iterator

_PART = re.compile(r"\s+|\S+")


def columns_of(text: str) -> int:
    """What a text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(_columns_of, text))


def padded(text: str, columns: int, *, right: bool = False) -> str:
    """With blanks up to so many columns, in front of the text where it is `right`."""
    blanks = " " * (columns - columns_of(text))
    return blanks + text if right else text + blanks


def beginning_of(text: str, columns: int) -> str:
    """As much of its beginning as so many columns hold."""
    for place, char in enumerate(text):
        columns -= _columns_of(char)
        if columns < 0:
            return text[:place]
    return text


def folded(text: str, columns: int, *, hang: str = "", whole: bool = False) -> list[str]:
    """Lines of so many columns at most, broken between words, those behind the first indented by `hang`; at
    least one. A word that is longer than a line is broken, or with `whole` stands on one of its own.
    """
    if columns_of(text) <= columns:
        return [text]
    lines, line = list[str](), ""
    for part in _parts(text, None if whole else max(columns - len(hang), 1)):
        if not line.strip():
            line = line[: max(columns - columns_of(part), 0)] + part  # blanks in front may leave no room
            continue
        if columns_of(line + part) <= columns:
            line += part
            continue
        lines.append(line.rstrip())
        line = hang if part.isspace() else hang + part
    return [*lines, line.rstrip()] if line.strip() or not lines else lines


def _parts(text: str, longest: int | None) -> Iterator[str]:
    """Blanks, words, and pieces of words: wide letters may be parted, and what is longer than `longest`."""
    for found in _PART.finditer(text):
        piece, taken = "", 0
        for char in found[0]:
            wide = _columns_of(char)
            if piece and (wide == 2 or (longest is not None and taken + wide > longest)):
                yield piece
                piece, taken = "", 0
            piece, taken = piece + char, taken + wide
        yield piece


def _columns_of(char: str) -> int:
    if char < "\u0300":
        return 1
    from wcwidth import wcwidth  # only here: most texts are ASCII

    return max(wcwidth(char), 0)
