"""Modelfile text <-> directives: Ollama's grammar with every position kept and no character lost.

    # a comment, only where a keyword could stand
    FROM ./my-model                    keyword (any case), blanks, value up to the end of the line
    PARAMETER temperature 0.7          PARAMETER has a name, MESSAGE a role, before the value
    SYSTEM \"\"\"You are terse.
    Answer in one line.\"\"\"             a quoted value ends at the first line that ends in its quotes

Blanks are space and tab; a line ends at CR, LF or CRLF. Outer blanks of a bare value are dropped. There are
no escapes: what stands between the quotes is the value, whatever it is, and quotes close only at the end
of a line, so `"a" b "c"` is the one value `a" b "c`. A comment behind a quoted text would keep it open and
swallow the lines that follow, so it is an error.

Invariants: `parse` raises nothing but ModelfileError; `parse(format(d)) == d` for all directives. A line that
ends in three quotes would close every quoting, so `parse` never returns a value with one before its last line
and `Directive` refuses to hold one, and so a first of several lines with three quotes and a comment. These
are the only texts the grammar cannot carry.
"""

import codecs
import difflib
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import field
from string import ascii_letters

from modelkit.arguments import optional, text
from modelkit.errors import ModelfileError
from modelkit.modelfile.directives import DIRECTIVES, ROLES, DirectiveRow
from modelkit.modelfile.parameter_table import PARAMETERS
from runtime.quoting import quoted
from runtime.records import dataclass

_LINE_END = re.compile(r"\r\n|\r|\n")
_BETWEEN = re.compile(r"(?:[ \t\r\n]+|#[^\r\n]*)*+")
_WORD = re.compile(r"[^ \t\r\n]*")
_BLANKS = re.compile(r"[ \t]*")
_BARE = re.compile(r"[^\r\n]*")
_PARAMETER_NAME = re.compile(r"[A-Za-z0-9_]+")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_CLOSING = {quotes: re.compile(quotes + r"[ \t]*(?=[\r\n]|\Z)") for quotes in ('"""', '"')}
_UNQUOTABLE = re.compile(r'"""[ \t]*[\r\n]')
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
MOST_FAULTS = 20  # lines at fault that are told
ONE_LINE = (
    "A \\ at the end of a line does not join it to the next one. A text of several lines stands in "
    'quotes: """..."""'
)
COMMENTS = "A comment stands on a line of its own; here it would be part of the value."
_NO_MARK = "It looks like UTF-16 without a byte order mark. Save the file as UTF-8."


@dataclass(frozen=True, slots=True)
class Directive:
    """One directive with its value exactly as written, quotes removed. Where it stands is not part of
    equality.

    Raises ModelfileError for what no Modelfile can hold.
    """

    keyword: str
    """In upper case."""
    value: str
    name: str | None = field(default=None, kw_only=True)
    """The parameter's name or the message's role, else None."""
    line: int = field(default=0, compare=False, kw_only=True)
    """Of the keyword, from 1; 0 for a directive made in code."""
    column: int = field(default=0, compare=False, kw_only=True)
    """Of the keyword, from 1; 0 for a directive made in code."""

    def __post_init__(self) -> None:
        text(self.keyword, "keyword")
        text(self.value, f"the value of {quoted(self.keyword)}")
        optional(text, self.name, f"the name of {quoted(self.keyword)}")
        row = DIRECTIVES.get(self.keyword)
        if row is None:
            raise self._error(f"{quoted(self.keyword)} is not a directive", _keyword_hint(self.keyword))
        if row.named is None and self.name is not None:
            raise self._error(f"{row.keyword} takes no name, got {quoted(self.name)}", _example(row))
        if row.named is not None and (problem := _name_problem(row, self.name or "")):
            raise self._error(problem, _example(row))
        if _SURROGATE.search(self.value):
            raise self._error(f"{row.keyword} holds half a surrogate pair, which is not a character")
        if _remark(f'"""{self.value}"""', 0) is not None:
            raise self._error(
                f'{row.keyword} has """ and a # in its first line, which would be a comment',
                "Break that line before the #.",
            )
        if _UNQUOTABLE.search(self.value):
            raise self._error(
                f'{row.keyword} has a line that ends in """, where any quoting would end',
                "Put something after those quotes, or break the line before them.",
            )

    def _error(self, message: str, hint: str | None = None) -> ModelfileError:
        line, column = max(self.line, 1), max(self.column, 1)
        return ModelfileError(message, file="Modelfile", line=line, column=column, hint=hint)


def decode(data: bytes, file: str = "Modelfile") -> str:
    """The text of a file: UTF-8, or what its byte order mark says (UTF-8, UTF-16 little or big endian).

    Raises ModelfileError at the first byte that is not text; nothing is replaced.
    """
    mark, encoding = next((row for row in _BYTE_ORDER_MARKS if data.startswith(row[0])), (b"", "utf-8"))
    body = data[len(mark) :]
    try:
        return body.decode(encoding)
    except UnicodeDecodeError as error:
        before = _Source(body[: error.start].decode(encoding), file)
        bad = body[error.start : error.end].hex(" ")
        hint = _NO_MARK if b"\0" in body[:2] and not mark else "Save the file as UTF-8."
        raise before.error(len(before.text), f"bytes {bad} are not {encoding.upper()} text", hint) from None


def parse(text: str, file: str = "Modelfile") -> tuple[Directive, ...]:
    """All directives in order. `file` is only for messages.

    Raises ModelfileError and nothing else, one for all lines at fault.
    """
    directives, faults = scan(text, file)
    if faults:
        raise together(faults, more=len(faults) == MOST_FAULTS)
    return directives


def scan(text: str, file: str = "Modelfile") -> tuple[tuple[Directive, ...], tuple[ModelfileError, ...]]:
    """The directives that can be read, and what is wrong with the other lines: the first MOST_FAULTS of them,
    behind which nothing is read. Raises ModelfileError for what is not text at all.
    """
    source = _Source(text, file)
    if surrogate := _SURROGATE.search(text):
        raise source.error(surrogate.start(), "half a surrogate pair, which is not a character")
    directives: list[Directive] = []
    faults: list[ModelfileError] = []
    at = source.skip(_BETWEEN, 1 if text.startswith("\ufeff") else 0)
    while at < len(text):
        try:
            directive, at = _directive(source, at)
            directives.append(directive)
        except ModelfileError as fault:
            faults.append(fault)
            at = len(text) if len(faults) == MOST_FAULTS else _behind(source, at)
        at = source.skip(_BETWEEN, at)
    return tuple(directives), tuple(faults)


def together(faults: Sequence[ModelfileError], *, more: bool = False) -> ModelfileError:
    """One for all, in the order of their lines. more: there are others that nobody has looked for."""
    first, *others = found = sorted(faults, key=lambda fault: (fault.line, fault.column))
    if not others:
        return first
    texts = [fault.message + (f"\n  {fault.hint}" if fault.hint else "") for fault in found[:MOST_FAULTS]]
    if len(found) > MOST_FAULTS:
        texts.append(f"and {len(found) - MOST_FAULTS} more")
    elif more:
        texts.append("and more")
    whole = "\n".join(texts).removeprefix(f"{first.file}:{first.line}:{first.column}: ")
    return ModelfileError(whole, file=first.file, line=first.line, column=first.column)


def format(directives: Iterable[Directive]) -> str:  # noqa: A001 - the pair of parse, used as syntax.format
    """One directive after the other, each quoted no more than it needs."""
    return "".join(f"{' '.join((d.keyword, *_named(d), _written(d)))}\n" for d in directives)


def count_lines(text: str) -> int:
    """Lines of `text`, a last one without an end included."""
    return len(_LINE_END.split(text.removesuffix("\n").removesuffix("\r"))) if text else 0


class _Source:
    """The text with its line starts, so that any offset becomes a line and a column."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self._line_starts = [1 if text.startswith("\ufeff") else 0]
        self._line_starts += [match.end() for match in _LINE_END.finditer(text)]

    def place(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._line_starts, offset) or 1
        return line, offset - self._line_starts[line - 1] + 1

    def error(self, offset: int, message: str, hint: str | None = None) -> ModelfileError:
        line, column = self.place(offset)
        return ModelfileError(message, file=self.file, line=line, column=column, hint=hint)

    def word(self, at: int) -> str:
        found = _WORD.match(self.text, at)
        return found[0] if found else ""

    def skip(self, pattern: re.Pattern[str], at: int) -> int:
        """The offset behind `pattern`, which may match nothing."""
        found = pattern.match(self.text, at)
        return found.end() if found else at


def _directive(source: _Source, at: int) -> tuple[Directive, int]:
    """The directive whose keyword begins at `at`, and the offset behind it."""
    start, word = at, source.word(at)
    row = DIRECTIVES.get(word.upper()) if word.isascii() else None  # "ſ".upper() is "S"
    if row is None:
        hint = ONE_LINE if source.text[:at].rstrip().endswith("\\") else _keyword_hint(word)
        raise source.error(at, f"{quoted(word)} is not a directive", hint)
    at = _argument(source, start, at + len(word), row, row.keyword)
    name = None
    if row.named is not None:
        name = source.word(at)
        if problem := _name_problem(row, name):
            raise source.error(at if name else start, problem, _example(row))
        at = _argument(source, start, at + len(name), row, f"{row.keyword} {name}")
    value, at = _value(source, at)
    line, column = source.place(start)
    return Directive(row.keyword, value, name=name, line=line, column=column), at


def _behind(source: _Source, at: int) -> int:
    """Behind a directive at fault and its value, wherever that ends; the end of a text that never does."""
    word = source.word(at)
    row = DIRECTIVES.get(word.upper())
    at = source.skip(_BLANKS, at + len(word))
    if row is not None and row.named is not None:
        at = source.skip(_BLANKS, at + len(source.word(at)))
    if _remark(source.text, at) is not None:
        return source.skip(_BARE, at)
    try:
        return _value(source, at)[1]
    except ModelfileError:
        return len(source.text)


def _argument(source: _Source, start: int, at: int, row: DirectiveRow, before: str) -> int:
    """Where the argument after `before` begins; at least one blank stands between them."""
    behind = source.skip(_BLANKS, at)
    if behind == at:
        needs = row.takes if before == row.keyword else "a value" if row.named == "name" else "a text"
        raise source.error(start, f"{before} needs {needs}", _example(row))
    return behind


def _value(source: _Source, at: int) -> tuple[str, int]:
    """The value that begins at `at`, bare or quoted, and the offset behind it and its trailing blanks."""
    text, quotes = source.text, _opening(source.text, at)
    if quotes is None:
        end = source.skip(_BARE, at)
        return text[at:end].rstrip(" \t"), end
    remark = _remark(text, at)
    if remark is not None:
        raise source.error(remark, "a comment behind a quoted text", COMMENTS)
    closing = _CLOSING[quotes].search(text, at + len(quotes))
    if closing is None:
        hint = f"End the last line of the text with {quotes}, and nothing after."
        raise source.error(at, f"the text that opens here with {quotes} never closes", hint)
    return text[at + len(quotes) : closing.start()], closing.end()


def _opening(text: str, at: int) -> str | None:
    """The quotes of a quoted value."""
    return next((quotes for quotes in _CLOSING if text.startswith(quotes, at)), None)


def _remark(text: str, at: int) -> int | None:
    """Where a comment begins behind quotes in the first line of a value that does not end in quotes there."""
    quotes = _opening(text, at)
    if quotes is None:
        return None
    start = at + len(quotes)
    end = _LINE_END.search(text, start)
    line = text[start : end.start() if end else len(text)].rstrip(" \t")
    found = None if line.endswith(quotes) else re.search(quotes + r"[ \t]+#", line)
    return None if found is None else start + found.end() - 1


def _named(directive: Directive) -> tuple[str, ...]:
    return () if directive.name is None else (directive.name,)


def _written(directive: Directive) -> str:
    """Ollama writes an empty text as a blank. DRAFT is ours, and editors take blanks at the end away."""
    return '""' if directive.keyword == "DRAFT" and not directive.value else _quoted(directive.value)


def _quoted(value: str) -> str:
    """`value` in the lightest form that reads back as itself; where Ollama's own does, it is the same."""
    outer = value[:1] + value[-1:]
    if not value.startswith('"') and not any(char in outer for char in " \t") and not _LINE_END.search(value):
        return value
    return f'"""{value}"""' if '"' in value else f'"{value}"'


def _name_problem(row: DirectiveRow, name: str) -> str | None:
    if not name:
        return f"{row.keyword} needs {row.takes}"
    if row.named == "role" and name not in ROLES:
        return f"{quoted(name)} is not a role; a message has one of {', '.join(ROLES)}"
    if row.named == "name" and not _PARAMETER_NAME.fullmatch(name):
        return f"{quoted(name)} is not a parameter name: only letters, digits and _"
    return None


def _keyword_hint(word: str) -> str:
    if "\0" in word:
        return _NO_MARK
    letters = word[: len(word) - len(word.lstrip(ascii_letters))]
    row = DIRECTIVES.get(letters.upper())
    if row is not None and letters != word:
        return f"A blank goes after {row.keyword}. {_example(row)}"
    if word.lower() in PARAMETERS:
        return f"{word.lower()} is a parameter: PARAMETER {word.lower()} VALUE"
    close = difflib.get_close_matches(word[:32].upper(), DIRECTIVES, n=1)
    if close:
        return f"Did you mean {close[0]}? {_example(DIRECTIVES[close[0]])}"
    return f"The directives are {', '.join(DIRECTIVES)}."


def _example(row: DirectiveRow) -> str:
    return f"Example: {row.example}"
