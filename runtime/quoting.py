"""What comes from outside, as a message shows it: short, on one line, and with nothing in it that hides.

A file, a name or a request may hold anything: escape sequences that rewrite a screen, marks that turn the
direction of writing, letters that nobody sees, megabytes. `shown` is for a text where quotes are there
already, or backticks; `quoted` for a value of any type; `sentence` for what another program says.
"""

import re
import reprlib
from itertools import islice

MOST_SHOWN = 120
MOST_OF_A_PATH = 300
_MOST_SAID = 500
_MOST_BITS = 200  # Python refuses to print whole numbers of more than 4,300 digits

# Printable to Python, and drawn as nothing: Unicode's Default_Ignorable_Code_Point, and Braille's blank.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_PLAIN = frozenset({str, bytes, int, float, bool, type(None), list, tuple, dict})


def shown(text: str, most: int = MOST_SHOWN) -> str:
    """`text` itself, at most `most` characters of it: what hides as an escape, letters as they are."""
    plain = _visible(text[: most + 1])
    return plain if len(plain) <= most else f"{plain[:most]}… ({len(text):,} characters)"


def quoted(value: object, most: int = MOST_SHOWN) -> str:
    """A value in Python's notation, of at most `most` characters: a long text by its beginning and its end.

    It takes no time whatever the value's size and depth. Only what JSON and Python's literals have is shown;
    of anything else the type is, since its notation would be code of its own.
    """
    brief = _Brief()
    brief.maxstring = most
    text = _visible(brief.repr(value))
    return text if len(text) <= most else f"{text[: most - 3]}..."


def sentence(text: str) -> str:
    """What another program says, as a part of a message: blanks and line ends are one blank each, at most 500
    characters.
    """
    plain = _visible(" ".join(text[: 4 * _MOST_SAID].split()))
    return plain if len(plain) <= _MOST_SAID else f"{plain[:_MOST_SAID]}..."


class _Brief(reprlib.Repr):
    """The library's own way to shorten, of plain values only."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxlist, self.maxtuple, self.maxdict, self.maxother = 2, 6, 6, 4, 60

    def repr1(self, x: object, level: int) -> str:
        return super().repr1(x, level) if type(x) in _PLAIN else f"a {type(x).__name__}"

    def repr_int(self, x: int, level: int) -> str:
        bits = x.bit_length()
        return f"a whole number of {bits:,} bits" if bits > _MOST_BITS else repr(x)

    def repr_bytes(self, x: bytes, level: int) -> str:
        return self.repr_instance(x[: self.maxother], level)

    def repr_dict(self, x: dict[object, object], level: int) -> str:
        """Of the first keys: the library would sort them all."""
        return super().repr_dict(dict(islice(x.items(), self.maxdict + 1)), level)


def _visible(text: str) -> str:
    if text.isprintable() and not _INVISIBLE.search(text):
        return text
    return "".join(map(_visible_letter, text))


def _visible_letter(letter: str) -> str:
    hidden = not letter.isprintable() or _INVISIBLE.match(letter)
    return letter.encode("unicode_escape").decode("ascii") if hidden else letter
