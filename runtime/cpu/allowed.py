"""How many threads users of other programs have said that they want at most."""

import os

from runtime import host

VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
"""Where users of other programs say how many threads they want at most."""


def as_allowed(cores: int) -> int:
    """Of so many cores, those that VARIABLES leave."""
    variable = said_by()
    return min(cores, (int(os.environ[variable]) or cores) if variable else cores)


def said_by() -> str | None:
    return next((name for name in VARIABLES if os.environ.get(name, "").isdecimal()), None)


def limiting() -> str | None:
    """The variable that leaves fewer threads than there are cores."""
    cores = host.cores()
    return said_by() if as_allowed(cores) < cores else None
