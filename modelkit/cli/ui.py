"""How things look in a terminal: tables, sizes, times, progress bars, and text that cannot take the terminal
over.
"""

import json
import logging
import sys
import time
import unicodedata
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, Any

import click

from modelkit.units import size as size

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead.")

HOW_TO_GET_MLX = "On Linux: pip install 'modelkit-mlx[cpu]', or [cuda13] for NVIDIA."

_UNSAFE = frozenset({"Cc", "Cs", "Zl", "Zp"})
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(text: str) -> str:
    """`text` without control and direction-changing characters; newline and tab stay.

    Model text, names and messages from files may carry escape sequences that rewrite the screen or the
    clipboard.
    """
    return "".join(
        c for c in text if c in "\n\t" or (unicodedata.category(c) not in _UNSAFE and c not in _BIDI)
    )


def one_line(text: str, limit: int = 100) -> str:
    """`text` on one line of at most `limit` characters, its line ends and tabs spelled out."""
    flat = printable(text.replace("\n", "\\n").replace("\t", "\\t"))
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


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


def timestamp(moment_s: float) -> str:
    """ISO 8601 in UTC, whole seconds."""
    return datetime.fromtimestamp(int(moment_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def table(
    rows: Iterable[Sequence[str]], *, header: Sequence[str] | None = None, right: Sequence[int] = ()
) -> str:
    """Columns padded to their widest cell; `right` lists the columns aligned to the right."""
    lines = [[one_line(cell) for cell in row] for row in ([header] if header else []) + list(rows)]
    if not lines:
        return ""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]

    def cell(i: int, text: str) -> str:
        return text.rjust(widths[i]) if i in right else text.ljust(widths[i])

    return "\n".join("  ".join(cell(i, text) for i, text in enumerate(line)).rstrip() for line in lines)


def sections(parts: Mapping[str, Iterable[Sequence[str]]]) -> str:
    """Titled blocks of rows in columns; empty blocks are left out."""
    shown = [(title, list(rows)) for title, rows in parts.items()]
    return "\n\n".join(
        f"  {title}\n" + "\n".join(f"    {line}" for line in table(rows).splitlines())
        for title, rows in shown
        if rows
    )


def emit_json(value: Any) -> None:
    """One JSON document on standard output, in ASCII: right in every locale, and harmless on a terminal."""
    click.echo(json.dumps(value, indent=2))


def emit_text(text: str) -> None:
    """A text from a file: exact where it is piped, without control characters on a terminal."""
    click.echo(printable(text) if sys.stdout.isatty() else text, nl=not text.endswith("\n"))


def note(text: str) -> None:
    """Something the user should know, on standard error so that pipes stay clean."""
    click.echo(f"{click.style('note:', fg='yellow')} {printable(text)}", err=True)


class _Notes(logging.Handler):
    """What the rooms below log, as notes."""

    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())


def show_warnings() -> None:
    """From now on, warnings of modelkit and its runtime are notes to the user."""
    for name in ("modelkit", "runtime"):
        logger = logging.getLogger(name)
        if not any(isinstance(handler, _Notes) for handler in logger.handlers):
            logger.addHandler(_Notes(logging.WARNING))


def show_error(message: str, hint: str | None = None, file: IO[Any] | None = None) -> None:
    """One message, and what to do about it on its own line."""
    file = file or sys.stderr
    click.echo(f"{click.style('Error:', fg='red')} {printable(message)}", file=file)
    if hint:
        click.echo(f"  {printable(hint)}", file=file)


class Bars:
    """Progress bars by bytes with time left, one after the other; silent where standard error is no terminal.

    Fits what `pack` wants of a Progress.
    """

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled and sys.stderr.isatty()
        self._bar: Any = None

    def begin(self, label: str, total_bytes: int) -> None:
        if self._enabled and total_bytes:
            from tqdm import tqdm

            label = f"{one_line(label):<16}"
            self._bar = tqdm(total=total_bytes, desc=label, unit="B", unit_scale=True, dynamic_ncols=True)

    def advance(self, done_bytes: int) -> None:
        if self._bar is not None:
            self._bar.update(done_bytes)

    def finish(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


@contextmanager
def bar(label: str, total_bytes: int, *, enabled: bool = True) -> Generator[Callable[[int], None]]:
    """One bar, as a function to call with the bytes done since its last call."""
    bars = Bars(enabled=enabled)
    bars.begin(label, total_bytes)
    try:
        yield bars.advance
    finally:
        bars.finish()
