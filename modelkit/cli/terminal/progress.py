"""Progress bars by bytes with time left, on standard error; silent where that is no terminal."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from modelkit.bars import Advance
from modelkit.cli.terminal.screen import note
from modelkit.cli.terminal.ui import one_line

_COUNTED = ("texts", "tokens", "weights")  # what labels end in where no bytes are meant


class Bars:
    """One bar after the other. Fits what `pack` wants of a Progress, and `fetch` of a Told. Leaving a block
    closes the bar.
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
            from tqdm import tqdm

            label, unit = f"{one_line(label):<16}", "B"
            counted = label.split()[-1]
            if counted in _COUNTED:
                unit = f" {counted}"
            self._bar = tqdm(total=total_bytes, desc=label, unit=unit, unit_scale=True, dynamic_ncols=True)

    def advance(self, done_bytes: int) -> None:
        if self._bar is not None:
            self._bar.update(done_bytes)

    def finish(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


@contextmanager
def bar(label: str, total_bytes: int, *, enabled: bool = True) -> Generator[Advance]:
    """One bar, as a function to call with the bytes done since its last call."""
    bars = Bars(enabled=enabled)
    bars.begin(label, total_bytes)
    try:
        yield bars.advance
    finally:
        bars.finish()
