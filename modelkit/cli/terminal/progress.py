"""Progress bars by bytes with time left, on standard error; silent where that is no terminal. One that cannot
draw over a line (TERM=dumb) gets a line now and then.
"""

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from modelkit.cli.terminal.screen import note, state
from modelkit.cli.terminal.ui import one_line, size
from modelkit.progress import Advance
from modelkit.settings.terminal import knows_escapes

_EVERY_S = 10.0
_COUNTED = ("texts", "tokens", "weights")  # what labels end in where no bytes are meant


class Bars:
    """One bar after the other. A Progress, and a Listener of what is fetched. Leaving a
    block closes the bar.
    """

    def __init__(self, *, enabled: bool = True) -> None:
        self._says = enabled
        self._enabled = enabled and sys.stderr.isatty()
        self._bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()

    def say(self, sentence: str) -> None:
        if self._says:
            note(sentence)

    def begin(self, label: str, total_bytes: int) -> None:
        if self._enabled and total_bytes:
            self._bar = (_drawn if knows_escapes() else _Lines)(one_line(label), total_bytes)

    def advance(self, done_bytes: int) -> None:
        if self._bar is not None:
            self._bar.update(done_bytes)

    def finish(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _drawn(label: str, total: int) -> Any:
    from tqdm import tqdm

    unit = f" {label.split()[-1]}" if _counts(label) else "B"
    return tqdm(total=total, desc=f"{label:<16}", unit=unit, unit_scale=True, dynamic_ncols=True)


def _counts(label: str) -> bool:
    return label.split()[-1] in _COUNTED


class _Lines:
    """What tqdm is used for, for a terminal that only grows."""

    def __init__(self, label: str, total: int) -> None:
        self._label, self._total, self._done = label, total, 0
        self._said_s = time.monotonic()

    def update(self, done: int) -> None:
        self._done += done
        now_s = time.monotonic()
        if now_s - self._said_s >= _EVERY_S:
            self._said_s = now_s
            done_of = [f"{n:,}" if _counts(self._label) else size(n) for n in (self._done, self._total)]
            state(f"{self._label}: {self._done / self._total:.0%}, {' of '.join(done_of)}", err=True)

    def close(self) -> None:
        """The end needs no line: what came of it is said."""


@contextmanager
def bar(label: str, total_bytes: int, *, enabled: bool = True) -> Generator[Advance]:
    """One bar, as a function to call with the bytes done since its last call."""
    bars = Bars(enabled=enabled)
    bars.begin(label, total_bytes)
    try:
        yield bars.advance
    finally:
        bars.finish()
