"""Forks of a process in which MLX has computed: its threads are not in them, and whatever computes there
would wait for these without end.
"""

import os

from runtime.errors import Forked

_process: int | None = None
"""That computes."""


def claim() -> None:
    """Before anything is computed. Raises Forked."""
    global _process
    _process = _process or os.getpid()
    if _process != os.getpid():
        raise Forked
