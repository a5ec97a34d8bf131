"""The text of a grammar, rule by rule, in the Lark dialect of llguidance; and the marks in it as tokens.

Added tokens never match text for llguidance, whether they are special or not: a mark that has such tokens in
it is written with references to them by id. Where a model may write a mark as it likes, free text ends at the
spelt-out mark too (`until`).
"""

import json
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Literal

from modelkit.grammars.patterns.syntax import ANYTHING
from modelkit.grammars.rules.llguidance_schema import escape_options, for_llguidance
from runtime.records import dataclass

ANY = f"/{ANYTHING}/"
_META = re.compile(r"[\\.+*?()|\[\]{}^$/#&~\-]")
Layout = Literal["spaced", "flexible"]
"""How JSON is laid out in calls. Spaced is as most templates write it back: a call that is read again has the
same tokens, and what stands between values is forced. Flexible is as a model likes.
"""
JSON_BLANKS = r"\x20|\x0A(\x20{0,20}|\x09{0,6})"
"""A model may lay its JSON out over lines, but not put off going on: one space, or one line end and an
indent.
"""
_LAYOUTS: dict[Layout, dict[str, Any]] = {
    "spaced": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "lenient": False},
    "flexible": {
        "whitespace_flexible": True,
        "whitespace_pattern": JSON_BLANKS,
        "item_separator": ",",
        "key_separator": ":",
        "lenient": False,
    },
}
MOST_KEPT, LONGEST_KEPT = 1_024, 8_000
"""Schemas of tools whose parts of grammars are kept for the next request, and the characters of one."""

Marks = Mapping[str, int]
"""Added tokens by their text."""

Outcome = Literal["never", "empty", "some"]
"""What the texts of a terminal are: none that can be found, the empty one alone, or others."""
Outcomes = Callable[[str], Outcome]
"""Of a terminal's body, tried by itself."""


_Closed = tuple[str, str, tuple[str, ...], tuple[str, ...], str | None]
"""What `Rules.behind` is asked for."""


@dataclass(frozen=True, slots=True)
class Free:
    """Free text: what it does not have, and which tokens beside text it may have."""

    lacks: tuple[str, ...] = ()
    """Marks, each of which would begin something else."""
    allows: tuple[str, ...] = ()
    """Lark of what may stand between its parts: references to added tokens."""
    beginning: str = ""
    """A regular expression that the text does not begin with."""


class Rules:
    """Rules are named as they come; equal ones are one. notes: (a tool, a sentence on what of its schema they
    do not enforce).
    """

    def __init__(self, marks: Marks, outcome: Outcomes = lambda _: "some") -> None:
        self._marks, self.outcome = marks, outcome
        self._left: list[str] = []
        self.notes: dict[tuple[str, str], None] = {}
        self._found = (
            re.compile("|".join(map(re.escape, sorted(marks, key=len, reverse=True)))) if marks else None
        )
        self._names: dict[str, str] = {}
        self._lines: list[str] = []
        self._behind: dict[_Closed, str] = {}

    def text(self, start: str) -> str:
        return "\n".join([f"start: {start}", *self._lines, ""])

    def rule(self, body: str, option: str = "") -> str:
        return self._named("r", option, body)

    def terminal(self, body: str) -> str:
        return self._named("T", "", body)

    def ahead(self) -> str:
        """The name of a rule that `define` writes later: for what holds itself."""
        name = f"x{len(self._lines)}"
        self._lines.append("")
        return name

    def define(self, name: str, body: str) -> None:
        self._lines[int(name[1:])] = f"{name}: {body}"

    def leave(self, what: str) -> None:
        """Say what of a schema these rules do not enforce."""
        self._left.append(what)

    @contextmanager
    def quiet(self) -> Generator[None]:
        """What is left in here is not said."""
        said = [*self._left]
        try:
            yield
        finally:
            self._left = said

    def left(self) -> tuple[str, ...]:
        """What was said since the last time."""
        said, self._left = tuple(dict.fromkeys(self._left)), []
        return said

    def pieces(self, text: str) -> list[str | int]:
        """The text cut at added tokens, which stand there as ids."""
        parts: list[str | int] = []
        at = 0
        for found in self._found.finditer(text) if self._found else ():
            parts += [text[at : found.start()], self._marks[found[0]]]
            at = found.end()
        return [part for part in [*parts, text[at:]] if part != ""]

    def literal(self, text: str) -> str:
        """Exactly this text."""
        pieces = self.pieces(text)
        return " ".join(_token(one) if isinstance(one, int) else literal(one) for one in pieces) or '""'

    def json(self, schema: object, layout: Layout = "spaced") -> str:
        """A value of a JSON schema."""
        text = json.dumps(schema)
        written, escapes = (_known_schema if len(text) <= LONGEST_KEPT else _written_schema)(text)
        return self.rule(f'%json {{{written}"x-guidance": {json.dumps({**_LAYOUTS[layout], **escapes})}}}')

    def free(self, what: Free) -> str:
        """Text to the end of what it stands in."""
        plain = self.terminal(_lacking(ANY, what.lacks, what.beginning))
        if not what.allows:
            return plain
        later = self.terminal(_lacking(ANY, what.lacks))
        return self.rule(f"{plain} (({' | '.join(what.allows)}) {later})*")

    def until(self, mark: str, what: Free) -> str:
        """Free text and then the mark, as tokens or spelt out. Each mark that the text lacks has a way of its
        own beside this one.
        """
        before = ""
        lacks = sorted({*what.lacks, mark})  # one terminal for all ways
        if what.allows:
            plain = self.terminal(_lacking(ANY, lacks, what.beginning))
            before = self.rule(f"({plain} ({' | '.join(what.allows)}))*") + " "
        # Of marks that are spelt out the one that ends first is found; to say so costs the square of them.
        longer = [one for one in what.lacks if one.endswith(mark)]
        spelt = self.terminal(_lacking(f"/{ANYTHING}{escaped(mark)}/", longer, what.beginning))
        ways = [before + self.rule(spelt, "[lazy]")]
        if self.pieces(mark) != [mark]:
            head, rest = self._parted(mark)
            text = self.terminal(_lacking(f"/{ANYTHING}{escaped(head)}/", lacks, what.beginning))
            ways.append(f"{before}{text} {rest}")
        return self.rule(" | ".join(ways))

    def behind(
        self, close: str, mark: str, ends: Sequence[str], lacks: Sequence[str], empty: str | None = None
    ) -> str:
        """A text, then what closes it, blanks and the mark. ends: all marks that may stand there, of which
        each has a way of its own beside this one; lacks: those that never do. empty: of a text that is not
        empty, the blanks that may stand in front of `close` beside it.
        """
        key = (close, mark, (*ends,), (*lacks,), empty)
        if key not in self._behind:  # most arguments of all tools are such texts
            self._behind[key] = self._closed_before(*key)
        return self._behind[key]

    def _closed_before(
        self, close: str, mark: str, ends: Sequence[str], lacks: Sequence[str], empty: str | None
    ) -> str:
        closed = rf"{escaped(close)}[ \t\r\n]*"

        def never(marks: Sequence[str]) -> str:
            some = "|".join(map(escaped, marks))
            return f" & ~/{ANYTHING}{closed}({some}){ANYTHING}/" if marks else ""

        def ending(mark: str) -> str:
            return f"/{ANYTHING}{closed}{escaped(mark)}/{never(lacks)}"

        def filled(end: str) -> str:
            # What an empty text is read from, not what a text is made of: so all but the beginning is as for
            # any text, and two places in it are one to the lexer.
            return "" if empty is None else f" & ~/{optional(empty)}{closed}{end}/"

        some = "|".join(map(escaped, ends))
        ways = [self.rule(self.terminal(ending(mark) + filled(f"({some}){ANYTHING}")), "[lazy]")]
        if self.pieces(mark) != [mark]:
            head, rest = self._parted(mark)
            ways.append(f"{self.terminal(ending(head) + never(ends) + filled(escaped(head)))} {rest}")
        return self.rule(" | ".join(ways))

    def bounded(self, mark: str, ways: Sequence[tuple[Sequence[str], bool]]) -> str:
        """A text and then the mark, which the text does not have in it. ways: (regular expressions, all of
        which hold for the text; whether they hold for all that it begins with, too).

        A mark with tokens in it is written with them: where the text may not go on, llguidance takes the
        first byte of a spelt-out mark for the only thing that can come, and refuses a token that its mask
        allows.
        """
        bodies = [self.bounded_body(mark, *way) for way in ways]
        if self.pieces(mark) == [mark]:
            return self.rule(self.terminal(either(bodies)), "[lazy]")
        head, rest = self._parted(mark)
        texts = bodies if head else [one for one in bodies if self.outcome(one) != "empty"]
        if not texts:
            return rest
        # A terminal of the empty text alone fails at the token behind it.
        return self.rule(f"{self.terminal(either(texts))}{'' if len(texts) == len(bodies) else '?'} {rest}")

    def bounded_body(self, mark: str, way: Sequence[str], any_beginning: bool) -> str:
        """A terminal's body for such a text, with as much of the mark as is text."""
        if self.pieces(mark) != [mark]:
            head, _ = self._parted(mark)
            return _lacking(all_of(f"({one}){escaped(head)}" for one in way), (mark,))
        # A text that is too short where the mark comes would take it in and go on, and be read to there.
        once = "" if any_beginning else rf" & ~/{ANYTHING}{escaped(mark)}(.|\n)+/"
        return all_of(f"({one}){escaped(mark)}" for one in way) + once

    def _parted(self, mark: str) -> tuple[str, str]:
        """(the text that a mark with tokens in it begins with, what follows)."""
        pieces = self.pieces(mark)
        head = pieces[0] if isinstance(pieces[0], str) else ""
        rest = pieces[1:] if head else pieces
        return head, " ".join(_token(one) if isinstance(one, int) else literal(one) for one in rest)

    def _named(self, kind: str, option: str, body: str) -> str:
        key = f"{kind}{option}{body}"
        if key not in self._names:
            self._names[key] = f"{kind}{len(self._lines)}"
            self._lines.append(f"{self._names[key]}{option}: {body}")
        return self._names[key]


def _written_schema(text: str) -> tuple[str, dict[str, Any]]:
    """(the members of a schema as the library takes it, which options follow; options about escapes)."""
    schema = json.loads(text)
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    written = {key: value for key, value in for_llguidance(schema).items() if key != "x-guidance"}
    return f"{json.dumps(written)[1:-1]}{', ' if written else ''}", escape_options(written)


_known_schema = lru_cache(MOST_KEPT)(_written_schema)  # some styles write each in two layouts


def literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def escaped(text: str) -> str:
    """For a regular expression between slashes."""
    return _META.sub(r"\\\g<0>", text).replace("\n", r"\n").replace("\r", r"\r").replace("\t", r"\t")


def optional(text: str) -> str:
    """A regular expression between slashes for this text or none."""
    return f"({escaped(text)})?" if text else ""


def all_of(expressions: Iterable[str]) -> str:
    """A terminal's body for texts that fit all of these regular expressions."""
    return " & ".join(f"/{one}/" for one in expressions)


def either(ways: Iterable[str]) -> str:
    return " | ".join(f"({way})" for way in dict.fromkeys(ways))


def tokens(ids: Iterable[int]) -> str:
    """A reference to any of these tokens."""
    return f"<[{','.join(map(str, sorted(ids)))}]>"


def _token(one: int) -> str:
    return f"<[{one}]>"


def _lacking(pattern: str, marks: Sequence[str], beginning: str = "") -> str:
    """The pattern's texts but those that have one of the marks in them, or begin so."""
    if marks:
        pattern += rf" & ~/{ANYTHING}({'|'.join(map(escaped, marks))}){ANYTHING}/"
    return pattern + (f" & ~/({beginning}){ANYTHING}/" if beginning else "")
