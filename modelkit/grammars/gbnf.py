"""Repeats of repeats in GBNF, written so that the library's converter to Lark keeps them.

It leaves out the brackets of `("a"?)*` and so makes `"a"?*` of it, which Lark does not take. They stay where
more than one thing stands inside: an empty text at the end changes nothing else.
"""

import re
from collections.abc import Iterator

_PIECE = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|#[^\n]*|\{[^}]*\}|\s+|.', re.DOTALL)
_REPEATS = ("?", "*", "+", "{")


def bracketed(text: str) -> str:
    """The same rules. Texts, classes of characters and comments are left alone."""
    pieces: list[str] = _PIECE.findall(text)
    said = [place for place, piece in enumerate(pieces) if not (piece.isspace() or piece.startswith("#"))]
    for before, place, behind in _threes(said):
        repeats = pieces[before].startswith(_REPEATS) and pieces[behind].startswith(_REPEATS)
        if pieces[place] == ")" and repeats:
            pieces[place] = ' "")'
    return "".join(pieces)


def _threes(places: list[int]) -> Iterator[tuple[int, int, int]]:
    return zip(places, places[1:], places[2:], strict=False)
