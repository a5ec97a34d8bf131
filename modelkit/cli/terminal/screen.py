"""What is written where: text on standard output, notes and errors on standard error, and a sign of life
while somebody waits.

Text is exact in a pipe or a file and harmless on a terminal: model text, names and messages may carry escape
sequences that rewrite the screen or the clipboard. Notes and errors are harmless everywhere, since logs are
read on terminals too, and never longer than a person reads.
"""

import json
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import IO, Any

import click

from modelkit.cli.terminal import interrupts
from modelkit.cli.terminal.columns import beginning_of
from modelkit.cli.terminal.ui import characters_of, printable, wrapped
from modelkit.errors import readable
from modelkit.settings.terminal import knows_escapes, wants_color

OUTPUT = "standard output"
_LONGEST_MESSAGE = 4000
_PATIENCE_S = 0.2
_USUAL_COLUMNS = 80
_FRAMES = ("|/-\\", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")


@contextmanager
def naming(stream: str) -> Generator[None]:
    """A write that fails says to which `stream`: an OSError has a file's name, and streams have none."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or stream
        raise


def echo(text: str = "", *, end: str = "\n", err: bool = False) -> None:
    """Write `text` and `end`: exact in a pipe or a file, without control characters on a terminal."""
    stream = sys.stderr if err else sys.stdout
    shown = printable(text) if stream.isatty() else text
    with _LINE, naming("standard error" if err else OUTPUT):
        _clear_line()
        stream.write(shown + end)
        stream.flush()


def state(sentence: str, *, err: bool = False) -> None:
    """A sentence of ours, broken between words on a terminal."""
    echo(wrapped(sentence, width(err=err), "  "), err=err)


def show_text(text: str) -> None:
    """A stored text for a person: its last line ends."""
    echo(text, end="" if text.endswith("\n") else "\n")


def emit_text(text: str) -> None:
    """A stored text: byte for byte where it is piped, undecodable bytes (surrogateescape) included; on a
    terminal as `show_text` does it.
    """
    raw: IO[bytes] | None = getattr(sys.stdout, "buffer", None)
    if sys.stdout.isatty() or raw is None:
        show_text(text)
        return
    with naming(OUTPUT):
        sys.stdout.flush()
        raw.write(text.encode("utf-8", "surrogateescape"))
        raw.flush()


def emit_json(value: Any) -> None:
    """One JSON document on standard output, in ASCII: right in every locale, and harmless on a terminal. Of
    names of files that are not text it has characters that say so.
    """
    echo(_json(value))


def note(text: str) -> None:
    """Something the user should know, on standard error so that pipes stay clean."""
    _message("note:", "yellow", text, sys.stderr)


def show_error(message: str, hint: str | None = None, file: IO[Any] | None = None) -> None:
    """One message, and what to do about it on its own line."""
    to: IO[Any] = file or sys.stderr
    _message("Error:", "red", message, to)
    if hint:
        lines = "\n".join(f"  {line}" for line in _shortened(printable(hint)).splitlines())
        click.echo(wrapped(lines, _columns(to)), file=to)


def width(*, err: bool = False) -> int | None:
    """Columns of the terminal that standard output is, or with `err` standard error; None where it is none,
    so that nothing is wrapped.
    """
    return _columns(sys.stderr if err else sys.stdout)


class Aside:
    """Standard error for whoever writes lines to a stream: none ends up behind a line of progress."""

    def write(self, text: str) -> None:
        echo(text, end="", err=True)

    def flush(self) -> None:
        """Each line was."""


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


class Waiting:
    """A sign of life on standard error while the block runs, where that is a terminal; gone afterwards, and
    sooner with `stop`. Quick work shows none. more: what is added to the label, at each moment; called on
    another thread.
    """

    def __init__(self, label: str, *, enabled: bool = True, more: Callable[[], str] = lambda: "") -> None:
        self._label, self._more = printable(label), more
        self._over = threading.Event()
        shown = enabled and sys.stderr.isatty() and knows_escapes()
        self._thread = threading.Thread(target=self._run, daemon=True) if shown else None

    def __enter__(self) -> "Waiting":
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Safe to call twice."""
        if self._thread is None or self._over.is_set():
            return
        self._over.set()
        self._thread.join()
        with _LINE:
            _clear_line()

    def _run(self) -> None:
        began = time.monotonic()
        frames = _FRAMES["utf" in (sys.stderr.encoding or "").lower()]
        turn = 0
        while not self._over.wait(_PATIENCE_S if turn == 0 else 0.1):
            turn += 1
            self._draw(frames[turn % len(frames)], time.monotonic() - began)

    def _draw(self, frame: str, passed_s: float) -> None:
        global _drawn
        said = self._label + self._more()
        label = "stopping; Ctrl-C again leaves at once" if interrupts.pending() else said
        seconds = f"  {passed_s:.0f} s" if passed_s >= 2 else ""
        line = beginning_of(f"{frame} {label}{seconds}", (_columns(sys.stderr) or _USUAL_COLUMNS) - 1)
        with _LINE:
            if not self._over.is_set():
                sys.stderr.write(f"\r{line}\x1b[K")
                sys.stderr.flush()
                _drawn = True


_LINE = threading.RLock()  # who may write: a line of progress never ends up between two halves of a text
_drawn = False


def _clear_line() -> None:
    global _drawn
    if _drawn:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
        _drawn = False


def _columns(stream: IO[Any]) -> int | None:
    """Of this stream's terminal: the other stream may be a pipe. COLUMNS has its say."""
    if not stream.isatty():
        return None
    try:
        own = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):  # no real file behind it
        own = 0
    return shutil.get_terminal_size((own or _USUAL_COLUMNS, 0)).columns


def _message(word: str, color: str, text: str, file: IO[Any]) -> None:
    said = wrapped(f"{word} {_shortened(printable(text))}", _columns(file), "  ")
    with _LINE:
        _clear_line()
        click.echo(
            (click.style(word, fg=color) if wants_color() else word) + said.removeprefix(word), file=file
        )


def _shortened(text: str) -> str:
    """A message may quote a field of 100,000 letters; its beginning and its end say what is wrong."""
    text = readable(text)
    if len(text) <= _LONGEST_MESSAGE:
        return text
    head, tail = text[: _LONGEST_MESSAGE * 3 // 4], text[-_LONGEST_MESSAGE // 8 :]
    return f"{head} [... {len(text) - len(head) - len(tail):,} characters left out ...] {tail}"


def _json(value: Any, indent: str = "") -> str:
    """Indented, but a list of plain values on one line: an answer has one id per token."""
    inner = indent + "  "
    if isinstance(value, dict) and value:
        pairs = (
            f"{inner}{json.dumps(characters_of(str(key)))}: {_json(one, inner)}" for key, one in value.items()
        )
        return "{\n" + ",\n".join(pairs) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and any(isinstance(one, dict | list | tuple) for one in value):
        return "[\n" + ",\n".join(inner + _json(one, inner) for one in value) + f"\n{indent}]"
    return json.dumps(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return characters_of(value) if isinstance(value, str) else value
