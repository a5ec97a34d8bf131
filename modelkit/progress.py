"""Bars of progress, for what takes long: a terminal draws them, a server tells of them."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol

Advance = Callable[[int], None]
"""Called with the bytes done since the last call; fewer than none where some have to come again."""


class Progress(Protocol):
    """One bar after the other. Calls come one at a time, though perhaps from several threads.

    Where no bytes are counted, a label ends in what is: tokens, weights, texts.
    """

    def begin(self, label: str, total_bytes: int) -> None:
        """A bar begins."""
        ...

    def advance(self, done_bytes: int) -> None:
        """As an `Advance`."""
        ...

    def finish(self) -> None:
        """The bar ends, whether all came or not."""
        ...


class Silent:
    """Progress that nobody is shown."""

    def begin(self, label: str, total_bytes: int) -> None: ...
    def advance(self, done_bytes: int) -> None: ...
    def finish(self) -> None: ...


@contextmanager
def bar(progress: Progress, label: str, total_bytes: int) -> Generator[None]:
    """A bar for as long as the block runs; none where there is nothing to do."""
    if not total_bytes:
        yield
        return
    progress.begin(label, total_bytes)
    try:
        yield
    finally:
        progress.finish()
