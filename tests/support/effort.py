"""That something takes no more than a moment, on a slow and busy machine as on a quick one."""

import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest

_STEPS, _STEPS_S = 200_000, 0.006
"""So many steps of `_walk` take that long on the machine whose seconds are meant."""


@contextmanager
def at_most(seconds: float) -> Generator[None]:
    """Fails if this thread computes for longer; what it waits for and other threads do is not counted.

    seconds: of the machine on which limits were chosen; this one's are converted by how long it takes for a
    known piece of work right behind.
    """
    began_s = time.thread_time()
    yield
    took_s = time.thread_time() - began_s
    here = min(_walk() for _ in range(3)) / _STEPS_S
    if took_s > seconds * here:
        pytest.fail(
            f"took {took_s:.1f} s, {took_s / here:.1f} s of a usual machine's; at most {seconds} s are"
        )


def _walk() -> float:
    began_s, seen = time.thread_time(), {0: 0}
    for step in range(_STEPS):
        seen[step & 63] = step
    return time.thread_time() - began_s
