"""The caller's end of one request: an iterator of deltas that cancels when it is left."""

import queue
from collections.abc import Callable, Iterator
from types import TracebackType

from runtime.engine.request import Delta, Finish


class Stream:
    """Yields `Delta`s as tokens arrive; `finish` says why it ended. Use from one thread, any thread but the
    engine's.

    Leaving it early (break, exception, `close`) cancels the request; the engine stops within one step.
    """

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel
        self._events: queue.SimpleQueue[Delta | Finish | BaseException] = queue.SimpleQueue()
        self._finish: Finish | None = None
        self._failure: BaseException | None = None

    def put(self, event: Delta | Finish | BaseException) -> None:
        """The engine's side: one more event. A Finish or an exception is the last."""
        self._events.put(event)

    @property
    def finish(self) -> Finish | None:
        """Set once the stream has ended."""
        return self._finish

    def __iter__(self) -> Iterator[Delta]:
        try:
            while self._finish is None:
                if self._failure is not None:
                    raise self._failure
                event = self._events.get()
                if isinstance(event, Delta):
                    yield event
                else:
                    self._end(event)
        finally:
            self.close()

    def close(self) -> Finish:
        """Cancel if still running, and wait until the engine has let go of the row."""
        if self._finish is None and self._failure is None:
            self._cancel()
            while self._finish is None and self._failure is None:
                event = self._events.get()
                if not isinstance(event, Delta):
                    self._end(event)
        return self._finish or Finish("cancelled")

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end(self, event: Finish | BaseException) -> None:
        if isinstance(event, Finish):
            self._finish = event
        else:
            self._failure = event
