"""One value as a model writes it, written as JSON piece by piece: JSON itself, Python's way, and dicts of
their own.

The same reader takes all of them, since models mix them up: texts between `'` as well as `"`, True beside
true, a comma too many. What comes out is JSON at every point, or the reader raises Broken there.
"""

import json
import re
from collections.abc import Callable
from json.encoder import encode_basestring

from modelkit.output.reading.feed import BLANKS, Broken, Cut, Feed, Waiting
from modelkit.output.reading.literals import LONGEST, number, scalar
from modelkit.output.reading.marks import of_one
from runtime.records import dataclass

DEEPEST = 64
_PREFIXED = tuple(letters + quote for letters in (*"rRuUbBfF", "rb", "br", "rf", "fr") for quote in "\"'")
_IN_NUMBER = frozenset("+-.0123456789eE")
_RUNS = {quote: re.compile(rf"[^{quote}\\\x00-\x1f]+") for quote in "\"'"}
_JSON_ESCAPES = frozenset('"\\/bfnrt')
_PYTHON_ESCAPES = {"'": "'", "a": "\\u0007", "v": "\\u000b", "0": "\\u0000"}
_HEX = frozenset("0123456789abcdefABCDEF")

Write = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Notation:
    """A way to write values."""

    quote: str = ""
    """A mark at both ends of texts, which know no escapes then."""
    bare_keys: bool = False
    """Keys go without quotes, up to `:`, and so may texts, up to `,` or the end of what they stand in."""
    python: bool = False
    """As Python's source has them: `=` tells keys from values as well, keys may be numbers, and texts raw or
    between three quotes."""


JSON = Notation()


def escaped(text: str) -> str:
    """As the inside of a JSON text."""
    return encode_basestring(text)[1:-1]


def value(feed: Feed, write: Write, how: Notation = JSON, depth: int = 0) -> Waiting[None]:
    """The value at the feed's place, blanks in front of it left out."""
    char = yield from feed.skip_blanks()
    if depth > DEEPEST:
        raise Broken
    if not char:
        raise Cut
    if how.quote and (yield from feed.starts((how.quote,))):
        yield from _quoted(feed, write, how.quote)
    elif char in "\"'" or (how.python and (yield from feed.starts(_PREFIXED))):
        yield from text(feed, write, python=how.python)
    elif char == "{":
        yield from members(feed, write, how, depth)
    elif char in "[(":
        yield from _elements(feed, write, how, depth)
    else:
        yield from _scalar(feed, write, how)


def members(feed: Feed, write: Write, how: Notation = JSON, depth: int = 0) -> Waiting[None]:
    """An object, from `{` to `}`."""
    feed.take(1)
    write("{")
    between = ""
    while True:
        char = yield from feed.skip_blanks()
        if char == "}":
            break
        if not char:
            raise Cut
        write(between)
        yield from _key(feed, write, how)
        char = yield from feed.skip_blanks()
        if not char:
            raise Cut
        if char != ":" and not (how.python and char == "="):
            raise Broken
        feed.take(1)
        write(": ")
        yield from value(feed, write, how, depth + 1)
        between = ", "
        yield from _comma(feed, "}")
    feed.take(1)
    write("}")


def _elements(feed: Feed, write: Write, how: Notation, depth: int) -> Waiting[None]:
    close = "]" if feed.take(1) == "[" else ")"
    write("[")
    between = ""
    while True:
        char = yield from feed.skip_blanks()
        if char == close:
            break
        if not char:
            raise Cut
        write(between)
        yield from value(feed, write, how, depth + 1)
        between = ", "
        yield from _comma(feed, close)
    feed.take(1)
    write("]")


def _comma(feed: Feed, close: str) -> Waiting[None]:
    char = yield from feed.skip_blanks()
    if char == ",":
        feed.take(1)
    elif not char:
        raise Cut
    elif char != close:
        raise Broken


def _key(feed: Feed, write: Write, how: Notation) -> Waiting[None]:
    char = yield from feed.char()
    if how.quote and (yield from feed.starts((how.quote,))):
        yield from _quoted(feed, write, how.quote)
    elif char in "\"'" or (how.python and (yield from feed.starts(_PREFIXED))):
        yield from text(feed, write, python=how.python)
    elif how.bare_keys:
        name = yield from until(feed, ":}", 256)
        write(json.dumps(name.strip(BLANKS), ensure_ascii=False))
    elif how.python and char not in "[({":
        held: list[str] = []
        yield from _scalar(feed, held.append, how)
        write(json.dumps("".join(held)))
    else:
        raise Broken


def until(feed: Feed, ends: str, most: int) -> Waiting[str]:
    """All characters in front of the first of `ends`, taken. Raises Broken where there are too many."""
    count = 0
    while (char := (yield from feed.char(count))) not in ends or not char:
        if not char:
            raise Cut
        if count == most:
            raise Broken
        count += 1
    return feed.take(count)


def text(feed: Feed, write: Write, *, python: bool = False) -> Waiting[None]:
    """A text between `"` or `'`; python: or between three of them, and raw behind an `r`."""
    raw = python and (yield from _prefix(feed))
    quote = end = feed.take(1)
    if python and (yield from feed.starts((quote * 2,))):
        end += feed.take(2)
    run = _RUNS[quote]
    write('"')
    while True:
        if found := run.match(feed.text, feed.at):
            part = feed.take(found.end() - feed.at)
            write(part if quote == '"' else part.replace('"', '\\"'))
        if feed.at == len(feed.text):
            if feed.ended:
                raise Cut
            yield
            continue
        char = feed.text[feed.at]
        if char == quote and (end == quote or (yield from feed.starts((end,)))):
            feed.take(len(end))
            write('"')
            return
        if char == "\\" and not raw:
            yield from _escape(feed, write)
        elif char == "\\":  # it keeps a quote behind it from ending the text, and stays
            behind = yield from feed.char(1)
            write(escaped(feed.take(2 if behind in (quote, "\\") else 1)))
        else:
            write(escaped(feed.take(1)))


def _prefix(feed: Feed) -> Waiting[bool]:
    """The letters in front of Python's quotes, taken: is the text raw?"""
    count = 0
    while (yield from feed.char(count)).isalpha():
        count += 1
    return "r" in feed.take(count).lower()


def _escape(feed: Feed, write: Write) -> Waiting[None]:
    """What begins with a backslash. One that means nothing is a backslash."""
    kind = yield from feed.char(1)
    if not kind:
        raise Cut
    if kind in _JSON_ESCAPES:
        write(feed.take(2))
    elif kind in _PYTHON_ESCAPES:
        feed.take(2)
        write(_PYTHON_ESCAPES[kind])
    elif kind in "ux":
        yield from _numbered(feed, write, 4 if kind == "u" else 2)
    else:
        feed.take(1)
        write("\\\\")


def _numbered(feed: Feed, write: Write, digits: int) -> Waiting[None]:
    """A character by its number. Half of a pair without the other is not a character."""
    number = yield from _hex(feed, 2, digits)
    if number is None:
        write("\\\\" + feed.take(2)[1])
        return
    taken = 2 + digits
    if 0xD800 <= number < 0xDC00 and (yield from feed.starts(("\\u",), taken)):
        second = yield from _hex(feed, taken + 2, 4)
        if second is not None and 0xDC00 <= second < 0xE000:
            return write(feed.take(taken + 6))
    feed.take(taken)
    write("\\ufffd" if 0xD800 <= number < 0xE000 else f"\\u{number:04x}")


def _hex(feed: Feed, offset: int, digits: int) -> Waiting[int | None]:
    """The number of so many digits there; None where there are others."""
    for place in range(offset, offset + digits):
        char = yield from feed.char(place)
        if not char:
            raise Cut
        if char not in _HEX:
            return None
    begin = feed.at + offset
    return int(feed.text[begin : begin + digits], 16)


def _quoted(feed: Feed, write: Write, quote: str) -> Waiting[None]:
    feed.take(len(quote))
    write('"')
    marks = of_one(quote)
    while True:
        place, found = marks.look(feed.text, feed.at)
        if place > feed.at:
            write(escaped(feed.take(place - feed.at)))
        if found:
            feed.take(len(quote))
            write('"')
            return
        if feed.ended:
            raise Cut
        yield


def _scalar(feed: Feed, write: Write, how: Notation) -> Waiting[None]:
    """A number or a literal, and where texts go without quotes, anything."""
    if how.bare_keys:
        written = (yield from until(feed, ",}]", 65_536)).strip(BLANKS)
        return write(scalar(written) or json.dumps(written, ensure_ascii=False))
    count = 0
    while (char := (yield from feed.char(count))) and (char in _IN_NUMBER or char.isalpha() or char == "_"):
        count += 1
        if count > LONGEST:
            raise Broken
    if not char:
        raise Cut  # more digits may have come
    written = feed.text[feed.at : feed.at + count]
    said = scalar(written) or (number(written) if how.python else None)
    if said is None:
        raise Broken
    feed.take(count)
    write(said)


def arguments(feed: Feed, write: Write, how: Notation = JSON, after: tuple[str, ...] = ()) -> Waiting[None]:
    """An object; nothing where one of `after` comes at once."""
    char = yield from feed.skip_blanks()
    if char == "{":
        yield from members(feed, write, how)
    elif not char:
        raise Cut
    elif (yield from feed.starts(after)) is None:
        raise Broken
