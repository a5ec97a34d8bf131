"""An engine that waits for those who leave, so that no answer ends before its reader has gone."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import modelkit
from runtime.engine.engine import Engine

PATIENCE_S = 60
"""Then the engine goes on, and the test sees an answer that has ended by itself."""


@contextmanager
def standing(held: modelkit.Model | Engine, after: int = 9) -> Generator[None]:
    """Behind its next `after` steps the engine takes none until a row was left, or it is being closed.

    However late the reader of an answer is, on a busy machine, it leaves before the end.
    """
    engine: Any = held if isinstance(held, Engine) else held._running.engine  # pyright: ignore
    loop, thread = engine._loop, engine._thread
    takes, taken = loop._step, 0

    def left() -> bool:
        return thread._closing or any(row.cancelled for row in loop._places.rows)

    def step(prefill: int) -> None:
        nonlocal taken
        taken += 1
        until = time.monotonic() + PATIENCE_S
        while taken > after and not left() and time.monotonic() < until:
            time.sleep(1e-3)
        takes(prefill)

    loop._step = step
    try:
        yield
    finally:
        loop._step = takes
