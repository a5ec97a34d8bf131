"""What a 401 asks for: the WWW-Authenticate header, read strictly.

Grammar: RFC 9110 section 11; what the parameters mean: the distribution project's token specification.
"""

import re

from runtime.records import dataclass

_SCHEME = re.compile(r"[ \t,]*([A-Za-z][A-Za-z0-9_-]{0,31})(?:[ \t]+|$)")
_PARAMETER = re.compile(
    r'[ \t,]*([A-Za-z][A-Za-z0-9_-]{0,31})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.){0,4096})"|([^\s",]{1,4096}))'
)
_MOST_CHARACTERS = 16 << 10


@dataclass(frozen=True, slots=True)
class Challenge:
    """One way to log in that a server offers."""

    scheme: str
    """In lower case: `basic`, `bearer`."""
    realm: str = ""
    """For Bearer the address that gives tokens."""
    service: str = ""
    scope: str = ""
    """What the token must be good for, in the server's words."""
    error: str = ""
    """What is wrong with the token that was sent (RFC 6750 section 3.1)."""


def read_challenges(headers: list[str]) -> list[Challenge]:
    """All that the headers offer; what is not understood is left out."""
    found: list[Challenge] = []
    for text in headers:
        found += _read(text[:_MOST_CHARACTERS])
    return found


def _read(text: str) -> list[Challenge]:
    found: list[Challenge] = []
    place = 0
    while scheme := _SCHEME.match(text, place):
        place = scheme.end()
        values: dict[str, str] = {}
        while one := _PARAMETER.match(text, place):
            place = one.end()
            quoted = one[2] is not None
            values.setdefault(one[1].lower(), re.sub(r"\\(.)", r"\1", one[2]) if quoted else one[3])
        known = {key: values.get(key, "") for key in ("realm", "service", "scope", "error")}
        found.append(Challenge(scheme[1].lower(), **known))
    return found
