"""Where the `modelkit` command begins: what must hold before anything else is imported.

Standard input, output and error are open, whatever the caller closed: otherwise the next file that is opened
gets the number 0, which MLX takes for a failure. An interrupt is quiet from here on. What is piped in
or out is UTF-8 in every locale, and a terminal that cannot show a letter is no reason to stop. A pipe that
somebody else has set not to wait (ssh and node do that) is waited for: Python takes it for empty or full.

Nothing on standard error is what a command is run for. Where it cannot be written (it is closed, its disk is
full, its reader gone), what would be said is lost, and the command does its work and ends with the code that
it would have. Standard output that cannot be written is an error.

And where it ends: once all that was put off until then is done, the process ends without taking its objects
apart one by one, which took a command that has loaded a model a sixth of a second.
"""

import atexit
import io
import os
import select
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from modelkit.cli.terminal import interrupts

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


def main() -> None:
    """Entry point of the console script and of `python -m modelkit`."""
    end = End()
    interrupts.install()
    open_closed_streams()
    settle_encodings()
    from modelkit.cli.main import cli

    try:
        cli(prog_name="modelkit")
    except SystemExit as said:
        end.code = said.code
        raise


class End:
    """The last thing that happens. code: of the process; whatever is no number is Python's to deal with, as
    is an exception that nobody caught. So is the end where somebody before us has something to do then
    (a tool that measures coverage, say), who would be called behind this.
    """

    def __init__(self) -> None:
        self.code: object = ""
        if not atexit._ncallbacks():  # pyright: ignore[reportPrivateUsage] -- nothing else tells
            atexit.register(self._leave)  # called last of all: threads are over, files are put away

    def _leave(self) -> None:
        from modelkit.settings.launchers import held_by_mpi

        code = 0 if self.code is None else self.code
        if not isinstance(code, int):
            return
        if code == 0 and held_by_mpi():
            from modelkit.ranks.mpi import take_leave

            take_leave()
        try:
            sys.stdout.flush()
        except (OSError, ValueError):
            if code == 0:
                return  # Python says so, and has a code for it
        with suppress(OSError, ValueError):  # there is nobody to say it to
            sys.stderr.flush()
        os._exit(code & 0xFF)


def open_closed_streams() -> None:
    """The null device in place of those of the descriptors 0 to 2 that are closed."""
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is this one
            os.set_inheritable(descriptor, True)
        if getattr(sys, name) is None:
            stream = os.fdopen(descriptor, mode, encoding="utf-8", closefd=False)
            setattr(sys, name, stream)


def settle_encodings() -> None:
    if isinstance(sys.stderr, io.TextIOWrapper):
        raw = io.BufferedWriter(_MayBeLost(sys.stderr.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, sys.stderr.encoding, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")
    if isinstance(sys.stdout, io.TextIOWrapper) and not os.get_blocking(sys.stdout.fileno()):
        made = io.BufferedWriter(_Waiting(sys.stdout.fileno(), "w", closefd=False))
        sys.stdout = io.TextIOWrapper(
            made, sys.stdout.encoding, "replace", line_buffering=sys.stdout.isatty()
        )
    if isinstance(sys.stdin, io.TextIOWrapper) and not sys.stdin.isatty():
        raw = io.BufferedReader(_Waiting(sys.stdin.fileno(), closefd=False))
        sys.stdin = io.TextIOWrapper(raw, "utf-8-sig", "surrogateescape")


class _Waiting(io.FileIO):
    """Waits until something can be read or written, and says which stream it is that cannot."""

    def readinto(self, buffer: "WriteableBuffer", /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride] -- waits
        try:
            while (count := super().readinto(buffer)) is None:
                select.select([self], [], [])
        except OSError as error:
            error.filename = "standard input"
            raise
        return count

    def write(self, data: "ReadableBuffer", /) -> int:
        while (count := super().write(data)) is None:
            select.select([], [self], [])
        return count


class _MayBeLost(io.FileIO):
    """Takes all that is written, whatever becomes of it."""

    def write(self, data: "ReadableBuffer", /) -> int:
        with suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes
