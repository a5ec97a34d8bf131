"""Patterns of texts as regular expressions of whole texts, between the slashes of a grammar.

A pattern of a JSON schema is looked for anywhere in a text unless `^` and `$` tie it to its ends. Neither a
raw text's grammar nor the library has anchors inside an expression, so they are taken out: each part of the
pattern is written as up to four expressions, by what it asks of the place where it begins and ends. In a
chain an anchor leaves only those ways in which all that stands before `^` (behind `$`) is empty, so
`(^|,)a(,|$)` is `a`, `a,...`, `...,a` or `...,a,...`.
"""

from collections.abc import Iterable, Mapping
from itertools import product

from modelkit.grammars.patterns.elimination import without_lookarounds
from modelkit.grammars.patterns.syntax import (
    ANYTHING,
    Anchor,
    Chain,
    Chars,
    Choice,
    Part,
    Range,
    Repeat,
    UnsupportedPattern,
    other_characters,
)
from runtime.records import dataclass

CONTROLS = ((0x00, 0x07), (0x0B, 0x0B), (0x0E, 0x1F), (0x7F, 0x7F))
"""Characters that JSON has no short escape for. Properties of characters go without them
(`llguidance_schema`).
"""

_LONGEST = 200_000  # characters of what is made of a pattern
_MOST_REPEATS = 12  # of a part with an anchor in it, where they are counted


@dataclass(frozen=True, slots=True)
class _Way:
    """Texts that a part of a pattern fits, under one condition."""

    text: str
    """An expression without a choice at its top; "" where only the empty text is left."""
    empty: bool
    """Is the empty text one of them?"""


_Where = tuple[bool, bool]
"""(the part begins where the text does, it ends where the text does); False: it may be anywhere."""
_Ways = Mapping[_Where, _Way]
_ANYWHERE: _Where = (False, False)
_EMPTY: _Ways = {_ANYWHERE: _Way("", empty=True)}


def full_expression(pattern: str | Part) -> str:
    """A regular expression of all texts that the pattern is found in. Raises UnsupportedPattern."""
    ways = _of(without_lookarounds(pattern) if isinstance(pattern, str) else pattern)
    if not ways:
        raise UnsupportedPattern("it fits no text")
    return "|".join(
        f"{'' if begins else ANYTHING}{_grouped(way.text)}{'' if ends else ANYTHING}"
        for (begins, ends), way in ways.items()
    )


def _of(part: Part) -> _Ways:
    match part:
        case Chars():
            written = _written(part)
            return {_ANYWHERE: _Way(written, empty=False)} if written else {}
        case Anchor("border" | "inside"):
            raise UnsupportedPattern("it asks for a border of a word")
        case Anchor(kind):
            return {(kind == "begin", kind == "end"): _Way("", empty=True)}
        case Choice(parts):
            return _either(map(_of, parts))
        case Chain(parts):
            found = _EMPTY
            for one in parts:
                found = _behind(found, _of(one))
            return found
        case Repeat(inner, least, most):
            return _repeated(_of(inner), least, most)


def _either(every: Iterable[_Ways]) -> _Ways:
    found = dict[_Where, list[_Way]]()
    for ways in every:
        for where, way in ways.items():
            found.setdefault(where, []).append(way)
    made = {where: _one_of(ways) for where, ways in found.items()}
    if sum(len(way.text) for way in made.values()) > _LONGEST:
        raise UnsupportedPattern("it has too many parts with anchors behind each other")
    return made


def _one_of(ways: list[_Way]) -> _Way:
    texts = list(dict.fromkeys(way.text for way in ways))
    empty = any(way.empty for way in ways)
    if len(texts) == 1:
        return _Way(texts[0], empty)
    filled = "|".join(text for text in texts if text)
    return _Way(f"({filled})?" if "" in texts else f"({filled})", empty)


def _behind(one: _Ways, other: _Ways) -> _Ways:
    """Both, one behind the other."""
    return _either(
        {(begin or its_begin, end or its_end): way}
        for ((begin, end), first), ((its_begin, its_end), second) in product(one.items(), other.items())
        if (way := _joined(first, second, ends=end, begins=its_begin)) is not None
    )


def _joined(first: _Way, second: _Way, *, ends: bool, begins: bool) -> _Way | None:
    """ends: nothing follows the first; begins: nothing stands before the second."""
    if (ends and not second.empty) or (begins and not first.empty):
        return None
    empty = first.empty and second.empty
    if ends and begins:
        return _Way("", empty=True)
    return first if ends else second if begins else _Way(first.text + second.text, empty)


def _repeated(ways: _Ways, least: int, most: int | None) -> _Ways:
    if most == 0:
        return _EMPTY
    plain = ways.get(_ANYWHERE)
    if len(ways) == 1 and plain is not None:
        return {_ANYWHERE: _times(plain, least, most)}
    if not ways:
        return {} if least else _EMPTY
    maybe = _either([_EMPTY, ways])
    if max(least, most or 0) > _MOST_REPEATS:
        raise UnsupportedPattern(f"a part with an anchor in it is counted; at most {_MOST_REPEATS} are")
    found = _EMPTY
    for place in range(least if most is None else most):
        found = _behind(found, ways if place < least else maybe)
    if most is not None:
        return found
    # Of more, only the first can have something before it asked, and only the last something behind it.
    middle = _EMPTY if plain is None else {_ANYWHERE: _times(plain, 0, None)}
    return _behind(found, _behind(_behind(maybe, middle), maybe))


def _times(way: _Way, least: int, most: int | None) -> _Way:
    if not way.text:
        return way
    match least, most:
        case 0, None:
            count = "*"
        case 1, None:
            count = "+"
        case 0, 1:
            count = "?"
        case _:
            count = f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
    return _Way(_grouped(way.text) + count, way.empty or least == 0)


def _grouped(text: str) -> str:
    return f"({text})"


def _written(chars: Chars) -> str:
    """A character of these between slashes; "" where there is none."""
    if not chars.ranges and not chars.classes:
        return ""
    if not chars.classes and len(chars.ranges) == 1 and chars.ranges[0][0] == chars.ranges[0][1]:
        return _character(chars.ranges[0][0])
    beside = chars.ranges if chars.classes else other_characters(chars.ranges)
    if not chars.classes and len(beside) < len(chars.ranges):
        return f"[^{_ranges(beside)}]" if beside else r"(.|\n)"
    classes = "".join(chars.classes)
    if chars.negated:
        return f"[^{_ranges(chars.ranges)}{classes}]"
    return (
        f"[{_ranges(chars.ranges)}[{classes}--[{_ranges(CONTROLS)}]]]"
        if classes
        else f"[{_ranges(chars.ranges)}]"
    )


def _ranges(ranges: Iterable[Range]) -> str:
    return "".join(_character(low) + ("" if low == high else f"-{_character(high)}") for low, high in ranges)


def _character(code: int) -> str:
    char = chr(code)
    if char.isascii() and char.isalnum():
        return char
    if char in "\n\r\t":
        return {"\n": r"\n", "\r": r"\r", "\t": r"\t"}[char]
    if char.isascii() and char.isprintable() and char != " ":
        return "\\" + char if char in _META else char
    return char if code > 0xFF and char.isprintable() else rf"\x{{{code:X}}}"


_META = frozenset(r"\.+*?()|[]{}^$/#&~-")
