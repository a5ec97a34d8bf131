"""The first moment of the `modelkit` command: an interrupt is quiet before anything is imported that takes
time. All else that must hold is settled by `entry`.
"""

import _signal  # pyright: ignore[reportMissingImports] -- signal itself imports what takes milliseconds

from modelkit.cli.early_exit import leave


def main() -> None:
    """Entry point of the console script and of `python -m modelkit`."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, leave)
    from modelkit.cli import entry

    entry.main()
