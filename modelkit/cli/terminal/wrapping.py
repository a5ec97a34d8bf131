"""An answer on a terminal as it comes: broken between words, never inside one.

Characters are shown at once. Where a word turns out not to fit, the part that is there is taken back and the
word begins again on the next line. The last column stays free, because a terminal that has written there is
neither on this line nor on the next.
"""

import shutil
from collections.abc import Callable

from modelkit.cli.terminal.columns import columns_of
from modelkit.cli.terminal.ui import printable

_TAB = 8
_NARROWEST = 20


class Wrapping:
    """Give it pieces of text with `take`; it returns what to write to the terminal.

    columns: how wide the terminal is now. Text is made printable first, so that the only control sequences in
    what is returned are ours: moving left inside the line, and clearing the rest of it.
    """

    def __init__(self, columns: Callable[[], int] = lambda: shutil.get_terminal_size().columns) -> None:
        self._columns = columns
        self._at = 0
        self._word = ""
        self._word_width = 0

    def take(self, piece: str) -> str:
        limit = self._columns() - 1
        text = printable(piece)
        if limit < _NARROWEST:
            return text
        return "".join(self._one(char, limit) for char in text)

    def _one(self, char: str, limit: int) -> str:
        if char == "\n":
            self._end_word()
            self._at = 0
            return char
        if char == "\t":
            self._end_word()
            wide = _TAB - self._at % _TAB
        else:
            wide = columns_of(char)
        if char.isspace() or wide == 2:  # wide letters may be broken between any two
            return self._breakable(char, wide, limit)
        self._word += char
        self._word_width += wide
        self._at += wide
        if self._at <= limit:
            return char
        return self._carried(char, limit)

    def _breakable(self, char: str, wide: int, limit: int) -> str:
        self._end_word()
        if self._at + wide <= limit:
            self._at += wide
            return char
        if char.isspace():  # the line break stands for it
            self._at = 0
            return "\n"
        self._at = wide
        return "\n" + char

    def _carried(self, char: str, limit: int) -> str:
        """The word does not fit: again on the next line. One that is longer than a line is broken."""
        if self._word_width > limit:
            wide = columns_of(char)
            self._word, self._word_width, self._at = char, wide, wide
            return "\n" + char
        shown = self._word_width - columns_of(char)
        back = f"\x1b[{shown}D\x1b[K" if shown else ""
        self._at = self._word_width
        return f"{back}\n{self._word}"

    def _end_word(self) -> None:
        self._word, self._word_width = "", 0
