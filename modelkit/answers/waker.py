"""Telling the readers of an event loop what steps of the engine brought: one call for all of them.

    the engine's thread   `Notifier.notify` calls the one `wake` of all streams that this loop reads
    the loop              one callback looks which of them have something, and calls their readers

A `call_soon_threadsafe` costs the engine's thread a lock and a write to a pipe, for each stream and each step
if every stream had its own.
"""

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from runtime.engine.stream import Stream


class Waker:
    """Of one event loop, for the streams of one engine."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.readers: dict[Stream, dict[Callable[[], None], None]] = {}
        """Of each stream, in the order in which they came. On the loop's thread only."""
        self._loop = loop
        self._due = False

    def wake(self) -> None:
        """On the engine's thread. Raises RuntimeError where the loop is closed."""
        if self._due and not self._loop.is_closed():
            return  # the loop has not looked yet, and will see this as well
        self._due = True
        self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        self._due = False  # first: what comes from here on asks for another look
        news = [told for stream, readers in self.readers.items() if stream.has_news for told in readers]
        for told in dict.fromkeys(news):
            told()


_wakers: dict[tuple[int, int], Waker] = {}
_lock = threading.Lock()


@contextmanager
def listening(*streams: Stream) -> Generator[asyncio.Event]:
    """An event that is set when one of the streams, all of one engine, may have something new."""
    news = asyncio.Event()
    with following(news.set, *streams):
        yield news


@contextmanager
def following(told: Callable[[], None], *streams: Stream) -> Generator[None]:
    """For as long as this is held, `told` is called on the loop's thread when one of the streams, all of one
    engine, may have something new; once, however many have. It raises nothing and does not wait.
    """
    loop = asyncio.get_running_loop()
    key = id(loop), id(streams[0].notifier)
    with _lock:
        waker = _wakers.setdefault(key, Waker(loop))
    for stream in streams:
        waker.readers.setdefault(stream, {})[told] = None
        stream.listen(waker.wake)
    try:
        yield
    finally:
        for stream in streams:
            readers = waker.readers[stream]
            del readers[told]
            if not readers:
                del waker.readers[stream]
                stream.unlisten(waker.wake)
            for other in readers:  # may wait for what this one has taken, the end too
                other()
        if not waker.readers:
            with _lock:
                _wakers.pop(key, None)
