"""A template's text in pieces: what stands between actions, and the words of each action.

Trim marks are done here: `{{- ` takes all blanks in front of it away, ` -}}` all behind it. A comment is an
action without words, and leaves nothing.
"""

import re
from collections.abc import Iterator

from modelkit.chat.go.tree import Place
from modelkit.errors import TemplateError
from runtime.quoting import quoted
from runtime.records import dataclass

BLANKS = " \t\r\n"
_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\n]+)
      | (?P<text>"(?:[^"\\\n]|\\.)*" | `[^`]*`)
      | (?P<char>'(?:[^'\\\n]|\\.)*')
      | (?P<number>[+-]?(?:0[xX][0-9a-fA-F_]+|[0-9][0-9_]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+))
      | (?P<variable>\$\w*)
      | (?P<field>\.[A-Za-z_]\w*)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<mark>:=|=|\||\(|\)|,|\.)
    """,
    re.VERBOSE,
)
_COMMENT = re.compile(r"\{\{(?:-[ \t\r\n]+)?/\*.*?\*/(?:[ \t\r\n]+-)?\}\}", re.DOTALL)
_MOST_TOKENS = 50_000


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    """A name of a group of the expression above."""
    text: str
    place: Place
    spaced: bool
    """Is there a blank before it?"""


@dataclass(frozen=True, slots=True)
class Words:
    """What stands in one action."""

    tokens: tuple[Token, ...]
    place: Place


class Places:
    """Offsets of a text to lines and columns. Offsets are asked for in ascending order."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._line, self._start = text, 0, 1, 0

    def of(self, offset: int) -> Place:
        newlines = self._text.count("\n", self._at, offset)
        if newlines:
            self._line += newlines
            self._start = self._text.rindex("\n", 0, offset) + 1
        self._at = offset
        return Place(self._line, offset - self._start + 1)


def fault(place: Place, message: str, hint: str | None = None) -> TemplateError:
    """An error at a place of the template."""
    return TemplateError(f"the Go template, line {place.line}, column {place.column}: {message}", hint=hint)


def pieces(source: str) -> Iterator[str | Words]:
    """Texts and actions in turn; no empty text. Raises TemplateError."""
    places, at, trimmed, count = Places(source), 0, False, 0
    while at <= len(source):
        start = source.find("{{", at)
        text = source[at:] if start < 0 else source[at:start]
        text = text.lstrip(BLANKS) if trimmed else text
        if start < 0:
            if text:
                yield text
            return
        if _trims(source, start + 2):
            text = text.rstrip(BLANKS)
        if text:
            yield text
        comment = _COMMENT.match(source, start)
        if comment is not None:
            at, trimmed = comment.end(), comment[0][-3] == "-"
            continue
        words, at, trimmed = _action(source, start, places)
        count += len(words.tokens)
        if count > _MOST_TOKENS:
            raise fault(words.place, f"it has more than {_MOST_TOKENS:,} words")
        yield words


def _trims(source: str, at: int) -> bool:
    return source[at : at + 1] == "-" and source[at + 1 : at + 2] in (*BLANKS,)


def _action(source: str, start: int, places: Places) -> tuple[Words, int, bool]:
    """The action that begins there, where it ends, and whether it trims what follows."""
    place = places.of(start)
    at, tokens, spaced = start + (3 if _trims(source, start + 2) else 2), list[Token](), True
    while True:
        if source.startswith("}}", at):
            return Words(tuple(tokens), place), at + 2, False
        if spaced and source.startswith("-}}", at):
            return Words(tuple(tokens), place), at + 3, True
        found = _TOKEN.match(source, at)
        if found is None or found.lastgroup is None:
            if at >= len(source):
                raise fault(place, "this action has no end", "An action ends with }}.")
            raise fault(places.of(at), f"{quoted(source[at : at + 10])} is not understood here")
        if found.lastgroup == "blank":
            spaced = True
        else:
            tokens.append(Token(found.lastgroup, found[0], places.of(at), spaced))
            spaced = False
        at = found.end()
