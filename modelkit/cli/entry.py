"""Where the `modelkit` command begins: what must hold before anything else is imported.

Standard input, output and error are open, whatever the caller closed: otherwise the next file that is opened
gets the number 0, which MLX takes for a failure. An interrupt is quiet from here on. What is piped
out is UTF-8 in every locale, and a terminal that cannot show a letter is no reason to stop.
"""

import io
import os
import sys

from modelkit.cli import interrupts


def main() -> None:
    """Entry point of the console script and of `python -m modelkit`."""
    interrupts.install()
    open_closed_streams()
    settle_encodings()
    from modelkit.cli.main import cli

    cli(prog_name="modelkit")


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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="replace")
