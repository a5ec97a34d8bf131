"""Patterns and formats of texts as regular expressions of whole texts, between the slashes of a grammar.

A pattern of a JSON schema is looked for anywhere in a text unless `^` and `$` tie it to its ends. The library
does that for texts in JSON; a raw text needs it written out. Anchors are understood at the two ends of the
pattern and of its alternatives (`^a|b$`); a pattern with one elsewhere is not made into anything.

Formats are those that the library enforces in JSON, as their RFCs have them.
"""

import re
from collections.abc import Iterator

from modelkit.grammars.rules import ANYTHING

_OCTET = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"({_OCTET}\.){{3}}{_OCTET}"
_HEX = r"[0-9A-Fa-f]{1,4}"
_LAST = rf"({_HEX}:{_HEX}|{_IPV4})"
_IPV6 = "|".join(
    [
        rf"({_HEX}:){{6}}{_LAST}",
        rf"::({_HEX}:){{5}}{_LAST}",
        *(rf"({_HEX}(:{_HEX}){{0,{n}}})?::({_HEX}:){{{4 - n}}}{_LAST}" for n in range(5)),
        rf"({_HEX}(:{_HEX}){{0,5}})?::{_HEX}",
        rf"({_HEX}(:{_HEX}){{0,6}})?::",
    ]
)
_DATE = (
    r"[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])"
    r"|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|[12][0-9]))"
)
_ZONE = r"([Zz]|[+\-]([01][0-9]|2[0-3]):[0-5][0-9])"
_TIME = rf"([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\.[0-9]{{1,9}})?{_ZONE}"
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9\-]{0,61}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(\.{_LABEL})*"
_ATOM = r"[A-Za-z0-9!#$%&'*+\-\/=?\^_`{|}~]+"
_CLOCK = r"T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"
_PLAIN = r"[A-Za-z0-9\-._~!$&'()*+,;=]"  # of a URI: unreserved, and delimiters of its parts
_CODED = r"%[0-9A-Fa-f]{2}"
_PATH = rf"({_PLAIN}|[:@]|{_CODED})"
_QUERY = rf"({_PLAIN}|[:@\/?]|{_CODED})*"
_AUTHORITY = (
    rf"(({_PLAIN}|:|{_CODED})*@)?(\[({_IPV6}|[Vv][0-9A-Fa-f]+\.({_PLAIN}|:)+)\]|({_PLAIN}|{_CODED})*)"
    r"(:[0-9]*)?"
)

FORMATS = {
    "date": _DATE,  # RFC 3339, full-date
    "time": _TIME,  # full-time
    "date-time": rf"({_DATE})[Tt]{_TIME}",
    "duration": (  # appendix A
        rf"P(([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)({_CLOCK})?|{_CLOCK}|[0-9]+W)"
    ),
    "email": rf"{_ATOM}(\.{_ATOM})*@({_HOST}|\[{_IPV4}\])",  # RFC 5321, without quotes
    "hostname": _HOST,  # RFC 1123
    "ipv4": _IPV4,  # RFC 2673
    "ipv6": _IPV6,  # RFC 4291
    "uuid": r"[0-9A-Fa-f]{8}-([0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}",  # RFC 9562
    "uri": (  # RFC 3986
        rf"[A-Za-z][A-Za-z0-9+\-.]*:(\/\/{_AUTHORITY}(\/{_PATH}*)*|\/({_PATH}+(\/{_PATH}*)*)?"
        rf"|{_PATH}+(\/{_PATH}*)*|)(\?{_QUERY})?(#{_QUERY})?"
    ),
}
"""Regular expressions of whole texts."""

_SHORT = {"d": "0-9", "w": "A-Za-z0-9_"}  # as JSON schema has them: of ASCII
_CLASS = re.compile(r"\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]", re.DOTALL)


def whole(pattern: str) -> str | None:
    """A regular expression of all texts that the pattern is found in; None for one that is not understood."""
    ways = list[str]()
    for parts in _alternatives(pattern):
        if parts is None:
            return None
        begun = len(parts) > 0 and parts[0] == "^"
        ended = len(parts) > begun and parts[-1] == "$"
        inner = parts[begun : len(parts) - ended]
        if any(part in ("^", "$") for part in inner):
            return None
        ways.append(f"{'' if begun else ANYTHING}({''.join(inner)}){'' if ended else ANYTHING}")
    return "|".join(ways)


def _alternatives(pattern: str) -> Iterator[list[str] | None]:
    """The alternatives that the whole pattern consists of, in parts: anchors stand alone. None for one whose
    brackets do not fit.
    """
    parts, deep = list[str](), 0
    for part in _parts(pattern):
        if part == "|" and not deep:
            yield parts
            parts = []
            continue
        deep += (part == "(") - (part == ")")
        if part is None or deep < 0:
            yield None
            return
        parts.append(part)
    yield None if deep else parts


def _parts(pattern: str) -> Iterator[str | None]:
    at = 0
    while at < len(pattern):
        char = pattern[at]
        size = 1
        if char == "\\":
            size = 2
            yield _escape(pattern[at + 1 : at + 2])
        elif char == "[":
            found = _CLASS.match(pattern, at)
            if found is None:
                yield None
                return
            size = len(found[0])
            yield _within(found[0])
        else:
            yield {"/": r"\/", "\n": r"\n", "\r": r"\r"}.get(char, char)
        at += size


def _escape(letter: str) -> str | None:
    if letter.lower() in _SHORT:
        return f"[{'^' if letter.isupper() else ''}{_SHORT[letter.lower()]}]"
    return {"": None, "\n": r"\n"}.get(letter, "\\" + letter)


def _within(found: str) -> str:
    """A class of characters."""

    def escape(one: re.Match[str]) -> str:
        letter = one[1]
        if letter in _SHORT:
            return _SHORT[letter]
        return (_escape(letter) or one[0]) if letter.lower() in _SHORT else one[0]

    said = re.sub(r"\\(.)", escape, found, flags=re.DOTALL)
    said = re.sub(r"(?<!\\)((?:\\\\)*)/", r"\1\\/", said)
    return said.replace("\n", r"\n").replace("\r", r"\r")
