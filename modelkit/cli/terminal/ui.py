"""How quantities read, and text that cannot take a terminal over. Pure functions, but for the clock."""

import math
import re
import time
import unicodedata

import click

from modelkit.cli.terminal.columns import folded
from modelkit.cli.terminal.typed import as_text
from modelkit.units import size as size
from modelkit.units import timestamp as timestamp

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")

HOW_TO_GET_MLX = "On Linux it comes with an extra: pip install '.[cpu]' in a checkout, or '.[cuda13]'."

_HALF = re.compile("[\ud800-\udfff]")
_UNSAFE = frozenset({"Cc", "Zl", "Zp"})
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(text: str) -> str:
    """`text` without control and direction-changing characters; newline and tab stay. Bytes that are not text
    are shown as a character that says so.

    Model text, names and messages from files may carry escape sequences that rewrite the screen or the
    clipboard.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c
        for c in characters_of(text)
        if c in "\n\t" or (unicodedata.category(c) not in _UNSAFE and c not in _BIDI)
    )


def characters_of(text: str) -> str:
    """With characters alone: bytes that are text as such, and U+FFFD for others."""
    return _HALF.sub("\ufffd", as_text(text))


def one_line(text: str, limit: int = 100) -> str:
    """`text` on one line of at most `limit` characters, its line ends and tabs spelled out."""
    flat = printable(text.replace("\n", "\\n").replace("\t", "\\t"))
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."


def wrapped(text: str, width: int | None, hang: str = "") -> str:
    """Lines longer than `width` broken between words, what follows indented by `hang` and as the line was;
    None: as it is. Paths and commands are never broken, so that they can be copied.
    """
    if width is None:
        return text
    return "\n".join(_wrapped_line(line, width, hang) for line in text.split("\n"))


def _wrapped_line(line: str, width: int, hang: str) -> str:
    lead = line[: len(line) - len(line.lstrip())]
    return "\n".join(folded(line, width, hang=lead + hang, whole=True))


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 file`, `2 files`, `12,000 files`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def quantity(number: int) -> str:
    """A number of parameters: 260K, 1.24B."""
    for unit, scale in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if number >= scale:
            return f"{number / scale:.3g}{unit}"
    return str(number)


def ago(modified_s: float, now_s: float | None = None) -> str:
    """How long ago a moment was, roughly: `3 hours ago`. Moments yet to come are `just now`."""
    seconds = (time.time() if now_s is None else now_s) - modified_s
    for name, length_s in (
        ("year", 365 * 86400),
        ("month", 30 * 86400),
        ("week", 7 * 86400),
        ("day", 86400),
        ("hour", 3600),
        ("minute", 60),
    ):
        if seconds >= length_s:
            return f"{count(int(seconds // length_s), name)} ago"
    return "just now"


def until(left_s: float) -> str:
    """How long from now, roughly, and never less: `in 4 minutes`. Below two of a unit in the smaller one: an
    hour and a minute is no two hours.
    """
    for name, length_s in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if left_s >= 2 * length_s:
            return f"in {count(math.ceil(left_s / length_s), name)}"
    return f"in {count(math.ceil(left_s), 'second')}"
