"""The prompt of `modelkit run`: its arguments, and what is piped in."""

import select
import sys
from io import UnsupportedOperation
from typing import TextIO

from modelkit.cli.terminal.screen import note
from modelkit.errors import RequestError
from modelkit.python_faults import unread
from modelkit.settings.launchers import launched
from modelkit.text_files import read_text

_LIMIT_BYTES = 64 << 20
_PATIENCE_S = 1.0


def read_prompt(words: tuple[str, ...]) -> str | None:
    """What was piped in, then the arguments. None where there is neither: a conversation.

    The one argument `-` is standard input too, even where that is a terminal. Launchers of several processes
    keep a pipe open for what is typed, which is like one.
    """
    asked = words == ("-",)
    piped, said = _piped(even_typed=asked), "" if asked else " ".join(words)
    if piped is None:
        return said if words else None
    return "\n".join(part for part in (piped, said) if part)


def _piped(*, even_typed: bool = False) -> str | None:
    """Standard input as text; None where it is a terminal, unless `even_typed`."""
    stdin: TextIO | None = sys.stdin
    if stdin is None:  # the caller closed it
        return ""
    if stdin.isatty() or launched():
        if not even_typed:
            return None
    else:
        _explain_waiting()
    try:
        text = read_text(stdin.buffer, _LIMIT_BYTES)
    except ValueError as error:
        raise RequestError(
            f"what was piped in cannot be read: {unread(error)}",
            hint=f"Pipe text in (UTF-8), at most {_LIMIT_BYTES:,} bytes of it.",
        ) from error
    return text.removesuffix("\n").removesuffix("\r")


def _explain_waiting() -> None:
    """A pipe that nobody writes to and nobody closes looks like a program that hangs."""
    try:
        ready, _, _ = select.select([sys.stdin], [], [], _PATIENCE_S)
    except (UnsupportedOperation, ValueError):  # no real file behind it
        return
    if not ready:
        note("waiting for standard input to end (redirect it from /dev/null if there is none)")
