"""How a command ends that is interrupted before it has anything to put away. Imports next to nothing."""

import os

INTERRUPTED = 130


def leave(*_: object) -> None:
    """Answer to a signal."""
    os._exit(INTERRUPTED)
