"""The outline of a grammar in Lark's syntax: its names and signs, how deep its rules go, and its schemas."""

import json
import re
from collections.abc import Iterator
from typing import Any

from modelkit.grammars.schemas.depth import heaviest_path

DEEPEST_RULE = 500
"""These compile on 2 MB of stack, the least that glibc gives a thread."""

# Texts, remarks, expressions, tokens, numbers, each of them whole; then names and what else there is.
LEXEME = re.compile(
    r""""(?:\\.|[^"\\])*"i?|(?:\#|//)[^\n]*|/(?:\\.|[^/\\])+/[imslux]*|<[^<>\s]+>|@[\w-]+"""
    r"|[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|(_?(?:[a-z][a-z0-9_-]*|[A-Z][A-Z0-9_-]*)|\S)",
    re.ASCII,
)
RULE = re.compile(r"([A-Za-z_][\w-]*)(?: \{[^}]*\})?(?: \.)?(?: \[[^\]]*\])? :")
_WORD = re.compile(r"[A-Za-z_][\w-]*")


def outlined(text: str) -> str:
    """The names and signs of a grammar in Lark's syntax, read as the library reads it: `r1A` is two names, an
    expression may go over several lines. No colon is left but those behind the heads of rules.
    """
    return " ".join(LEXEME.findall(text))


def depth_of_rules(text: str) -> int:
    """Of a grammar in Lark's syntax, in rules."""
    text = outlined(text)
    found = list(RULE.finditer(text))
    edges: dict[str, list[str]] = {one[1]: [] for one in found}
    for one, end in zip(found, [*(one.start() for one in found[1:]), len(text)], strict=False):
        said = dict.fromkeys(_WORD.findall(text, one.end(), end))
        edges[one[1]] += [word for word in said if word in edges]
    return heaviest_path(dict.fromkeys(edges, 1), edges)


def schemas_in(text: str) -> Iterator[Any]:
    """The JSON schemas in a grammar in Lark's syntax."""
    decoder = json.JSONDecoder()
    for found in re.finditer(r"%json\s*(?=\{)", text):
        try:
            yield decoder.raw_decode(text, found.end())[0]
        except (ValueError, RecursionError):  # the library says what is wrong
            continue
