"""The caller's end of one request: the deltas that have come, and how it ended.

One thread reads, and any thread may leave at any moment: a timer, a stop button, a client that went away.

    the engine's thread   put      deltas, and last of all one Finish or an exception; when it is notified,
                                   they are the reader's
    the reader            read     the next delta; None at the end
                          take     all that is there, without waiting: for event loops, told by `wake`
    whoever has enough    cancel   says so and returns; close also waits until the engine has let go

Invariants:
- The last event never leaves the queue: whoever takes it puts it back. So any number of threads can wait for
  it, and none misses it, however late it comes.
- `cancel` sets a flag, nudges the engine and takes no lock. The garbage collector may call it anywhere, on
  the engine's own thread too, and in the middle of `put`; waiting there would never end.
- What `read` has given is a beginning of what the engine made, without gaps: from the moment that somebody
  left, all that is still queued is dropped, whichever thread finds it. An interrupt (Ctrl-C) may strike with
  an event in hand, so a wait that is interrupted leaves the stream, too.
"""

import os
import queue
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from types import TracebackType

from runtime.engine.notifier import Notifier, Wake
from runtime.engine.request import Delta, Finish, PromptProgress
from runtime.engine.thread import forked


class WakeFailed(RuntimeError):
    """The `wake` of this stream raised an error, which is the cause; nobody could be told of what came."""


class Stream:
    """Iterating gives the `Delta`s as tokens come; leaving the loop early cancels the request, and the engine
    stops within one step. A failure of the engine is raised to the reader.

    notifier: lets readers have what steps brought. wake: called then if there is
    something new to take. left: called when somebody leaves, wherever that is (see above): an engine that
    waits, for a disk say, would not look.
    """

    def __init__(
        self,
        notifier: Notifier | None = None,
        wake: Wake | None = None,
        left: Callable[[], object] = lambda: None,
    ) -> None:
        self.wake = wake
        self._left = left
        self.progress: PromptProgress | None = None
        """How far the prompt has been read; None while the request waits for a place. The engine sets it, any
        thread may look.
        """
        self._notifier = notifier
        self._process = os.getpid()
        self._deaf = False
        self._kept: deque[Delta] = deque()  # until readers are notified
        self._events: queue.SimpleQueue[Delta | Finish | BaseException] = queue.SimpleQueue()
        self._last: Finish | BaseException | None = None
        self._begun = self._ended = False
        self._cancelled = False
        self._dropped = False

    def put(self, event: Delta | Finish | BaseException) -> None:
        """The engine's side: one more event. A Finish or an exception is the last; after it, nothing counts.
        Never waits. Before it is notified a reader has no delta, but the end takes all with it.
        """
        if self._last is not None:
            return
        if isinstance(event, Delta):
            self._kept.append(event)
            if self._notifier is None:
                self.hand_over()
        else:
            self._last = event
            self.hand_over()
            self._events.put(event)
        if self._notifier is not None:
            self._notifier.note(self, pressing=self._last is not None, due=not self._begun)
        self._begun = True

    def hand_over(self) -> None:
        """The engine's side, or whoever ends the stream for it."""
        try:
            while True:
                self._events.put(self._kept.popleft())
        except IndexError:  # both may be at it
            pass

    def listen(self, wake: Wake) -> None:
        """The reader's side: call `wake` from now on, and nobody else. Take what is there already."""
        self.wake = wake

    def unlisten(self, wake: Wake) -> None:
        """The reader's side: call this one no more, if it is still the one. Its loop may be closed next, and
        a call that failed then would end the stream, and what it has cost would not be known.
        """
        if self.wake == wake:
            self.wake = None

    def unheard(self, error: BaseException) -> None:
        """The engine's side: `wake` failed, so the stream ends here. Readers who come anyway are told."""
        failure = WakeFailed(f"the wake callback of a stream failed: {error!r}")
        failure.__cause__ = error
        self.wake = None
        self.put(failure)
        self._deaf = True

    @property
    def notifier(self) -> Notifier | None:
        """Notified when readers may have what has come; None for a stream of no engine."""
        return self._notifier

    @property
    def has_news(self) -> bool:
        """Is there something to take? The end counts, too. From any thread."""
        return not self._events.empty()

    @property
    def complete(self) -> bool:
        """Has the engine put the end, whether it was read or not? From any thread."""
        return self._last is not None

    @property
    def cancelled(self) -> bool:
        """The caller has left, or cannot be told of more. The engine looks before each step."""
        return self._cancelled or self._deaf

    @property
    def ended(self) -> bool:
        """The end was seen, by a reader or by whoever closed."""
        return self._ended

    @property
    def finish(self) -> Finish | None:
        """Set once the stream has ended, unless by a failure. The reason is "cancelled" too where the engine
        was done and not all of it was read.
        """
        if not self._ended or not isinstance(self._last, Finish):
            return None
        return replace(self._last, reason="cancelled") if self._dropped else self._last

    def read(self) -> Delta | None:
        """Wait for the next delta; None at the end, or at once where somebody has left. Raises what the
        engine failed with.
        """
        self._end_in_a_fork()
        while not self._ended and not self._cancelled:
            event = self._take()
            if isinstance(event, Delta):
                return event
        if isinstance(self._last, BaseException) and not self._cancelled:
            raise self._last
        return None

    def take(self) -> list[Delta]:
        """All deltas that are there, without waiting; [] where there is none, or no more (`ended`). Raises
        what the engine failed with, once everything before has been taken.
        """
        self._end_in_a_fork()
        taken: list[Delta] = []
        while not self._ended:
            if self._events.empty():
                return taken
            try:
                event = self._take(wait=False)
            except queue.Empty:  # another thread had it
                return taken
            if event is not None:
                taken.append(event)
        if isinstance(self._last, BaseException) and not self._cancelled:
            if not taken:
                raise self._last
            self._ended = False  # nobody has been told yet; the next call raises
            self._tell_reader()
        return taken

    def cancel(self) -> None:
        """Want no more. Returns at once."""
        if not self._ended and not self._cancelled:
            self._cancelled = True
            self._left()

    def close(self) -> Finish:
        """Cancel if still running, and wait until the engine has let go of the row. Not from the engine's
        thread.
        """
        self.cancel()
        self._end_in_a_fork()
        if not self._ended:
            while not self._ended:
                self._take()
            self._tell_reader()  # who may have looked while the end was in our hands
        return self.finish or Finish("cancelled")

    def __iter__(self) -> Iterator[Delta]:
        try:
            while (delta := self.read()) is not None:
                yield delta
        finally:
            self.cancel()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end_in_a_fork(self) -> None:
        """Nobody puts anything in there."""
        if os.getpid() != self._process:
            self.put(forked())

    def _tell_reader(self) -> None:
        """Have an event loop look once more. From any thread."""
        if (wake := self.wake) is not None:
            with suppress(RuntimeError):  # a loop that is closed reads no more
                wake()

    def _take(self, *, wait: bool = True) -> Delta | None:
        """The next event: a delta that is still wanted, or None for any other. queue.Empty where there is
        none and nobody wants to wait.
        """
        try:
            event = self._events.get(wait)
            if isinstance(event, Delta):
                if not self._cancelled:
                    return event
                self._dropped = True
                return None
            self._ended = True
            self._events.put(event)
        except queue.Empty:
            raise
        except BaseException:
            self.cancel()
            if self._last is not None:
                self._events.put(self._last)  # more than once does no harm
            raise
        return None
