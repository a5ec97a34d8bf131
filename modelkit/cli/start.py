"""The first moment of the `modelkit` command: an interrupt is quiet before anything is imported that takes
time. All else that must hold is settled by `entry`.
"""

import _signal  # pyright: ignore[reportMissingImports] -- signal itself imports what takes milliseconds
import os

INTERRUPTED = 130


def main() -> None:
    """Entry point of the console script and of `python -m modelkit`."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, leave)
    from modelkit.cli import entry

    entry.main()


def leave(*_: object) -> None:
    """There is nothing yet to put away."""
    os._exit(INTERRUPTED)
