"""A pattern of a JSON schema (ECMA-262), read into its parts: characters, choices, repeats and anchors.

What the language has and no grammar can hold, because whether it fits depends on the text around it, is
refused by name: looks ahead (but for those that a pattern begins with, `elimination`) and back, references to
groups, flags. So are escapes that only other languages have (`\\A`, `\\z`) and those without a
meaning. Escapes mean what ECMA-262 says: `\\d` and `\\w` are of ASCII, `\\s` is every blank.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from runtime.quoting import shown
from runtime.records import dataclass

ANYTHING = r"(.|\n)*"
"""Every text, as the library writes expressions."""

DEEPEST = 64
LONGEST = 20_000

_LAST = 0x10FFFF
_HALVES = (0xD800, 0xDFFF)
_DIGITS = ((0x30, 0x39),)
WORDS = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_BLANKS = (
    *((0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)),
    *((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
)
_LINE_ENDS = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_SETS = {"d": _DIGITS, "w": WORDS, "s": _BLANKS}
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_COUNTED = re.compile(r"\{(\d+)(?:(,)(\d+)?)?\}", re.ASCII)
_MOST_TIMES = 2**31 - 1  # the library counts in 32 bits
_PROPERTY = re.compile(r"\{([A-Za-z_]{1,40}(?:=[A-Za-z_]{1,40})?)\}", re.ASCII)
_GROUPS = {"?=": "a look ahead", "?!": "a look ahead", "?<=": "a look back", "?<!": "a look back"}
_INSTEAD = {
    "A": "another language's `^`",
    **dict.fromkeys("zZ", "another language's `$`"),
    "k": "a reference to a group",
    **dict.fromkeys("123456789", "a reference to a group"),
}

Range = tuple[int, int]


class UnsupportedPattern(ValueError):
    """A sentence on why a pattern is not taken."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of these."""

    ranges: tuple[Range, ...]
    """Of code points, both ends included, in order and apart."""
    classes: tuple[str, ...] = ()
    """Unicode properties beside them, such as `\\p{L}`."""
    negated: bool = False
    """One of all others; only where there are classes."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """A place in the text."""

    kind: Literal["begin", "end", "border", "inside"]
    """border: of a word (`\\b`); inside: of a word, or between others (`\\B`)."""


@dataclass(frozen=True, slots=True)
class Chain:
    """One part behind the other."""

    parts: tuple["Part", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the parts."""

    parts: tuple["Part", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part so many times."""

    part: "Part"
    least: int
    most: int | None


Part = Chars | Anchor | Chain | Choice | Repeat


def parsed(pattern: str) -> Part:
    """Raises UnsupportedPattern."""
    if len(pattern) > LONGEST:
        raise UnsupportedPattern(f"it has {len(pattern):,} characters; at most {LONGEST:,} are read")
    if any(_HALVES[0] <= ord(char) <= _HALVES[1] for char in pattern):
        raise UnsupportedPattern("it has half a surrogate pair in it")
    reader = _Reader(pattern)
    part = reader.choice(0)
    if reader.left:
        raise UnsupportedPattern("it closes a group that it has not opened")
    return part


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    @property
    def left(self) -> str:
        return self._text[self._at :]

    def choice(self, depth: int) -> Part:
        if depth > DEEPEST:
            raise UnsupportedPattern(f"its groups are more than {DEEPEST} deep")
        ways = [self._chain(depth)]
        while self._takes("|"):
            ways.append(self._chain(depth))
        return ways[0] if len(ways) == 1 else Choice(tuple(ways))

    def _chain(self, depth: int) -> Part:
        parts = list[Part]()
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            parts.append(self._repeated(self._one(depth)))
        return parts[0] if len(parts) == 1 else Chain(tuple(parts))

    def _one(self, depth: int) -> Part:
        char = self._next()
        match char:
            case "^":
                return Anchor("begin")
            case "$":
                return Anchor("end")
            case ".":
                return Chars(other_characters(_LINE_ENDS))
            case "(":
                return self._group(depth)
            case "[":
                return self._class()
            case "\\":
                if self.left[:1] in ("b", "B"):
                    return Anchor("border" if self._next() == "b" else "inside")
                return self._escape(within=False)
            case "*" | "+" | "?":
                raise UnsupportedPattern(f"there is nothing in front of `{char}` to be repeated")
            case _:
                if char == "{" and _COUNTED.match(self._text, self._at - 1):
                    raise UnsupportedPattern("there is nothing in front of a number of times to be repeated")
                return _char(ord(char))

    def _group(self, depth: int) -> Part:
        if self._takes("?"):
            rest = self.left
            for begun, what in _GROUPS.items():
                if rest.startswith(begun[1:]):
                    raise UnsupportedPattern(f"`({begun}` is {what}, which no grammar can hold")
            named = re.match(r"P?<[^\W\d]\w*>", rest)
            if named is None and not rest.startswith(":"):
                raise UnsupportedPattern(f"`(?{shown(rest[:1])}` is a flag or a group of another language")
            self._at += len(named[0]) if named else 1
        part = self.choice(depth + 1)
        if not self._takes(")"):
            raise UnsupportedPattern("a group is not closed")
        return part

    def _repeated(self, part: Part) -> Part:
        least, most = 1, 1
        counted = _COUNTED.match(self._text, self._at)
        if counted:
            self._at = counted.end()
            for said in counted.group(1, 3):
                if said and (len(said) > 20 or int(said) > _MOST_TIMES):
                    raise UnsupportedPattern(
                        f"a part is repeated {said[:20]} times; at most {_MOST_TIMES:,} are read"
                    )
            least = int(counted[1])
            most = int(counted[3]) if counted[3] else None if counted[2] else least
        elif self._at < len(self._text) and self._text[self._at] in "*+?":
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[self._next()]
        else:
            return part
        if most is not None and most < least:
            raise UnsupportedPattern(f"a part is repeated {least} to {most} times, which is never")
        self._takes("?")  # the shortest or the longest: the same texts
        if self._at < len(self._text) and (self._text[self._at] in "*+?" or _COUNTED.match(self.left)):
            raise UnsupportedPattern("a repeat is repeated; put it into a group")
        return Repeat(part, least, most)

    def _class(self) -> Chars:
        negated = self._takes("^")
        ranges, classes = list[Range](), list[str]()
        while not self._takes("]"):
            first = self._member()
            if self.left[:1] == "-" and self.left[1:2] not in ("]", ""):
                self._at += 1
                last = self._member()
                low, high = _only(first), _only(last)
                if low is None or high is None:  # a hyphen beside a class is one
                    ranges += [*first.ranges, (0x2D, 0x2D), *last.ranges]
                    classes += [*first.classes, *last.classes]
                    continue
                if high < low:
                    raise UnsupportedPattern(f"the range {chr(low)}-{chr(high)} of a class is empty")
                ranges.append((low, high))
                continue
            ranges += first.ranges
            classes += first.classes
        if negated and not classes:
            return Chars(other_characters(merged_ranges(ranges)))
        return Chars(merged_ranges(ranges), tuple(dict.fromkeys(classes)), negated)

    def _member(self) -> Chars:
        if not self.left:
            raise UnsupportedPattern("a class of characters is not closed")
        char = self._next()
        return self._escape(within=True) if char == "\\" else _char(ord(char))

    def _escape(self, *, within: bool) -> Chars:
        if not self.left:
            raise UnsupportedPattern("it ends with a backslash")
        letter = self._next()
        if within and letter == "b":
            return _char(8)
        if letter in _INSTEAD:
            raise UnsupportedPattern(f"`\\{letter}` is {_INSTEAD[letter]}, which is not supported")
        if letter.lower() in _SETS:
            found = _SETS[letter.lower()]
            return Chars(found if letter.islower() else other_characters(found))
        if letter in "pP":
            found = _PROPERTY.match(self._text, self._at)
            if found is None:
                raise UnsupportedPattern(f"`\\{letter}` is a property of characters, as `\\{letter}{{L}}`")
            self._at = found.end()
            return Chars((), (f"\\{letter}{{{found[1]}}}",))
        if letter in _CONTROLS:
            return _char(_CONTROLS[letter])
        return _char(self._number(letter))

    def _number(self, letter: str) -> int:
        """The code point of an escaped character."""
        rest = self.left
        if letter == "0" and not rest[:1].isdigit():
            return 0
        forms = {
            "x": r"([0-9A-Fa-f]{2})",
            "u": r"(?:\{([0-9A-Fa-f]{1,6})\}|([0-9A-Fa-f]{4}))",
            "c": r"([A-Za-z])",
        }
        if letter in forms:
            found = re.match(forms[letter], rest)
            if found is None:
                raise UnsupportedPattern(f"`\\{letter}{shown(rest[:4])}` is not a character")
            self._at += found.end()
            said = next(one for one in found.groups() if one)
            code = ord(said) % 32 if letter == "c" else int(said, 16)
            return self._low_half(code) if 0xD800 <= code <= 0xDBFF else _sound(code)
        if letter.isascii() and letter.isalnum():
            raise UnsupportedPattern(f"`\\{letter}` means nothing in ECMA-262")
        return ord(letter)

    def _low_half(self, high: int) -> int:
        """Two halves of a surrogate pair are one character."""
        found = re.match(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})", self.left)
        if found is None:
            return _sound(high)
        self._at += found.end()
        return 0x10000 + ((high - 0xD800) << 10) + int(found[1], 16) - 0xDC00

    def _next(self) -> str:
        self._at += 1
        return self._text[self._at - 1]

    def _takes(self, char: str) -> bool:
        found = self._text.startswith(char, self._at)
        self._at += found
        return found


def merged_ranges(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """In order, those that touch as one, without halves of surrogate pairs."""
    found = list[Range]()
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    parts = [(low, min(high, _HALVES[0] - 1)) for low, high in found if low < _HALVES[0]]
    parts += [(max(low, _HALVES[1] + 1), high) for low, high in found if high > _HALVES[1]]
    return tuple(parts)


def other_characters(ranges: Sequence[Range]) -> tuple[Range, ...]:
    """All characters but these."""
    found, at = list[Range](), 0
    for low, high in ranges:
        if low > at:
            found.append((at, low - 1))
        at = high + 1
    return merged_ranges([*found, *([(at, _LAST)] if at <= _LAST else [])])


def _char(code: int) -> Chars:
    return Chars(((code, code),))


def _only(chars: Chars) -> int | None:
    """The one character that it is."""
    if chars.classes or len(chars.ranges) != 1 or chars.ranges[0][0] != chars.ranges[0][1]:
        return None
    return chars.ranges[0][0]


def _sound(code: int) -> int:
    if code > _LAST or _HALVES[0] <= code <= _HALVES[1]:
        raise UnsupportedPattern(f"U+{code:04X} is not a character")
    return code
