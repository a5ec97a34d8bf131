"""How many threads the environment leaves, by variables of other programs."""

import os

from runtime import host

VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
"""By which users of other programs limit threads."""


def as_allowed(cores: int) -> int:
    """Of so many cores, those that VARIABLES leave."""
    variable = thread_variable()
    return min(cores, (int(os.environ[variable]) or cores) if variable else cores)


def thread_variable() -> str | None:
    """The one of VARIABLES that is set to a number."""
    return next((name for name in VARIABLES if os.environ.get(name, "").isdecimal()), None)


def limiting() -> str | None:
    """The variable that leaves fewer threads than there are cores."""
    cores = host.cores()
    return thread_variable() if as_allowed(cores) < cores else None
